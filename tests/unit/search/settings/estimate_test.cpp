#include "search/settings/estimate.h"

#include <catch2/catch.hpp>

#include "tests/support/committed_files.h"
#include "tests/support/large_model_costs.h"

namespace ff {
namespace {

void expect_near(double found, double expected, double tolerance) {
  CHECK(found <= (1 + tolerance) * expected);
  CHECK(found >= (1 - tolerance) * expected);
}

void expect_as_of_all_layers(const std::string& settings, const Graph& graph, const Topology& topology) {
  CAPTURE(settings);
  Parallelism parallelism = parse_parallelism(settings);
  complete(parallelism, graph.batch_size, topology.devices.count());
  const CostOptions costs = analytic_bf16_adamw();
  KnownFolds folds(topology);
  FewerLayers fewer(graph);
  const ShapeCosts found = costs_of_shape(parallelism, fewer, topology, costs, folds),
                   all = costs_of_shape(parallelism, graph, topology, costs, folds);
  REQUIRE(found.stage == all.stage);
  // What few layers synchronize may hide behind the embedding's gradients, what many do does not.
  constexpr double times = 0.01, memory = 0.02, with_synchronization = 0.06;
  expect_near(static_cast<double>(found.makespan), static_cast<double>(all.makespan), with_synchronization);
  expect_near(static_cast<double>(found.busiest), static_cast<double>(all.busiest), times);
  expect_near(static_cast<double>(found.computing), static_cast<double>(all.computing), times);
  expect_near(static_cast<double>(found.busy), static_cast<double>(all.busy), times);
  for (const int s : all.stages.indices()) {
    CHECK(found.stages[s].layers == all.stages[s].layers);
    expect_near(found.stages[s].busy_with(5), all.stages[s].busy_with(5), times);
  }
  for (const DeviceId device : all.stage.indices()) {
    expect_near(static_cast<double>(found.one[device]), static_cast<double>(all.one[device]), memory);
    expect_near(static_cast<double>(found.further[device]), static_cast<double>(all.further[device]), memory);
  }
}

}  // namespace

TEST_CASE("what a shape costs is known from fewer layers") {
  const Topology topology = committed_topology("dgx-a100-2");
  const Graph gpt = load_graph(FF_SOURCE_DIR "/graphs/gpt-3.6b.json", 32);
  for (const char* const settings :
       {"tp=1,pp=1,micro_batch=1", "tp=8,pp=1,micro_batch=2,recompute=full,sharding=optimizer",
        "tp=2,pp=1,micro_batch=1,sharding=parameters,framework=fsdp", "tp=4,pp=2,micro_batch=1,framework=megatron",
        "tp=2,pp=4,micro_batch=1,recompute=elementwise", "tp=2,pp=1,micro_batch=1,sharding=gradients",
        "tp=4,pp=4,micro_batch=2,sharding=optimizer,recompute=norms"})
    expect_as_of_all_layers(settings, gpt, topology);
  const Graph mixture = load_graph(FF_SOURCE_DIR "/graphs/mixtral-8x22b.json", 32);
  for (const char* const settings : {"tp=2,pp=1,micro_batch=1,ep=8,etp=1,framework=megatron",
                                     "tp=2,pp=2,cp=2,micro_batch=1,ep=4,etp=1,sharding=optimizer,framework=megatron",
                                     "tp=4,pp=4,micro_batch=1,framework=megatron,sharding=optimizer,recompute=norms",
                                     "tp=2,pp=4,micro_batch=1,ep=2"})
    expect_as_of_all_layers(settings, mixture, topology);
}

}  // namespace ff
