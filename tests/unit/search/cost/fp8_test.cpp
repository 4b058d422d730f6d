// Products in fp8, as TransformerEngine has them: which ones, what they take, and what is kept.
#include <catch2/catch.hpp>

#include "common/task_graph/task_graph.h"
#include "search/cost/analytic.h"
#include "search/settings/prediction.h"
#include "tests/support/gated_transformers.h"
#include "tests/support/large_model_costs.h"

namespace ff {
namespace {

// Products in fp8 take half of their time.
Topology eight_devices_with_fp8() {
  Topology topology = load_topology(FF_SOURCE_DIR "/topologies/dgx-h100-1.json");
  topology.models[0].efficiency.products = {{1}, {1}, {{1}}, 1, 2};
  return topology;
}

OperatorId operator_named(const Graph& graph, const std::string& name) {
  for (const OperatorId op : graph.operator_ids())
    if (graph.operators[op].name == name) return op;
  FAIL("no operator " << name);
  return -1;
}

}  // namespace

TEST_CASE(
    "products with weights are in fp8, but for the loss's and the router's; a gated layer's input is converted "
    "once") {
  const FrameworkConventions conventions = conventions_of(parse_parallelism("framework=megatron,fp8=on"));
  const Graph dense = gated_layers(), experts = layers_of_experts();
  const auto bytes_of = [&](const Graph& graph, const std::string& name) {
    const std::optional<Fp8Use> use = fp8_operators(graph, conventions)[operator_named(graph, name)];
    return use ? use->input_bytes : -1;
  };
  CHECK(bytes_of(dense, "layer1.attention") == 1);  // behind a norm
  CHECK(bytes_of(dense, "layer1.projection") == 4);
  CHECK(bytes_of(dense, "layer1.gate") + bytes_of(dense, "layer1.up") == 1);
  CHECK(bytes_of(dense, "layer1.down") == 4);
  CHECK(bytes_of(dense, "output") == -1);
  CHECK(bytes_of(dense, "layer1.norm1") == -1);
  CHECK(bytes_of(experts, "layer1.gate") == -1);  // the router
  CHECK(bytes_of(experts, "layer1.experts.down") == 4);
  for (const std::optional<Fp8Use>& use : fp8_operators(dense, {})) CHECK(!use);
}

// A product [4, 8] x [8, 8]; a byte takes a nanosecond, an operation a microsecond.
TEST_CASE("in fp8 a product takes less, and inputs, weights and gradients are converted") {
  const Graph graph = parse_graph(
      parse_json(R"({"format":"ffgraph/1","name":"n","batch_size":4,"inputs":[{"name":"x","shape":["batch",8],)"
                 R"("dtype":"f32"},{"name":"label","shape":["batch"],"dtype":"i32"}],"operators":[)"
                 R"({"name":"fc","type":"linear","inputs":["x"],"attributes":{"out_features":8,"bias":false}},)"
                 R"({"name":"loss","type":"softmax_cross_entropy","inputs":["fc","label"]}]})",
                 "graph"),
      4, DataType::bf16);
  DeviceModel model;
  model.peak_tflops = 1e6;
  model.peak_bf16_tflops = 1e-6;
  model.memory_gb_per_s = 1;
  model.efficiency.products = {{1}, {1}, {{1}}, 1, 2};
  const OperatorDefinition& definition = *graph.operators[0].definition;
  FrameworkConventions conventions;
  conventions.fp8 = true;
  conventions.fp8_weight_bytes = 0.5;
  const auto us = [&](Phase phase, const KernelUse& use) {
    return analytic_kernel_us(model, definition, definition.whole(), phase, use, Precision::bf16, conventions);
  };
  const double product_us = 2.0 * 4 * 8 * 8;
  CHECK(us(Phase::forward, {true, 0}) == Approx(product_us));
  CHECK(us(Phase::forward, {true, 0, true, 4}) == Approx(product_us / 2 + 1e-3 * (4 * 8 * 4 + 8 * 8 * 0.5)));
  CHECK(us(Phase::forward, {true, 0, true, 0}) == Approx(product_us / 2 + 1e-3 * 8 * 8 * 0.5));
  CHECK(us(Phase::backward, {true, 0, true, 4}) == Approx(2 * product_us / 2 + 1e-3 * 4 * 8 * 4));
  model.efficiency.products->fp8 = 0;
  model.name = "chip";
  CHECK_THROWS_WITH(us(Phase::forward, {true, 0, true, 4}),
                    Catch::StartsWith("fp8=on: device model \"chip\" has no rate of products in fp8"));
  model.efficiency.products.reset();
  CHECK_THROWS_WITH(us(Phase::forward, {true, 0, true, 4}), Catch::Contains("has no rate of products in fp8"));
}

TEST_CASE("tensor parallelism gathers for products in fp8 half of the bytes, and sums as many as in bf16") {
  const Graph graph = gated_layers();
  const Topology topology = eight_devices_with_fp8();
  const auto longest = [&](const std::string& fp8, CollectiveKind kind) {
    Parallelism parallelism = parse_parallelism("tp=4,dp=2,micro_batch=8,framework=megatron,fp8=" + fp8);
    plan_of(parallelism, graph, topology);  // completes it
    const SimulatedSettings settings(parallelism, graph, topology, analytic_bf16_adamw());
    SimulatedSettings::Iteration one(settings, 1);
    const Evaluator::Details details = one.simulated();
    Nanoseconds result = 0;
    for (const int t : details.tasks.tasks.indices()) {
      const Task& task = details.tasks.tasks[t];
      if (task.kind != TaskKind::activation_collective || details.tasks.collective_kind(task) != kind) continue;
      if (one.evaluator().builder().edges()[task.edge].consumer == operator_named(graph, "output")) continue;
      result = std::max(result, details.costs.duration[t]);
    }
    return static_cast<double>(result);
  };
  CHECK(longest("on", CollectiveKind::reduce_scatter) == longest("off", CollectiveKind::reduce_scatter));
  CHECK(longest("on", CollectiveKind::all_gather) < 0.75 * longest("off", CollectiveKind::all_gather));
}

// Two layers, whose weights are 4 x 1024^2 (queries, keys, values, projection) and 3 x 2 x 1024^2. A device keeps of 2
// samples of 2,048 the norms' outputs and the gated product, of 1024, 1024 and 2048 channels, in 1 byte an element in
// place of 2; at the peak, behind the last product's backward pass, all of the first layer and the second one's norms.
TEST_CASE("weights are kept in fp8 too, twice, and half of what products in fp8 read") {
  const Graph graph = gated_layers();
  const Topology topology = eight_devices_with_fp8();
  const auto bytes = [&](const std::string& fp8) {
    const std::string settings = "tp=1,dp=8,micro_batch=2,framework=megatron,fp8=";
    return predict_settings(completed(parse_parallelism(settings + fp8), graph, topology), graph, topology,
                            analytic_bf16_adamw())
        .memory_bytes;
  };
  const int64_t weights = 2 * int64_t{10 << 20} * 2, activations = 2 * int64_t{2048} * (4096 + 2048);
  CHECK(bytes("on") - bytes("off") == weights - activations);
  CHECK(bytes("on") - bytes("weights") == weights);
}

TEST_CASE("fp8 is Megatron-LM's, with its flags, and beside bf16") {
  const Topology topology = eight_devices_with_fp8();
  KernelCosts in_f32(topology, CostMode::analytic, {});
  CHECK_THROWS_WITH(in_f32.follow({.fp8 = true}), Catch::StartsWith("fp8=on: what is not in fp8 is in bf16"));
  CHECK_THROWS_WITH(parse_parallelism("fp8=on,framework=fsdp"), Catch::Contains("framework is not megatron"));
  CHECK_THROWS_WITH(parse_parallelism("fp8=on"), Catch::Contains("which ffexec does not"));
  CHECK(!conventions_of(parse_parallelism("framework=megatron")).fp8);
  Parallelism parallelism = parse_parallelism("dp=2,micro_batch=4,framework=megatron,fp8=on");
  CHECK(conventions_of(parallelism, 32).fp8_weight_bytes == 4 / 4.0);  // four micro-batches
  CHECK(to_string(parallelism).ends_with(",fp8=on"));
  parallelism = parse_parallelism("dp=2,micro_batch=4,framework=megatron,fp8=weights");
  CHECK(parallelism.fp8);
  CHECK(conventions_of(parallelism, 32).fp8_weight_bytes == 2 / 4.0);  // transposed alone
  CHECK(to_string(parallelism).ends_with(",fp8=weights"));
}

}  // namespace ff
