// Which exchanges are collectives: by hand, and against all pairs of blocks of random strategies.
#include "common/task_graph/collectives.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "common/task_graph/task_graph.h"
#include "tests/support/random_network.h"

using namespace ff;

namespace {

// Two linear layers on [4, 4, 8]: the first without a fused activation, so that it can be split along its input.
const char* const two_layers = R"({"format":"ffgraph/1","name":"t","batch_size":4,
 "inputs":[{"name":"x","shape":["batch",4,8],"dtype":"f32"},{"name":"y","shape":["batch",4],"dtype":"i32"}],
 "operators":[
  {"name":"a","type":"linear","inputs":["x"],"attributes":{"out_features":8}},
  {"name":"b","type":"linear","inputs":["a"],"attributes":{"out_features":8}},
  {"name":"loss","type":"softmax_cross_entropy","inputs":["b","y"]}]})";

Configuration on(const Degrees& degrees, const Vector<DeviceId>& devices) { return {degrees, devices}; }

// The collectives from a to b: "all-gather 512 of 0 1 2 3".
std::string collectives(const Configuration& a, const Configuration& b) {
  const Graph graph = parse_graph(parse_json(two_layers, "test"));
  TaskGraphBuilder builder(graph);
  Strategy strategy{a, b, {Degrees(graph.operators[2].definition->dimensions().size(), 1), {0}}};
  std::string text;
  for (const Collective& collective : builder.collectives(0, strategy)) {
    text += (text.empty() ? "" : ", ") + std::string(to_string(collective.kind)) + " " +
            std::to_string(collective.bytes) + " of";
    for (DeviceId device : collective.holders) text += " " + std::to_string(device);
    if (collective.root >= 0) text += " at " + std::to_string(collective.root);
  }
  return text;
}

// Degrees are [sample, length, channel, in_channel].
const Vector<DeviceId> four = {0, 1, 2, 3};

}  // namespace

// a's output has 4 x 4 x 8 elements, 512 bytes; a quarter 128.
TEST_CASE("collectives follow from the configurations at both ends") {
  // sequence parallelism: length-split and column-split; column-split and then row-split needs none
  CHECK(collectives(on({1, 4, 1, 1}, four), on({1, 1, 4, 1}, four)) == "all-gather 512 of 0 1 2 3");
  CHECK(collectives(on({1, 1, 4, 1}, four), on({1, 1, 1, 4}, four)).empty());
  // row-split and length-split; and where every part needs all
  CHECK(collectives(on({1, 1, 1, 4}, four), on({1, 4, 1, 1}, four)) == "reduce-scatter 512 of 0 1 2 3");
  CHECK(collectives(on({1, 1, 1, 4}, four), on({1, 1, 4, 1}, four)) == "all-reduce 512 of 0 1 2 3");
  CHECK(collectives(on({1, 1, 1, 4}, four), on({1, 1, 1, 1}, {2})) == "reduce 512 of 0 1 2 3 at 2");
  CHECK(collectives(on({1, 1, 1, 1}, {2}), on({1, 1, 4, 1}, four)) == "broadcast 512 of 0 1 2 3 at 2");
  // from one axis to another: a device has 128 bytes
  CHECK(collectives(on({1, 4, 1, 1}, four), on({4, 1, 1, 1}, four)) == "all-to-all 128 of 0 1 2 3");
  CHECK(collectives(on({1, 1, 4, 1}, four), on({1, 4, 1, 1}, {3, 2, 1, 0})) == "all-to-all 128 of 0 1 2 3");
  // the same within each half of the batch, on four devices of eight
  const Vector<DeviceId> eight = {0, 1, 2, 3, 4, 5, 6, 7};
  CHECK(collectives(on({2, 4, 1, 1}, eight), on({2, 1, 4, 1}, eight)) ==
        "all-gather 256 of 0 1 2 3, all-gather 256 of 4 5 6 7");
  // transfers: other devices, two parts on one, two devices, a part of each other's blocks
  CHECK(collectives(on({1, 4, 1, 1}, four), on({1, 1, 4, 1}, {0, 1, 2, 4})).empty());
  CHECK(collectives(on({1, 4, 1, 1}, four), on({1, 1, 4, 1}, {0, 1, 2, 2})).empty());
  CHECK(collectives(on({1, 2, 1, 1}, {0, 1}), on({1, 1, 2, 1}, {0, 1})).empty());
  CHECK(collectives(on({4, 1, 1, 1}, four), on({3, 1, 1, 1}, {0, 1, 2})).empty());
  CHECK(collectives(on({4, 1, 1, 1}, four), on({4, 1, 1, 1}, four)).empty());
  // shares of several sums
  CHECK(collectives(on({1, 1, 2, 2}, four), on({1, 4, 1, 1}, four)).empty());
}

TEST_CASE("gradients move by the reversed collectives") {
  CHECK(reversed(CollectiveKind::all_gather) == CollectiveKind::reduce_scatter);
  CHECK(reversed(CollectiveKind::broadcast) == CollectiveKind::reduce);
  for (auto kind : {CollectiveKind::all_gather, CollectiveKind::reduce_scatter, CollectiveKind::all_to_all,
                    CollectiveKind::all_reduce, CollectiveKind::broadcast, CollectiveKind::reduce}) {
    CHECK(reversed(reversed(kind)) == kind);
    CHECK(sends_packed(kind) == receives_packed(reversed(kind)));
  }
}

TEST_CASE("an exchange of very many parts is an all-to-all on whatever devices") {
  Json json = parse_json(two_layers, "test").value();
  json["inputs"][0]["shape"] = {"batch", 40, 40};
  json["inputs"][1]["shape"] = {"batch", 40};
  json["operators"][0]["attributes"]["out_features"] = 40;
  json["operators"][1]["attributes"]["out_features"] = 40;
  const Graph graph = parse_graph(parse_json(json.dump(), "test"));
  TaskGraphBuilder builder(graph);
  Strategy strategy{{{1, 40, 1, 1}, {}}, {{1, 1, 40, 1}, {}}, {{1, 1, 1}, {0}}};
  strategy[2].degrees.resize(graph.operators[2].definition->dimensions().size(), 1);
  for (int part = 0; part < 40; ++part) {
    strategy[0].devices.push_back(part % 7);
    strategy[1].devices.push_back(part % 5);
  }
  const Vector<Collective> found = builder.collectives(0, strategy);
  REQUIRE(found.size() == 1);
  CHECK(found[0].kind == CollectiveKind::all_to_all);
  CHECK(found[0].holders == Vector<DeviceId>{0, 1, 2, 3, 4, 5, 6});
  // All 40 blocks of 4 x 1 x 40 elements for each of 8 parts on a device; that is more than 6 blocks sent 40 times.
  CHECK(found[0].bytes == int64_t{8} * 40 * 4 * 40 * 4);
}

TEST_CASE("in an exchange every consumer part reads of every producer part, and no other") {
  std::map<CollectiveKind, int> kinds;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    RandomSource random(seed);
    const Graph graph = random_graph(random);
    const Strategy strategy = random_strategy(graph, 4, random);
    const int least_size = seed % 2 == 0 ? least_collective_size : 2;
    for (const Edge& edge : edges_of(graph)) {
      const Configuration &producer = strategy[edge.producer], &consumer = strategy[edge.consumer];
      const EdgeBlocks blocks = blocks_of(graph, edge, producer.degrees, consumer.degrees);
      const EdgeExchanges exchanges = find_exchanges(blocks, least_size);
      if (exchanges.exchanges.empty()) continue;
      const BlockPairs pairs = intersect_blocks(blocks);
      size_t count = 0;
      for (const Exchange& exchange : exchanges.exchanges)
        count += exchange.producers.size() * exchange.consumers.size();
      CHECK(pairs.size() == count);
      Vector<int64_t> sent(producer.devices.size(), 0), read(consumer.devices.size(), 0);
      for (const BlockPair& pair : pairs) {
        CHECK(exchanges.of_producer[pair.producer_part] == exchanges.of_consumer[pair.consumer_part]);
        const Exchange& exchange = exchanges.exchanges[exchanges.of_producer[pair.producer_part]];
        CHECK(pair.partial == exchange.sums);
        sent[pair.producer_part] += pair.bytes;
        read[pair.consumer_part] += pair.bytes;
        if (exchange.reading == Exchange::Reading::whole) CHECK(pair.whole_output);
      }
      for (const Exchange& exchange : exchanges.exchanges) {
        for (int32_t part : exchange.producers)
          CHECK(sent[part] == exchange.copies_sent() * exchanges.producer_bytes[part]);
        const int64_t shares = exchange.sums ? exchange.producers.count() : 1;
        for (int32_t part : exchange.consumers) CHECK(read[part] == shares * exchanges.consumer_bytes[part]);
      }
      for (const Collective& collective : collectives_of(exchanges, producer.devices, consumer.devices)) {
        ++kinds[collective.kind];
        CHECK(collective.holders.count() >= least_size);
        CHECK(std::is_sorted(collective.holders.begin(), collective.holders.end()));
      }
    }
  }
  CHECK(kinds.size() == 6);
}
