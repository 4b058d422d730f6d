// What one device exchanges, found without listing the others, is its share of what all exchange.
#include "common/task_graph/own_edges.h"

#include <catch2/catch.hpp>
#include <map>

#include "common/task_graph/task_graph.h"
#include "tests/support/random_network.h"

using namespace ff;

namespace {

EdgeExchanges exchanges_of(const Graph& graph, const Edge& edge, const Strategy& strategy, int least_size) {
  return find_exchanges(blocks_of(graph, edge, strategy[edge.producer].degrees, strategy[edge.consumer].degrees),
                        least_size);
}

// x [4, 8] -> a (linear) -> b (linear) -> loss.
Graph linear_pair() {
  return parse_graph(parse_json(R"({"format":"ffgraph/1","name":"two","batch_size":4,
    "inputs":[{"name":"x","shape":["batch",8],"dtype":"f32"},{"name":"label","shape":["batch"],"dtype":"i32"}],
    "operators":[
      {"name":"a","type":"linear","inputs":["x"],"attributes":{"out_features":8}},
      {"name":"b","type":"linear","inputs":["a"],"attributes":{"out_features":8}},
      {"name":"loss","type":"softmax_cross_entropy","inputs":["b","label"]}]})",
                                "graph"));
}

}  // namespace

// a by channel in two parts, b by sample in two: each part of b reads half of the samples of each half of the channels,
// 2 x 4 floats.
TEST_CASE("a part's pairs are those with a block of its own at an end") {
  const Graph graph = linear_pair();
  const Strategy strategy = {{{1, 2, 1}, {0, 1}}, {{2, 1, 1}, {0, 1}}, {{1, 1}, {0}}};
  const Edge edge = edges_of(graph)[0];
  CHECK(pairs_of_parts(graph, edge, strategy, {{0}, {}}) ==
        BlockPairs{{0, 0, 32, false, false}, {0, 1, 32, false, false}});
  CHECK(pairs_of_parts(graph, edge, strategy, {{}, {1}}) ==
        BlockPairs{{0, 1, 32, false, false}, {1, 1, 32, false, false}});
  CHECK(pairs_of_parts(graph, edge, strategy, {{0}, {0}}) ==
        BlockPairs{{0, 0, 32, false, false}, {1, 0, 32, false, false}, {0, 1, 32, false, false}});
  CHECK(pairs_of_parts(graph, edge, strategy, {{}, {}}).empty());
}

TEST_CASE("pairs and collectives of one device are its share of those of all, on random networks") {
  int with_collectives = 0, without = 0, partial = 0, shared = 0;
  for (uint32_t seed = 0; seed < 600; ++seed) {
    INFO("seed " << seed);
    RandomSource random(seed);
    const Graph graph = random_graph(random);
    const int devices = 1 + static_cast<int>(seed % 6);
    const Strategy strategy = random_strategy(graph, devices, random);
    const Vector<int> alike = TaskGraphBuilder(graph).alike();
    const int least_size = seed % 2 == 0 ? least_collective_size : 2;
    EdgeCollectives collectives(graph, strategy, alike, least_size);
    std::map<const EdgeExchanges*, int> users;
    for (const Edge& edge : edges_of(graph)) {
      const Configuration &producer = strategy[edge.producer], &consumer = strategy[edge.consumer];
      const EdgeExchanges exchanges = exchanges_of(graph, edge, strategy, least_size);
      const Vector<Collective> expected = collectives_of(exchanges, producer.devices, consumer.devices);
      const EdgeCollectives::Found& found = collectives.of(edge);
      CHECK(found.collectives == expected);
      CHECK(found.exchanges->of_consumer == exchanges.of_consumer);
      CHECK(found.exchanges->of_producer == exchanges.of_producer);
      shared += ++users[found.exchanges.get()] > 1;
      const BlockPairs all = intersect_blocks(blocks_of(graph, edge, producer.degrees, consumer.degrees));
      for (DeviceId device = 0; device < devices; ++device) {
        const Vector<int32_t> producers = parts_on(producer, device), consumers = parts_on(consumer, device);
        BlockPairs own;
        for (const BlockPair& pair : all)
          if (producer.devices[pair.producer_part] == device || consumer.devices[pair.consumer_part] == device)
            own.push_back(pair);
        CHECK(pairs_of_parts(graph, edge, strategy, {producers, consumers}) == own);
        for (const BlockPair& pair : own) partial += pair.partial;
        if (producers.empty() && consumers.empty()) continue;
        const bool may = may_have_collectives(graph, edge, strategy, {producers, consumers}, least_size);
        if (!expected.empty()) CHECK(may);
        with_collectives += !expected.empty();
        without += !may;
      }
    }
  }
  CHECK(with_collectives > 20);
  CHECK(without > 1000);
  CHECK(partial > 100);
  CHECK(shared > 10);
}
