// The blocks of parts, asked for without listing them, against all parts of random operators.
#include "common/task_graph/part_blocks.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "tests/support/random_network.h"

using namespace ff;

namespace {

Block random_block(const Block& within, RandomSource& random) {
  Block block;
  for (int axis = 0; axis < within.rank(); ++axis) {
    const int64_t size = std::max<int64_t>(within[axis].size(), 1), begin = random.between(0, size - 1);
    block.append({within[axis].begin + begin, within[axis].begin + random.between(begin + 1, size)});
  }
  return block;
}

void check(const OperatorDefinition& definition, const Degrees& degrees, PartBlocks::Role role, int number,
           RandomSource& random) {
  const PartBlocks blocks(definition, degrees, role, number);
  const int parts = parts_of(degrees);
  const auto check_overlapping = [&](const Block& sought) {
    if (sought.empty()) return;
    Vector<int32_t> expected, found;
    for (int part = 0; part < parts; ++part)
      if (!intersect(blocks.of(part), sought).empty()) expected.push_back(part);
    const PartBlocks::Parts overlapping = blocks.overlapping(sought);
    blocks.for_each(overlapping, [&](int32_t part) { found.push_back(part); });
    CHECK(found == expected);
    CHECK(blocks.count(overlapping) == std::ssize(expected));
    if (!expected.empty()) CHECK(blocks.first(overlapping) == expected[0]);
  };
  Block extent = blocks.of(0);
  for (int part = 0; part < parts; ++part) {
    const Block block = blocks.of(part);
    check_overlapping(block);
    for (int axis = 0; axis < block.rank(); ++axis)
      extent[axis] = {std::min(extent[axis].begin, block[axis].begin), std::max(extent[axis].end, block[axis].end)};
  }
  for (int i = 0; i < 3; ++i) check_overlapping(random_block(extent, random));
  for (int axis = 0; axis < blocks.rank(); ++axis) {
    Vector<int64_t> expected;
    for (int part = 0; part < parts; ++part)
      if (const Block block = blocks.of(part); !block.empty())
        expected.insert(expected.end(), {block[axis].begin, block[axis].end});
    sort_and_unique(expected);
    CHECK(blocks.boundaries(axis) == expected);
  }
}

}  // namespace

TEST_CASE("overlapping parts and boundaries are those of all parts") {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    RandomSource random(seed);
    const Graph graph = random_graph(random);
    const Strategy strategy = random_strategy(graph, 4, random);
    for (OperatorId op : graph.operator_ids()) {
      const OperatorDefinition& definition = *graph.operators[op].definition;
      INFO("seed " << seed << ", " << definition.signature(definition.whole()));
      using Role = PartBlocks::Role;
      for (int i : definition.inputs().indices()) check(definition, strategy[op].degrees, Role::input, i, random);
      for (int i : definition.outputs().indices()) check(definition, strategy[op].degrees, Role::output, i, random);
      for (int i : definition.parameters().indices())
        check(definition, strategy[op].degrees, Role::parameter, i, random);
    }
  }
}

TEST_CASE("operators with one signature have the same blocks") {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    RandomSource random(seed);
    const Graph graph = random_graph(random);
    std::map<std::string, const OperatorDefinition*> first;
    for (const Operator& op : graph.operators) {
      const auto [it, added] = first.emplace(blocks_signature(*op.definition), op.definition.get());
      if (added) continue;
      const OperatorDefinition &a = *it->second, &b = *op.definition;
      INFO("seed " << seed << ", " << it->first);
      REQUIRE(a.dimensions().size() == b.dimensions().size());
      Degrees degrees;
      for (const ParallelDimension& dimension : a.dimensions())
        degrees.push_back(static_cast<int>(random.between(1, std::min<int64_t>(dimension.size, 3))));
      for (int part = 0; part < parts_of(degrees); ++part) {
        const Block block = a.part(degrees, part);
        CHECK(block == b.part(degrees, part));
        for (int i : a.inputs().indices()) CHECK(a.input_block(i, block) == b.input_block(i, block));
        for (int i : a.outputs().indices()) CHECK(a.output_block(i, block) == b.output_block(i, block));
        for (int i : a.parameters().indices()) CHECK(a.parameter_block(i, block) == b.parameter_block(i, block));
      }
    }
  }
}
