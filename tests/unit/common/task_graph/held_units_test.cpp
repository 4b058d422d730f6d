// The units of one device, found without cutting what others hold, are those of all devices that it holds.
#include "common/task_graph/held_units.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <tuple>

#include "common/task_graph/task_graph.h"
#include "tests/support/random_network.h"

using namespace ff;

namespace {

Vector<Vector<int32_t>> own_parts(const Strategy& strategy, DeviceId device) {
  Vector<Vector<int32_t>> own;
  for (const Configuration& configuration : strategy) own.push_back(parts_on(configuration, device));
  return own;
}

bool holds_unit(const SynchronizationUnit& unit, DeviceId device) {
  return std::binary_search(unit.holders.begin(), unit.holders.end(), device);
}

using UnitFacts = std::tuple<int, int, Vector<DeviceId>, DeviceId, int64_t, Vector<std::pair<ParameterId, Block>>>;
UnitFacts unit_facts(const SynchronizationUnit& unit) {
  Vector<std::pair<ParameterId, Block>> pieces;
  for (const ParameterPiece* piece : unit.pieces) pieces.emplace_back(piece->parameter, piece->block);
  return {unit.group, unit.number, unit.holders, unit.owner, unit.bytes, pieces};
}

// Of the users of a piece those on the device, with numbers that say which have the same block.
Vector<std::pair<OperatorId, int>> users_on(const ParameterPiece& piece, const Strategy& strategy, DeviceId device) {
  Vector<std::pair<OperatorId, int>> users;
  for (const auto& [op, part] : piece.users)
    if (strategy[op].devices[part] == device) users.emplace_back(op, part);
  return users;
}

}  // namespace

TEST_CASE("a device's units are those of all devices that it holds, on random networks") {
  int several_holders = 0, later_numbers = 0, owners = 0, none = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    RandomSource random(seed);
    const Graph graph = random_graph(random);
    const int devices = 1 + static_cast<int>(seed % 6);
    const Strategy strategy = random_strategy(graph, devices, random);
    const Synchronization synchronization = synchronization_of(seed / 6);
    const TaskGraphBuilder builder(graph, {.synchronization = synchronization});
    for (DeviceId device = 0; device < devices; ++device) {
      INFO("device " << device);
      const Vector<Vector<int32_t>> own = own_parts(strategy, device);
      HeldUnits held(graph, strategy, synchronization, builder.alike(), own);
      for (const int g : builder.groups().indices()) {
        const ParameterGroup& group = builder.groups()[g];
        const Vector<ParameterPiece> pieces = parameter_pieces(graph, group, strategy);
        Vector<UnitFacts> expected;
        Vector<const ParameterPiece*> expected_pieces;
        for (const SynchronizationUnit& unit : synchronization_units(g, pieces, strategy, synchronization))
          if (holds_unit(unit, device)) {
            expected.push_back(unit_facts(unit));
            expected_pieces.insert(expected_pieces.end(), unit.pieces.begin(), unit.pieces.end());
          }
        const HeldUnits::Found found = held.of(g, group);
        Vector<UnitFacts> units;
        Vector<const ParameterPiece*> found_pieces;
        for (const SynchronizationUnit& unit : found.units) {
          units.push_back(unit_facts(unit));
          found_pieces.insert(found_pieces.end(), unit.pieces.begin(), unit.pieces.end());
          several_holders += unit.holders.size() > 1;
          later_numbers += unit.number > 0;
          owners += unit.owner != no_owner;
        }
        CHECK(units == expected);
        none += expected.empty();
        REQUIRE(found_pieces.size() == expected_pieces.size());
        for (const int p : found_pieces.indices())
          CHECK(found_pieces[p]->users == users_on(*expected_pieces[p], strategy, device));
      }
    }
  }
  CHECK(several_holders > 500);
  CHECK(later_numbers > 100);
  CHECK(owners > 100);
  CHECK(none > 100);
}

// Sixty-four layers in one configuration: the parts that hold a piece are found once for all of them, whatever the
// order in which groups are asked for.
TEST_CASE("equal layers have equal holders, in whatever order they are asked for") {
  std::string operators, last = "x";
  for (int layer = 0; layer < 64; ++layer) {
    const std::string name = "fc" + std::to_string(layer);
    operators +=
        R"({"name":")" + name + R"(","type":"linear","inputs":[")" + last + R"("],"attributes":{"out_features":8}},)";
    last = name;
  }
  const Graph graph = parse_graph(parse_json(R"({"format":"ffgraph/1","name":"deep","batch_size":4,
      "inputs":[{"name":"x","shape":["batch",8],"dtype":"f32"},{"name":"label","shape":["batch"],"dtype":"i32"}],
      "operators":[)" + operators + R"({"name":"loss","type":"softmax_cross_entropy","inputs":[")" +
                                                 last + R"(","label"]}]})",
                                             "graph"));
  Strategy strategy;
  for (int layer = 0; layer < 64; ++layer) strategy.push_back({{2, 2, 1}, {0, 1, 2, 3}});
  strategy.push_back({{1, 1}, {0}});
  const TaskGraphBuilder builder(graph);
  const Vector<Vector<int32_t>> own = own_parts(strategy, 3);
  HeldUnits held(graph, strategy, Synchronization::all_reduce, builder.alike(), own);
  for (int g = builder.groups().count(); g-- > 0;) {
    const HeldUnits::Found found = held.of(g, builder.groups()[g]);
    REQUIRE(found.units.size() == 1);
    CHECK(found.units[0].holders == Vector<DeviceId>{1, 3});  // the second half of the channels
    CHECK(found.units[0].bytes == (4 * 8 + 4) * element_bytes);
  }
}
