#include "search/optimizer/baselines/propagate.h"

#include <catch2/catch.hpp>

#include "tests/support/committed_files.h"
#include "tests/support/einsum_experts.h"
#include "tests/support/search_problem.h"

using namespace ff;

namespace {

struct Annotated {
  Annotated(const std::string& graph_name, const std::string& topology_name, const std::string& list)
      : Annotated(load_graph(FF_SOURCE_DIR "/graphs/" + graph_name + ".json"), topology_name, list) {}
  Annotated(Graph graph, const std::string& topology_name, const std::string& list)
      : network(std::move(graph), load_topology(FF_SOURCE_DIR "/topologies/" + topology_name + ".json")),
        annotations(
            parse_annotations(parse_json(R"({"format": "ffannotations/1", "annotations": [)" + list + "]}", "a.json"),
                              network.graph, network.topology)),
        strategy(propagate({network.graph, network.topology, network.kernels, &annotations})) {}

  const Configuration& of(const std::string& name) const {
    for (const OperatorId op : network.graph.operator_ids())
      if (network.graph.operators[op].name == name) return strategy[op];
    throw std::runtime_error(name);
  }

  // "sample 2, head 2"
  std::string split(const std::string& name) const {
    std::string text;
    for (const Operator& op : network.graph.operators) {
      if (op.name != name) continue;
      const auto& dimensions = op.definition->dimensions();
      for (const int d : dimensions.indices())
        if (const int degree = of(name).degrees[d]; degree > 1)
          text += (text.empty() ? "" : ", ") + dimensions[d].name + " " + std::to_string(degree);
    }
    return text;
  }

  SearchProblem network;
  Annotations annotations;
  Strategy strategy;
};

const Vector<DeviceId> four{0, 1, 2, 3};

}  // namespace

TEST_CASE("without annotations everything is data-parallel") {
  for (const char* name : {"lenet", "moe-tiny", "rnnlm-2step"}) {
    SearchProblem network(name, "p100-1x4");
    CHECK(propagate(network.problem) == data_parallel(network.graph, network.topology));
  }
}

TEST_CASE("experts go on where the next layer's are, and all else is split by batch") {
  const Annotated moe("moe-tiny", "p100-1x4", R"(
    {"tensors": "layer2.norm2", "split": {"sample": 4}},
    {"parameters": "layer2.gate.weight", "replicate": true},
    {"operators": "layer2.expand", "split": {"expert": 4}})");
  for (const Operator& op : moe.network.graph.operators) {
    CAPTURE(op.name);
    CHECK(moe.split(op.name) == (op.definition->type() == "expert_linear" ? "expert 4" : "sample 4"));
    CHECK(moe.of(op.name).devices == four);
  }
}

TEST_CASE("GShard's own annotations of experts written with einsum put the experts' layers where the tokens come to") {
  const Annotated experts(parse_graph(parse_json(einsum_experts, "g.json")), "p100-1x4", R"(
    {"operators": "logits", "split": {"G": 4}},
    {"parameters": "logits.weight", "replicate": true},
    {"tensors": "dispatched", "split": {"E": 4, "G": 1}})");
  CHECK(experts.split("logits") == "G 4");
  CHECK(experts.split("gates") == "sample 4");
  CHECK(experts.split("wi") == "E 4");
  CHECK(experts.split("h") == "sample 4");  // the first axis, which are the experts here
  CHECK(experts.split("wo") == "E 4");
  CHECK(experts.split("outputs") == "G 4");
  CHECK(experts.split("loss") == "sample 4");
}

TEST_CASE("a layer split by columns is followed by one split by rows, and the batch is split after the sum") {
  const Annotated moe("moe-tiny", "p100-1x4", R"({"operators": "layer1.expand", "shard": {"dimension": "channel",
    "devices": [2, 3, 0, 1]}})");
  const Vector<DeviceId> as_annotated{2, 3, 0, 1};
  CHECK(moe.split("layer1.contract") == "in_channel 4");
  CHECK(moe.of("layer1.contract").devices == as_annotated);
  CHECK(moe.of("layer1.add2") == Configuration{{4, 1, 1}, as_annotated});
  CHECK(moe.of("layer1.norm2") == Configuration{{4, 1}, as_annotated});
  CHECK(moe.of("loss").devices == as_annotated);
}

TEST_CASE("partial sums become parts of the batch, each within its own group of devices") {
  const Annotated moe("moe-tiny", "p100-1x4", R"({"operators": "layer1.contract", "degrees": {"sample": 2,
    "in_channel": 2}, "devices": [0, 2, 1, 3]})");
  CHECK(moe.of("layer1.add2") == Configuration{{4, 1, 1}, {0, 2, 1, 3}});
  CHECK(moe.of("layer1.expand") == Configuration{{2, 1, 2}, {0, 2, 1, 3}});
}

TEST_CASE("an operator that is not split says nothing about others") {
  const Annotated moe("moe-tiny", "p100-1x4", R"({"operators": "layer1.norm2", "replicate": true})");
  Strategy expected = data_parallel(moe.network.graph, moe.network.topology);
  for (const OperatorId op : expected.indices())
    if (moe.network.graph.operators[op].name == "layer1.norm2") expected[op] = {{1, 1}, {0}};
  CHECK(moe.strategy == expected);
}

TEST_CASE("bytes that an edge moves are those that are not where they are read") {
  const Annotated two("moe-tiny", "p100-1x4", "");
  const Graph& graph = two.network.graph;
  const auto op = [&](const std::string& name) {
    for (const OperatorId id : graph.operator_ids())
      if (graph.operators[id].name == name) return id;
    return -1;
  };
  const OperatorId contract = op("layer1.contract"), expand = op("layer1.expand"), add = op("layer1.add2");
  const int64_t hidden = 16 * 20 * 256 * 4, model = 16 * 20 * 128 * 4;  // bytes
  const auto into_contract = [&](const Configuration& a, const Configuration& b) {
    return moved_bytes(graph, graph.operators[expand].outputs[0], 0, contract, a, b);
  };
  const auto out_of_contract = [&](const Configuration& a, const Configuration& b) {
    return moved_bytes(graph, graph.operators[contract].outputs[0], 1, add, a, b);
  };
  const Configuration by_channel{{1, 1, 4}, four}, by_batch{{4, 1, 1}, four}, rows{{1, 1, 1, 4}, four};
  CHECK(into_contract(by_channel, rows) == 0);
  CHECK(into_contract(by_batch, rows) == 2 * hidden * 3 / 4);  // all-to-all, and back
  CHECK(into_contract(by_channel, {{4, 1, 1, 1}, four}) == 2 * hidden * 3 / 4);
  CHECK(into_contract(by_batch, {{1, 1, 4, 1}, four}) == 2 * hidden * 3);  // all-gather
  CHECK(into_contract({{1, 1, 1}, {0}}, {{1, 1, 1, 1}, {1}}) == 2 * hidden);
  CHECK(out_of_contract(rows, by_batch) == 2 * model * 3);          // reduce-scatter
  CHECK(out_of_contract(rows, {{1, 1, 1}, {0}}) == 2 * model * 3);  // reduce
}

TEST_CASE("every network gets a valid strategy, whatever operator is annotated") {
  for (const std::string& path : committed_json_files("graphs")) {
    CAPTURE(path);
    SearchProblem network(load_graph(path), load_topology(FF_SOURCE_DIR "/topologies/p100-2x4.json"));
    for (const int seed : {0, 1, 2}) {
      const OperatorId op = (seed * 7919) % network.graph.operators.count();
      const OperatorDefinition& definition = *network.graph.operators[op].definition;
      const int d = seed % definition.dimensions().count();
      Vector<std::optional<Annotation>> of_operators(network.graph.operators.size());
      of_operators[op] = Annotation{Degrees(definition.dimensions().size(), 0), std::nullopt, "/annotations/0"};
      of_operators[op]->degrees[d] = static_cast<int>(std::min<int64_t>(8, definition.dimensions()[d].size));
      const Annotations annotations("a.json", std::move(of_operators));
      const Strategy strategy = propagate({network.graph, network.topology, network.kernels, &annotations});
      REQUIRE(strategy.size() == network.graph.operators.size());
      for (const OperatorId each : strategy.indices()) {
        const auto& dimensions = network.graph.operators[each].definition->dimensions();
        REQUIRE(strategy[each].degrees.size() == dimensions.size());
        REQUIRE(strategy[each].parts() == parts_of(strategy[each].degrees));
        for (const int i : dimensions.indices()) CHECK(strategy[each].degrees[i] <= dimensions[i].size);
        for (const DeviceId device : strategy[each].devices) CHECK((device >= 0 && device < 8));
        CHECK(annotations.allow(each, strategy[each]));
      }
      CHECK(propagate({network.graph, network.topology, network.kernels, &annotations}) == strategy);
    }
  }
}
