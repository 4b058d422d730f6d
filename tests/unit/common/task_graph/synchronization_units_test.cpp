#include "common/task_graph/synchronization_units.h"

#include <array>
#include <catch2/catch.hpp>
#include <set>

#include "common/task_graph/shards.h"
#include "tests/support/random_network.h"

using namespace ff;

namespace {

// x [4, 8] -> fc1 (8 x 8) -> fc2 (8 x 8, the same parameters) -> loss.
Graph shared_layers() {
  return parse_graph(parse_json(R"({"format":"ffgraph/1","name":"two","batch_size":4,
    "inputs":[{"name":"x","shape":["batch",8],"dtype":"f32"},{"name":"label","shape":["batch"],"dtype":"i32"}],
    "operators":[
      {"name":"fc1","type":"linear","inputs":["x"],"attributes":{"out_features":8,"bias":false},"parameters":"w"},
      {"name":"fc2","type":"linear","inputs":["fc1"],"attributes":{"out_features":8,"bias":false},"parameters":"w"},
      {"name":"loss","type":"softmax_cross_entropy","inputs":["fc2","label"]}]})",
                                "graph"));
}

}  // namespace

// fc1 by channel on devices 0 and 1, fc2 by sample on 2 and 0. Rows 0-3 of the weight are held by 0 (both operators)
// and 2; rows 4-7 by 0, 1 and 2. Device 0 adds up two gradients of rows 0-3: of fc1's half and fc2's whole block.
TEST_CASE("pieces with the same holders are one unit") {
  const Graph graph = shared_layers();
  const Strategy strategy = {{{1, 2, 1}, {0, 1}}, {{2, 1, 1}, {2, 0}}, {{1, 1}, {0}}};
  const Vector<ParameterGroup> groups = parameter_groups(graph);
  REQUIRE(groups.size() == 1);
  const Vector<ParameterPiece> pieces = parameter_pieces(graph, groups[0], strategy);
  REQUIRE(pieces.size() == 2);
  const Vector<SynchronizationUnit> units = synchronization_units(0, pieces, strategy, Synchronization::all_reduce);
  REQUIRE(units.size() == 2);
  CHECK(units[0].holders == Vector<DeviceId>{0, 2});
  CHECK(units[1].holders == Vector<DeviceId>{0, 1, 2});
  for (int u : {0, 1}) {
    CHECK(units[u].number == u);
    CHECK(units[u].bytes == 4 * 8 * element_bytes);
  }
  CHECK(contributors_of(units[0]) == Vector<std::pair<OperatorId, int>>{{0, 0}, {1, 0}, {1, 1}});
  CHECK(contributors_of(units[1]) == Vector<std::pair<OperatorId, int>>{{0, 1}, {1, 0}, {1, 1}});
  CHECK(gradient_sum_bytes(units[0], graph, strategy) == Vector<int64_t>{4 * 8 * element_bytes * 3 / 2, 0});
  CHECK(gradient_sum_bytes(units[1], graph, strategy) == Vector<int64_t>{0, 0, 0});
}

// One layer, split twice by sample and twice by channel: of the first half of the channels part 0 on device 0 is the
// first with the weights, of the second half part 1 on device 1. The holders are the same.
TEST_CASE("pieces with the same holders and other owners are two units") {
  const Graph graph = shared_layers();
  const Strategy strategy = {{{2, 2, 1}, {0, 1, 1, 0}}, {{2, 2, 1}, {0, 1, 1, 0}}, {{1, 1}, {0}}};
  const Vector<ParameterPiece> pieces = parameter_pieces(graph, parameter_groups(graph)[0], strategy);
  CHECK(synchronization_units(0, pieces, strategy, Synchronization::all_reduce).size() == 1);
  const Vector<SynchronizationUnit> units =
      synchronization_units(0, pieces, strategy, Synchronization::parameter_server);
  REQUIRE(units.size() == 2);
  for (DeviceId owner : {0, 1}) {
    CHECK(units[owner].owner == owner);
    CHECK(units[owner].holders == Vector<DeviceId>{0, 1});
  }
}

TEST_CASE("what holders do besides kernels and transfers") {
  const auto work = [](DeviceId holder, DeviceId owner, int64_t holders) {
    const HolderWork its = work_of_holder(holder, owner, holders, 1000, 30);
    return std::array{its.updated, its.copied, its.packed};
  };
  CHECK(work(1, no_owner, 4) == std::array<int64_t, 3>{1000, 30, 0});
  CHECK(work(1, 1, 1) == std::array<int64_t, 3>{1000, 30, 0});
  CHECK(work(1, 1, 4) == std::array<int64_t, 3>{1000, 30 + 3 * 1500 + 1000, 0});  // adds three, copies what it sends
  CHECK(work(2, 1, 4) == std::array<int64_t, 3>{0, 1000, 30});
}

TEST_CASE("every piece is in one unit, with the holders of its parts, and shards say the same") {
  int shared_groups = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    RandomSource random(seed);
    const Graph graph = random_graph(random);
    const Strategy strategy = random_strategy(graph, 4, random);
    for (const ParameterGroup& group : parameter_groups(graph)) {
      shared_groups += group.operators.size() > 1;
      const Vector<ParameterPiece> pieces = parameter_pieces(graph, group, strategy);
      std::set<const ParameterPiece*> seen;
      std::set<std::pair<Vector<DeviceId>, DeviceId>> holders_seen;
      const Synchronization synchronization =
          seed % 2 ? Synchronization::parameter_server : Synchronization::all_reduce;
      for (const SynchronizationUnit& unit : synchronization_units(0, pieces, strategy, synchronization)) {
        CHECK(unit.pieces[0] == &pieces[unit.number]);
        CHECK(holders_seen.emplace(unit.holders, unit.owner).second);
        int64_t bytes = 0;
        for (const ParameterPiece* piece : unit.pieces) {
          CHECK(seen.insert(piece).second);
          Vector<DeviceId> holders;
          for (const auto& [op, part] : piece->users) holders.push_back(strategy[op].devices[part]);
          sort_and_unique(holders);
          CHECK(holders == unit.holders);
          const DeviceId first_user = strategy[piece->users[0].first].devices[piece->users[0].second];
          CHECK(unit.owner == (synchronization == Synchronization::parameter_server ? first_user : no_owner));
          bytes += piece->block.volume() * element_bytes;
        }
        CHECK(unit.bytes == bytes);
      }
      CHECK(seen.size() == pieces.size());

      GroupPartitions partitions(graph, group);
      Vector<std::shared_ptr<const ShardList>> lists;
      for (size_t position = 0; position < group.operators.size(); ++position)
        lists.push_back(partitions.shards(position, strategy[group.operators[position]].degrees));
      const ParameterPartition& partition = partitions.partition(lists);
      REQUIRE(partition.piece_bytes.size() == pieces.size());
      for (size_t p = 0; p < pieces.size(); ++p) {
        CHECK(partition.piece_bytes[p] == pieces[p].block.volume() * element_bytes);
        std::set<int> blocks(pieces[p].user_blocks.begin(), pieces[p].user_blocks.end());
        CHECK(partition.classes_of_piece[p].size() == blocks.size());
        Vector<std::pair<OperatorId, int>> users;
        for (size_t position = 0; position < lists.size(); ++position)
          for (int part = 0; part < std::ssize(lists[position]->shard_of_part); ++part) {
            const Vector<int32_t>& held = partition.pieces_of_shard[lists[position]->shard_of_part[part]];
            if (std::find(held.begin(), held.end(), static_cast<int32_t>(p)) != held.end())
              users.emplace_back(group.operators[position], part);
          }
        CHECK(users == pieces[p].users);
      }
    }
  }
  CHECK(shared_groups > 0);
}

// Batch normalization of [8, 6, 1, 1], 2 samples x 2 channels on devices 3, 1, 2, 1: parts 0 and 2 have channels 0-2 in
// common, parts 1 and 3 channels 3-5.
TEST_CASE("parts with common channels reduce their statistics together") {
  const Graph graph = parse_graph(parse_json(R"({"format":"ffgraph/1","name":"norm","batch_size":8,
    "inputs":[{"name":"x","shape":["batch",6,1,1],"dtype":"f32"},{"name":"label","shape":["batch"],"dtype":"i32"}],
    "operators":[
      {"name":"norm","type":"batch_norm","inputs":["x"]},
      {"name":"flat","type":"flatten","inputs":["norm"]},
      {"name":"loss","type":"softmax_cross_entropy","inputs":["flat","label"]}]})",
                                             "graph"));
  const OperatorDefinition& norm = *graph.operators[0].definition;
  Degrees degrees(norm.dimensions().size(), 1);
  degrees[0] = degrees[1] = 2;
  const Vector<StatisticsReduction> reductions =
      statistics_reductions(norm, {degrees, {3, 1, 2, 1}}, Direction::backward);
  REQUIRE(reductions.size() == 2);
  CHECK(reductions[0].parts == Vector<int>{0, 2});
  CHECK(reductions[0].holders == Vector<DeviceId>{2, 3});
  CHECK(reductions[1].parts == Vector<int>{1, 3});
  CHECK(reductions[1].holders == Vector<DeviceId>{1});
  CHECK(reductions[0].bytes == norm.statistics_bytes(norm.part(degrees, 0), true));
  CHECK(statistics_reductions(*graph.operators[1].definition, {{1, 1}, {0}}, Direction::forward).empty());
}

// A loss of [8, 6] by 2 samples and 3 classes: each part of the classes has four floats a row in a slot of its own.
TEST_CASE("parts of a loss by class gather their statistics, forward alone") {
  const Graph graph = parse_graph(parse_json(R"({"format":"ffgraph/1","name":"loss","batch_size":8,
    "inputs":[{"name":"x","shape":["batch",6],"dtype":"f32"},{"name":"label","shape":["batch"],"dtype":"i32"}],
    "operators":[{"name":"loss","type":"softmax_cross_entropy","inputs":["x","label"]}]})",
                                             "graph"));
  const OperatorDefinition& loss = *graph.operators[0].definition;
  const Configuration configuration{{2, 3}, {0, 1, 2, 3, 3, 3}};
  const Vector<StatisticsReduction> reductions = statistics_reductions(loss, configuration, Direction::forward);
  REQUIRE(reductions.size() == 2);
  CHECK(reductions[0].parts == Vector<int>{0, 1, 2});
  CHECK(reductions[0].holders == Vector<DeviceId>{0, 1, 2});
  CHECK(reductions[1].parts == Vector<int>{3, 4, 5});
  CHECK(reductions[1].holders == Vector<DeviceId>{3});
  for (const StatisticsReduction& reduction : reductions) CHECK(reduction.bytes == 3 * 4 * 4 * element_bytes);
  CHECK(statistics_reductions(loss, configuration, Direction::backward).empty());
  // All classes in one part: as if there were no such dimension.
  CHECK(statistics_reductions(loss, {{2, 1}, {0, 1}}, Direction::forward).empty());
}
