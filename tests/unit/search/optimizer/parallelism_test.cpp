#include "search/optimizer/parallelism.h"

#include <catch2/catch.hpp>

#include "tests/support/message_of.h"
#include "tests/support/random_settings.h"

namespace ff {
namespace {

int degree_of(const Graph& graph, const Strategy& strategy, OperatorId op, const std::string& dimension) {
  const auto& dimensions = graph.operators[op].definition->dimensions();
  for (const int d : dimensions.indices())
    if (dimensions[d].name == dimension) return strategy[op].degrees[d];
  return 0;
}

// What the strategy says alone: not which framework's conventions it has.
Parallelism of_strategy(Parallelism settings, const Graph& graph, const Topology& topology) {
  const ParallelPlan plan = plan_of(settings, graph, topology);
  return nearest_parallelism(graph, topology, plan.strategy, plan.settings);
}

}  // namespace

TEST_CASE("the embedding and the loss can have chunks of their own") {
  const Topology topology = committed_topology("p100-2x4");
  const Graph graph = tiny_mixture(8);  // four layers
  Parallelism settings{.tensor = 2, .pipeline = 4, .micro_batch = 2, .layers = {0, 2, 2, 0}};
  const Strategy strategy = plan_of(settings, graph, topology).strategy;
  const Vector<OperatorId> layers = transformer_layers(graph);
  const auto is_on = [&](OperatorId op, DeviceId first) {
    return strategy[op].devices[0] >= first && strategy[op].devices[0] < first + 2;
  };
  CHECK(is_on(0, 0));                                    // the embedding
  CHECK(is_on(1, 2));                                    // the first layer
  CHECK(is_on(layers[2], 4));                            // the third
  CHECK(is_on(graph.operators.count() - 1, 6));          // the loss
  CHECK(degree_of(graph, strategy, 0, "channel") == 2);  // sums of its rows would cross between stages
  CHECK(degree_of(graph, strategy, 0, "vocabulary") == 1);
  settings.layers = {1, 1, 1, 1};
  CHECK(degree_of(graph, plan_of(settings, graph, topology).strategy, 0, "vocabulary") == 2);
}

TEST_CASE("an operator with another configuration does not change the nearest settings") {
  const Topology topology = committed_topology("p100-2x4");
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/gpt2-small.json", 16);
  Parallelism settings{.tensor = 2, .pipeline = 2, .micro_batch = 2};
  const ParallelPlan plan = plan_of(settings, graph, topology);
  int changed = 0;
  for (const OperatorId op : graph.operator_ids()) {
    if (op % 7 != 3 && graph.operators[op].definition->type() != "multi_head_attention") continue;
    Strategy strategy = plan.strategy;
    strategy[op] = single_device(graph, 0)[op];
    if (strategy[op] == plan.strategy[op]) continue;
    CAPTURE(graph.operators[op].name);
    CHECK(nearest_parallelism(graph, topology, strategy, plan.settings) == settings);
    ++changed;
  }
  CHECK(changed > 12);
}

TEST_CASE("stages can have different numbers of data-parallel groups") {
  const Topology topology = committed_topology("p100-2x4");
  const Graph graph = tiny_tied_transformer(16);  // four layers
  Parallelism settings = parse_parallelism("stage_dp=4:2:2,micro_batch=2");
  const ParallelPlan plan = plan_of(settings, graph, topology);
  CHECK(settings.pipeline == 3);
  CHECK(settings.data == 4);
  CHECK(plan.settings.micro_batches == 2);
  const Vector<OperatorId> layers = transformer_layers(graph);
  const auto is_on = [&](OperatorId op, const Vector<DeviceId>& devices) {
    return plan.strategy[op].devices == devices;
  };
  CHECK(is_on(layers[1] - 1, {0, 1, 2, 3}));
  CHECK(is_on(layers[1], {4, 5}));
  CHECK(is_on(layers[3], {6, 7}));
  CHECK(degree_of(graph, plan.strategy, layers[1] - 1, "sample") == 4);
  CHECK(degree_of(graph, plan.strategy, layers[3], "sample") == 2);
  CHECK(nearest_parallelism(graph, topology, plan.strategy, plan.settings) == settings);
  CHECK(parse_parallelism(to_string(settings)) == settings);
  // A framework's stages are equal.
  const Parallelism equal = nearest_parallelism(graph, topology, plan.strategy, plan.settings, StageWidths::equal);
  CHECK(equal.stage_data.empty());
  CHECK(equal.pipeline == 2);
  Parallelism ends = parse_parallelism("stage_dp=1:6:1,micro_batch=1,layers=0:4:0");
  const Graph of_twelve = tiny_tied_transformer(12);
  const ParallelPlan with_ends = plan_of(ends, of_twelve, topology);
  CHECK(nearest_parallelism(of_twelve, topology, with_ends.strategy, with_ends.settings) == ends);
  CHECK(parse_parallelism("stage_dp=2:2") == parse_parallelism("pp=2,dp=2"));
  // Where the groups of the widest stage do not divide the batch, equal stages are near.
  CHECK(nearest_parallelism(graph, topology, with_ends.strategy, with_ends.settings).stage_data.empty());
  for (const auto& [text, message] :
       {std::pair("stage_dp=4:2,pp=3", "pp=3: stage_dp=4:2 has 2 stages"),
        {"stage_dp=4:2,dp=3", "dp=3: the largest of stage_dp=4:2 is 4"},
        {"stage_dp=4:2,vp=2", "have one chunk of layers, vp=1"},
        {"stage_dp=4:2,ep=2", "experts are not divided (ep, etp)"},
        {"stage_dp=4:2,framework=megatron", "framework=megatron has equally many"},
        {"stage_dp=4:0", "stage_dp: found \"0\", expected a number from 1"},
        {"stage_dp=4:2", "are 6 devices, the topology has 8"},
        {"stage_dp=5:3", "the batch of 16 samples is not divisible by dp=5"},
        {"stage_dp=4:3:1,micro_batch=1", "stage_dp: 3 groups do not divide the 4 samples of a micro-batch"}})
    CHECK_THAT(message_of<InputError>([&, text = text] {
                 Parallelism wrong = parse_parallelism(text);
                 plan_of(wrong, graph, topology);
               }),
               Catch::Contains(message));
}

TEST_CASE("nothing runs beside a kernel that the host waits for") {
  for (const auto& [text, message] :
       {std::pair("launch_blocking=on", "and framework is none of these"),
        {"launch_blocking=on,framework=fsdp", "and framework is none of these"},
        {"launch_blocking=on,framework=megatron,overlap_grad_reduce=on", "no collective runs beside a kernel"},
        {"launch_blocking=on,framework=deepspeed,sharding=parameters", "no collective runs beside a kernel"}})
    CHECK_THAT(message_of<InputError>([text = text] { parse_parallelism(text); }), Catch::Contains(message));
  const Parallelism blocking = parse_parallelism("tp=2,dp=4,micro_batch=1,framework=megatron,launch_blocking=on");
  CHECK(parse_parallelism(to_string(blocking)).blocking_launches);
  CHECK(conventions_of(blocking).blocking_launches);
  CHECK(!conventions_of(blocking).overlaps_input_gradients);
  CHECK(conventions_of(parse_parallelism("tp=2,dp=4,framework=megatron")).overlaps_input_gradients);
  CHECK(!overlaps_reductions(blocking));
  CHECK(keys_of_parallelism("launch_blocking=on").contains("overlap_grad_reduce"));
  CHECK(!keys_of_parallelism("launch_blocking=off").contains("overlap_grad_reduce"));
}

TEST_CASE("settings with chunks without layers are read from their strategies") {
  const Topology topology = committed_topology("p100-2x4");
  for (const Graph& graph : {tiny_mixture(8), tiny_tied_transformer(8)})
    for (const Vector<int>& layers :
         {Vector<int>{0, 2, 2, 0}, {0, 1, 2, 1}, {2, 1, 1, 0}, {0, 4, 0, 0}, {1, 1, 1, 1}, {1, 2, 1, 0}}) {
      for (const auto& [pipeline, chunks] : {std::pair(4, 1), {2, 2}}) {
        Parallelism settings{.tensor = 2, .pipeline = pipeline, .chunks = chunks, .micro_batch = 1, .layers = layers};
        CAPTURE(graph.name, to_string(settings));
        if (layers == Vector<int>{0, 4, 0, 0}) {
          CHECK_THAT(message_of<InputError>([&] { plan_of(settings, graph, topology); }),
                     Catch::Contains("layers: found 0 between other chunks"));
          continue;
        }
        const Parallelism found = of_strategy(settings, graph, topology);
        CHECK(found.pipeline == pipeline);
        CHECK(found.chunks == chunks);
        CHECK(layers_of_chunks(found, 4) == layers);
      }
    }
}

TEST_CASE("one or two chunks more than layers leave the embedding and the loss alone") {
  CHECK(layers_of_chunks({.pipeline = 4, .chunks = 2}, 7) == Vector<int>{0, 1, 1, 1, 1, 1, 1, 1});
  CHECK(layers_of_chunks({.pipeline = 4, .chunks = 2}, 6) == Vector<int>{0, 1, 1, 1, 1, 1, 1, 0});
  const Topology topology = committed_topology("p100-2x4");
  Parallelism settings{.pipeline = 8, .micro_batch = 1};
  CHECK_THAT(message_of<InputError>([&] { plan_of(settings, tiny_mixture(8), topology); }),
             Catch::Contains("pp x vp = 8: there are only 4 layers"));
  settings = {.pipeline = 4, .micro_batch = 1};
  CHECK_THAT(message_of<InputError>([&] { plan_of(settings, tiny_transformer(8), topology); }),
             Catch::Contains("there are only 2 layers"));
  settings = {.pipeline = 2, .micro_batch = 1, .layers = {0, 2}};
  CHECK_THAT(message_of<InputError>([&] { plan_of(settings, tiny_transformer(8), topology); }),
             Catch::Contains("which are known with 3 layers and more, the model has 2"));
}

}  // namespace ff
