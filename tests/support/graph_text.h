#pragma once

#include <string>

namespace ff {

// A graph file with these operators, of batch size 4, with inputs x [4, 3, 8, 8] and label [4], or others.
inline std::string graph_text(const std::string& operators,
                              const std::string& inputs = R"({"name":"x","shape":["batch",3,8,8],"dtype":"f32"})") {
  return R"({"format":"ffgraph/1","name":"g","batch_size":4,"inputs":[)" + inputs +
         R"(,{"name":"label","shape":["batch"],"dtype":"i32"}],"operators":[)" + operators + "]}";
}

// x [4, 8] -> fc1 -> fc2 -> loss; both linear 8 -> 8 without bias, so that a whole activation has 4 * 8 * 4 = 128 bytes
// and a weight 8 * 8 * 4 = 256.
inline const std::string two_linear_layers = R"({"format":"ffgraph/1","name":"two","batch_size":4,
  "inputs":[{"name":"x","shape":["batch",8],"dtype":"f32"},{"name":"label","shape":["batch"],"dtype":"i32"}],
  "operators":[
    {"name":"fc1","type":"linear","inputs":["x"],"attributes":{"out_features":8,"bias":false}},
    {"name":"fc2","type":"linear","inputs":["fc1"],"attributes":{"out_features":8,"bias":false}},
    {"name":"loss","type":"softmax_cross_entropy","inputs":["fc2","label"]}]})";

}  // namespace ff
