#include "search/optimizer/annotations.h"

#include <catch2/catch.hpp>

#include "tests/support/committed_files.h"
#include "tests/support/message_of.h"
#include "tests/support/random_annotations.h"
#include "tests/support/random_network.h"
#include "tests/support/random_topology.h"
#include "tests/support/search_problem.h"

using namespace ff;

namespace {

struct MoeTiny {
  Graph graph = load_graph(FF_SOURCE_DIR "/graphs/moe-tiny.json");
  Topology topology = load_topology(FF_SOURCE_DIR "/topologies/p100-1x4.json");

  Annotations parse(const std::string& list) const {
    return parse_annotations(parse_json(R"({"format": "ffannotations/1", "annotations": [)" + list + "]}", "a.json"),
                             graph, topology);
  }
  std::string refused(const std::string& list) const {
    return message_of<InputError>([&] { parse(list); });
  }
  OperatorId op(const std::string& name) const {
    for (const OperatorId id : graph.operator_ids())
      if (graph.operators[id].name == name) return id;
    return -1;
  }
};

}  // namespace

TEST_CASE("annotations of operators, tensors and parameters decide degrees and devices") {
  const MoeTiny moe;
  const Annotations annotations = moe.parse(R"(
    {"operators": ["layer[1-2].norm1", "norm"], "split": {"sample": 4}},
    {"tensors": "layer1.attention", "split": {"channel": 2}},
    {"parameters": "layer2.gate.weight", "replicate": true},
    {"operators": "layer2.expand", "shard": {"dimension": "expert", "devices": "3-0"}},
    {"operators": "layer2.contract", "degrees": {"expert": 2, "sample": 2}, "devices": ["node0.gpu0", 1, 2, 3]},
    {"tensors": "layer1.contract", "replicate": true},
    {"operators": "loss", "replicate": true})");
  const auto degrees = [&](const std::string& name) { return annotations.find(moe.op(name))->degrees; };
  CHECK(annotations.find(moe.op("output")) == nullptr);
  CHECK(degrees("layer2.norm1") == Degrees{4, 0});
  CHECK(degrees("norm") == Degrees{4, 0});
  CHECK(degrees("layer1.attention") == Degrees{0, 0, 2});  // the heads are what splits the tensor's channels
  CHECK(degrees("layer2.gate") == Degrees{0, 0, 1, 1});
  CHECK(degrees("layer2.expand") == Degrees{1, 4, 1});
  CHECK(annotations.find(moe.op("layer2.expand"))->devices == Vector<DeviceId>{3, 2, 1, 0});
  CHECK(degrees("layer2.contract") == Degrees{2, 2, 1, 1});
  CHECK(degrees("layer1.contract") == Degrees{1, 1, 1, 0});  // a contracted dimension does not split the output
  CHECK(degrees("loss")[0] == 1);
  CHECK(annotations.text(moe.op("layer2.expand")) == "a.json: /annotations/3");

  CHECK_FALSE(annotations.find(moe.op("layer2.gate"))->decides());
  CHECK(annotations.find(moe.op("layer1.attention"))->decides());
  CHECK(annotations.find(moe.op("loss"))->decides());
  CHECK(annotations.allow(moe.op("layer1.attention"), {{2, 1, 2}, {0, 1, 2, 3}}));
  CHECK_FALSE(annotations.allow(moe.op("layer1.attention"), {{4, 1, 1}, {0, 1, 2, 3}}));
  CHECK_FALSE(annotations.allow(moe.op("layer2.expand"), {{1, 4, 1}, {0, 1, 2, 3}}));
  CHECK(annotations.allow(moe.op("output"), {{1, 1, 1, 1}, {0}}));

  const auto complete = [&](const std::string& name) {
    return completed(*annotations.find(moe.op(name)), *moe.graph.operators[moe.op(name)].definition, 4);
  };
  CHECK(complete("layer1.attention") == Configuration{{2, 1, 2}, {0, 1, 2, 3}});
  CHECK(complete("layer2.expand") == Configuration{{1, 4, 1}, {3, 2, 1, 0}});
}

TEST_CASE("the example of docs/formats.md is about GShard's transformer") {
  const std::string text = committed_text("docs/formats.md"), fence = "```json\n";
  const size_t begin = text.find(fence, text.find("## Annotations")) + fence.size();
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/gshard-moe-128e-12l.json");
  const Annotations annotations =
      parse_annotations(parse_json(text.substr(begin, text.find("```", begin) - begin), "docs/formats.md"), graph,
                        load_topology(FF_SOURCE_DIR "/topologies/p100-2x4.json"));
  int annotated = 0;
  for (const OperatorId op : graph.operator_ids()) annotated += annotations.find(op) != nullptr;
  CHECK(annotated == 12 + 6 + 6 + 2);
}

TEST_CASE("a name comes before a star where the two annotations disagree") {
  const MoeTiny moe;
  const Annotations annotations = moe.parse(R"(
    {"operators": "*", "split": {"sample": 2}},
    {"operators": "layer1.*", "split": {"sample": 2}},
    {"operators": "layer1.expand", "split": {"sample": 4}},
    {"operators": "layer1.contract", "split": {"channel": 2}})");
  CHECK(annotations.find(moe.op("layer1.expand"))->degrees[0] == 4);
  CHECK(annotations.find(moe.op("layer1.contract"))->degrees[0] == 2);
  CHECK(annotations.find(moe.op("layer1.contract"))->degrees[2] == 2);
  CHECK(annotations.find(moe.op("loss"))->degrees[0] == 2);
}

TEST_CASE("annotations that contradict each other are an error that names both") {
  const MoeTiny moe;
  CHECK(moe.refused(R"({"operators": "norm", "split": {"sample": 4}}, {"tensors": "norm", "split": {"sample": 2}})") ==
        "a.json: /annotations/1: splits \"sample\" of norm 2 ways, but /annotations/0 splits it 4 ways");
  CHECK(moe.refused(R"({"operators": "norm", "split": {"length": 4}}, {"operators": "norm", "replicate": true})") ==
        "a.json: /annotations/1: splits \"length\" of norm 1 way, but /annotations/0 splits it 4 ways");
  CHECK(moe.refused(R"({"operators": "layer*", "split": {"sample": 4}}, {"operators": "*1", "split": {"sample": 2}})")
            .find("a.json: /annotations/1: splits \"sample\" of layer1.norm1 2 ways, but /annotations/0") == 0);
  CHECK(moe.refused(R"({"operators": "norm", "shard": {"dimension": "sample", "devices": "0-1"}},
                       {"operators": "norm", "shard": {"dimension": "sample", "devices": "2-3"}})") ==
        "a.json: /annotations/1: puts norm on devices [2,3], but /annotations/0 puts it on devices [0,1]");
  CHECK(moe.refused(R"({"parameters": "layer2.gate.weight", "replicate": true},
                       {"operators": "layer2.gate", "split": {"channel": 2}})") ==
        "a.json: /annotations/1: splits \"channel\" of layer2.gate 2 ways, but /annotations/0 splits it 1 way");
}

TEST_CASE("annotations that name what is not there are an error with a place and a suggestion") {
  const MoeTiny moe;
  const auto refused = [&](const std::string& annotation, const std::string& expected) {
    CHECK(moe.refused(annotation) == "a.json: /annotations/0" + expected);
  };
  refused(R"({"operators": "layer1.nrm1", "replicate": true})",
          "/operators: unknown operator \"layer1.nrm1\"; did you mean \"layer1.norm1\"?");
  refused(R"({"operators": ["norm", "lose*"], "replicate": true})",
          "/operators/1: no operator's name matches \"lose*\"; did you mean \"loss\"?");
  refused(R"({"tensors": "layer2.gating:wight", "replicate": true})",
          "/tensors: unknown tensor \"layer2.gating:wight\"; did you mean \"layer2.gating:weight\"?");
  refused(R"({"tensors": "token", "split": {"sample": 2}})",
          "/tensors: \"token\" is an input of the graph, which is present wherever it is needed; annotate the "
          "operators that read it");
  refused(R"({"parameters": "norm.wait", "replicate": true})",
          "/parameters: unknown parameter \"norm.wait\"; did you mean \"norm.weight\"?");
  refused(R"({"parameters": "norm.weight", "split": {"channel": 2}})",
          ": a parameter can be replicated; how it is split follows from the operators that have it: annotate these");
  refused(R"({"operators": "norm", "split": {"lenght": 2}})",
          "/split/lenght: unknown parallelizable dimension of norm (layer_norm): \"lenght\"; did you mean \"length\"?");
  refused(R"({"operators": "layer2.expand", "split": {"expert": 8}})",
          "/split/expert: found 8, but dimension \"expert\" of layer2.expand has size 4");
  refused(R"({"operators": "layer2.expand", "shard": {"dimension": "expert", "devices": "0-3 x2"}})",
          "/shard/devices: found 8, but dimension \"expert\" of layer2.expand has size 4");
  refused(R"({"operators": "norm", "shard": {"dimension": "sample", "devices": "0-4"}})",
          "/shard/devices: device 4 is not there: the topology has devices 0 to 3");
  refused(R"({"operators": "norm", "degrees": {"sample": 4}, "devices": "0-1"})",
          "/devices: has 2 devices, expected 4: one for each task of norm");
  refused(R"({"operators": "norm", "degrees": {"sample": 4}})", ": \"devices\" is missing");
  refused(R"({"operators": "norm", "replicate": false})", "/replicate: found false, expected true");
  refused(R"({"operators": "norm", "tensors": "norm", "replicate": true})",
          ": expected one of \"operators\", \"tensors\" and \"parameters\"");
  refused(R"({"operators": "norm"})",
          ": expected one of \"split\", \"replicate\", \"shard\", and \"degrees\" with \"devices\"");
  refused(R"({"operator": "norm"})", "/operator: unknown key of an annotation; did you mean \"operators\"?");
  refused(R"({"operators": "norm", "split": {}})", "/split: is empty, expected a dimension and its degree");
}

TEST_CASE("what is searched keeps to random annotations", "[slow]") {
  for (int round = 0; round < 300; ++round) {
    RandomSource random(static_cast<uint32_t>(round));
    const int devices = static_cast<int>(random.between(1, 6));
    Graph graph = random_graph(random);
    Topology topology = random_topology(random, devices);
    SearchProblem network(std::move(graph), std::move(topology));
    const Json file = random_annotations(network.graph, devices, random);
    CAPTURE(round, file.dump());
    const Annotations annotations =
        parse_annotations(parse_json(file.dump(), "a.json"), network.graph, network.topology);
    const Problem problem{network.graph, network.topology, network.kernels, &annotations};
    const SearchSpace space(network.graph, network.topology, false, &annotations);
    Evaluator evaluator(problem);
    const auto keeps = [&](const Strategy& strategy) {
      for (const OperatorId op : strategy.indices()) {
        CHECK(annotations.allow(op, strategy[op]));
        CHECK(strategy[op].parts() == parts_of(strategy[op].degrees));
        for (const int d : strategy[op].degrees.indices())
          CHECK(strategy[op].degrees[d] <= network.graph.operators[op].definition->dimensions()[d].size);
      }
    };
    RandomStream stream(static_cast<uint64_t>(round), 0);
    Strategy current = space.random_strategy(stream);
    keeps(current);
    for (const ProposalKind kind : {ProposalKind::paper, ProposalKind::mixed}) {
      const ProposalSource source(kind, network.graph, network.topology, space);
      for (int i = 0; i < 100; ++i) {
        const Vector<Change> changes = source.draw(current, stream);
        REQUIRE_FALSE(changes.empty());
        for (const Change& change : changes) current[change.op] = change.configuration;
      }
      keeps(current);
    }
    for (const Algorithm& algorithm : algorithms()) {
      CAPTURE(algorithm.name);
      AlgorithmSettings settings{.search = {.proposals = 60, .seed = static_cast<uint64_t>(round)}};
      settings.check_local = algorithm.name == "mcmc" && round % 10 == 0;
      // Laying out the space of a large problem takes long.
      if (algorithm.name == "exhaustive" && (devices > 2 || round % 4 > 0)) continue;
      try {
        const AlgorithmResult result = algorithm.run({.evaluator = evaluator,
                                                      .space = space,
                                                      .settings = settings,
                                                      .control = {network.stop},
                                                      .thorough = algorithm.name == "exhaustive"});
        keeps(result.strategy);
      } catch (const NotApplicable&) {}
    }
  }
}
