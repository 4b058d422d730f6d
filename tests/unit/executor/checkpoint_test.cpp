#include <catch2/catch.hpp>

#include "executor/checkpoint.h"
#include "temporary_directory.h"

namespace ff {
namespace {

Graph one_layer() {
  return parse_graph(parse_json(R"({"format": "ffgraph/1", "name": "small", "batch_size": 2,
    "inputs": [{"name": "x", "shape": ["batch", 3], "dtype": "f32"}, {"name": "label", "shape": ["batch"],
    "dtype": "i32"}],
    "operators": [{"name": "fc", "type": "linear", "inputs": ["x"], "attributes": {"out_features": 2}},
                  {"name": "loss", "type": "softmax_cross_entropy", "inputs": ["fc", "label"]}]})",
                                "small"));
}

std::string with_header(const std::string& header, size_t data_bytes) {
  std::string text;
  for (int byte = 0; byte < 8; ++byte) text += static_cast<char>(header.size() >> (8 * byte) & 0xFF);
  return text + header + std::string(data_bytes, '\0');
}

}  // namespace

TEST_CASE("a checkpoint comes back as it was") {
  const TemporaryDirectory directory;
  const std::string path = directory.path + "/model.safetensors";
  const Graph graph = one_layer();
  const HostTensors weights = {{"fc.weight", {1, 2, 3, 4, 5, 6}}, {"fc.bias", {7, 8}}};
  const HostTensors velocities = {{"fc.weight", {-1, -2, -3, -4, -5, -6}}, {"fc.bias", {-7, -8}}};
  save_checkpoint(path, graph, {weights, {}});
  CHECK(load_checkpoint(path, graph).weights == weights);
  CHECK(load_checkpoint(path, graph).states.empty());
  CHECK(load_checkpoint(path, graph).iterations == 0);
  const std::map<std::string, HostTensors> states = {{"exp_avg", velocities}, {"exp_avg_sq", weights}};
  save_checkpoint(path, graph, {weights, states, 1234, 34});
  CHECK(load_checkpoint(path, graph).states == states);
  CHECK(load_checkpoint(path, graph).updates == 34);
  save_checkpoint(path, graph, {weights, {{"velocity", velocities}}, 1234});
  CHECK(load_checkpoint(path, graph).iterations == 1234);
  CHECK(load_checkpoint(path, graph).weights == weights);
  CHECK(load_checkpoint(path, graph).states.at("velocity") == velocities);
  CHECK(load_checkpoint(path, graph).pytorch.empty());
  const std::string table = R"({"tensors":{"a":{"shape":[2]}}})";  // kept as it is
  save_checkpoint(path, graph, {weights, {}, 5, 5, table});
  CHECK(load_checkpoint(path, graph).pytorch == table);
  CHECK(message_of<MachineError>([&] {
          save_checkpoint("/nowhere/model", graph, {weights, {}});
        }) == "/nowhere/model: cannot create: No such file or directory; nothing was changed");
}

TEST_CASE("what is wrong with a checkpoint") {
  const TemporaryDirectory directory;
  const Graph graph = one_layer();
  const auto load = [&](const std::string& content) {
    const std::string path = directory.write("m", content);
    const std::string message = message_of<InputError>([&] { load_checkpoint(path, graph); });
    return message.rfind(path, 0) == 0 ? message.substr(path.size()) : message;
  };
  const auto fc = [](const std::string& weight) {
    return with_header("{" + weight + R"("fc.bias":{"dtype":"F32","shape":[2],"data_offsets":[24,32]}})", 32);
  };
  CHECK(load(fc(R"("fc.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)")) == "");
  CHECK(
      load(fc(
          R"("__metadata__":{"iterations":"-1"},"fc.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)")) ==
      ": /__metadata__/iterations: found \"-1\", expected a number of iterations");
  CHECK(load("") == ": has 0 bytes, expected a safetensors file");
  CHECK(load("a text file that is not a checkpoint") ==
        ": is not a safetensors file (its header would have 7359009851570397281 bytes)");
  CHECK(load(with_header("{}", 0).substr(0, 9)) == ": is truncated: its header has 2 bytes, the file 9");
  CHECK(load(fc("")) == ": lacks the tensor \"fc.weight\", a parameter of the graph \"small\"");
  CHECK(load(fc(R"("fc.weight":{"dtype":"F16","shape":[2,3],"data_offsets":[0,24]},)")) ==
        ": /fc.weight/dtype: found \"F16\", expected \"F32\"");
  CHECK(load(fc(R"("fc.weight":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]},)")) ==
        ": /fc.weight/shape: found [3, 2], but the graph's parameter fc.weight has shape [2, 3]");
  CHECK(load(fc(R"("fc.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,20]},)")) ==
        ": /fc.weight/data_offsets: span 20 bytes, expected 24");
  CHECK(load(fc(R"("fc.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[16,40]},)")) ==
        ": /fc.weight/data_offsets: the data ends at byte 40, but the file is truncated: it holds 32 bytes of data");
  CHECK(load(fc(R"("fc.wieght":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)")) ==
        ": /fc.wieght: the graph \"small\" has no parameter \"fc.wieght\"; did you mean \"fc.weight\"?");
  CHECK(message_of<InputError>([&] { load_checkpoint("/nowhere/m", graph); }) ==
        "/nowhere/m: cannot open: No such file or directory");
}

}  // namespace ff
