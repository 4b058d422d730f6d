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
