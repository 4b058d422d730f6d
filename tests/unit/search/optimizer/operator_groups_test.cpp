#include "search/optimizer/operator_groups.h"

#include <catch2/catch.hpp>

using namespace ff;

TEST_CASE("operators that share parameters directly or through others are one layer, in graph order") {
  // a and c share group p, b has its own, d none.
  const Graph graph = parse_graph(parse_json(R"({"format":"ffgraph/1","name":"shared","batch_size":4,
    "inputs":[{"name":"x","shape":["batch",8],"dtype":"f32"},{"name":"label","shape":["batch"],"dtype":"i32"}],
    "operators":[
      {"name":"a","type":"linear","inputs":["x"],"attributes":{"out_features":8},"parameters":"p"},
      {"name":"b","type":"linear","inputs":["a"],"attributes":{"out_features":8}},
      {"name":"c","type":"linear","inputs":["b"],"attributes":{"out_features":8},"parameters":"p"},
      {"name":"d","type":"softmax_cross_entropy","inputs":["c","label"]}]})",
                                             "graph"));
  CHECK(parameter_sharing_layers(graph) == Vector<Vector<OperatorId>>{{0, 2}, {1}, {3}});
  CHECK(colocation_groups(graph) == Vector<int>{0, 1, 0, 0});  // d has no parameters: it lies with c
}

TEST_CASE("operators that share parameters lie together, and those without with the operator before") {
  const Graph rnnlm = load_graph(FF_SOURCE_DIR "/graphs/rnnlm-2step.json");
  const Vector<int> groups = colocation_groups(rnnlm);
  for (size_t op = 0; op < groups.size(); ++op) {
    const std::string& name = rnnlm.operators[op].name;
    const int expected = name.rfind("embedding", 0) == 0 ? 0
                         : name.rfind("lstm1", 0) == 0   ? 1
                         : name.rfind("lstm2", 0) == 0   ? 2
                                                         : 3;
    CHECK(groups[op] == expected);  // losses have no parameters: they lie with output
  }
}
