// What frameworks do otherwise than ffexec with gated layers and with experts: products that share their input, tokens
// that are exchanged where they are sorted, and weighted by the experts.
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "search/settings/prediction.h"
#include "tests/support/gated_transformers.h"
#include "tests/support/large_model_costs.h"

namespace ff {
namespace {

Topology eight_devices() { return load_topology(FF_SOURCE_DIR "/topologies/dgx-h100-1.json"); }

struct Simulated {
  // By what is computed, or which operator reads what is exchanged, and the kind of task: the longest.
  std::map<std::pair<std::string, TaskKind>, Nanoseconds> longest;
  int64_t memory_bytes = 0;
};

Simulated simulated(const Graph& graph, const std::string& text) {
  Parallelism parallelism = parse_parallelism(text);
  const Topology topology = eight_devices();
  plan_of(parallelism, graph, topology);  // completes it
  const SimulatedSettings settings(parallelism, graph, topology, analytic_bf16_adamw());
  SimulatedSettings::Iteration one(settings, 1);
  const Evaluator::Details details = one.simulated();
  Simulated result;
  for (const int t : details.tasks.tasks.indices()) {
    const Task& task = details.tasks.tasks[t];
    if (!is_compute(task.kind) && !is_edge_collective(task.kind)) continue;
    const OperatorId op = is_compute(task.kind) ? task.op : one.evaluator().builder().edges()[task.edge].consumer;
    Nanoseconds& longest = result.longest[{graph.operators[op].name, task.kind}];
    longest = std::max(longest, details.costs.duration[t]);
  }
  result.memory_bytes = predict_settings(parallelism, graph, topology, analytic_bf16_adamw()).memory_bytes;
  return result;
}

}  // namespace

TEST_CASE("the two products of a gated layer are found") {
  const Graph dense = gated_layers(), experts = layers_of_experts();
  for (const auto& [graph, name] : {std::pair(&dense, "layer1."), std::pair(&experts, "layer1.experts.")}) {
    const Vector<GatedProducts> found = gated_products(*graph);
    REQUIRE(found.size() == 2);  // a layer's
    const std::string first = graph->operators[found[0].first].name, second = graph->operators[found[0].second].name;
    CHECK(std::set{first, second} == std::set{std::string(name) + "gate", std::string(name) + "up"});
    CHECK(found[0].first < found[0].second);
    CHECK(found[0].input == graph->operators[found[0].first].inputs[0]);
  }
  CHECK(gated_products(load_graph(FF_SOURCE_DIR "/graphs/gpt2-small.json", 1)).empty());
}

TEST_CASE("with a framework the input of a gated layer's products is exchanged once") {
  const std::string settings = "tp=4,dp=2,micro_batch=8,framework=";
  const Graph graph = gated_layers();
  for (const std::string framework : {"megatron", "fsdp", "none"}) {
    CAPTURE(framework);
    Simulated found = simulated(graph, settings + framework);
    for (const TaskKind kind : {TaskKind::activation_collective, TaskKind::gradient_collective}) {
      const Nanoseconds gate = found.longest[{"layer1.gate", kind}], up = found.longest[{"layer1.up", kind}];
      CHECK(std::max(gate, up) > 1000);
      CHECK((framework == "none" ? gate == up : std::min(gate, up) == 1));
    }
  }
}

// Megatron-LM has one product, and so one gradient of its input; FSDP adds up two.
TEST_CASE("the gradients of joined products' input need no sum") {
  const Graph graph = gated_layers();
  const auto backward = [&](const std::string& framework, const std::string& norm) {
    Simulated found = simulated(graph, "tp=1,dp=8,micro_batch=2,framework=" + framework);
    return found.longest[{norm, TaskKind::backward}];
  };
  CHECK(backward("megatron", "layer1.norm2") == backward("megatron", "layer1.norm1"));
  CHECK(backward("fsdp", "layer1.norm2") > backward("fsdp", "layer1.norm1"));
}

TEST_CASE("tokens of experts are sent from where they are sorted, and received where they are sorted again") {
  const Graph graph = layers_of_experts();
  Simulated own = simulated(graph, "tp=1,dp=8,ep=4,micro_batch=2,framework=none"),
            framework = simulated(graph, "tp=1,dp=8,ep=4,micro_batch=2,framework=deepspeed");
  for (const std::string name : {"layer1.dispatch", "layer1.experts.in", "layer1.experts.out"})
    CHECK(framework.longest[{name, TaskKind::forward}] < own.longest[{name, TaskKind::forward}]);
}

TEST_CASE("Megatron-LM's experts weight their tokens, which are not kept behind them") {
  const Graph graph = layers_of_experts();
  const std::string settings = "tp=1,dp=8,ep=4,micro_batch=2,framework=megatron";
  Simulated fused = simulated(graph, settings), not_fused = simulated(graph, settings + ",swiglu_fusion=off");
  CHECK(fused.memory_bytes < not_fused.memory_bytes);
  const std::pair combine("layer1.combine", TaskKind::backward), activation("layer1.silu", TaskKind::forward);
  CHECK(fused.longest[combine] < not_fused.longest[combine]);
  CHECK(fused.longest[activation] < not_fused.longest[activation]);
  // Others keep them.
  CHECK(simulated(graph, "tp=1,dp=8,ep=4,micro_batch=2,framework=fsdp").longest[combine] == not_fused.longest[combine]);
}

}  // namespace ff
