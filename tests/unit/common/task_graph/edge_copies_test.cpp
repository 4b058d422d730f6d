#include "common/task_graph/edge_copies.h"

#include <catch2/catch.hpp>

using namespace ff;

TEST_CASE("what a pair's block is used as at either end") {
  using enum BlockUse;
  // On one device only a block that is whole at both ends is read where it lies.
  CHECK(edge_copy(true, true, true) == EdgeCopy{in_place, in_place});
  CHECK(edge_copy(true, false, true) == EdgeCopy{in_place, packed});
  CHECK(edge_copy(false, true, true) == EdgeCopy{in_place, packed});
  CHECK(edge_copy(false, false, true) == EdgeCopy{in_place, packed});
  // Between two devices each end looks at itself alone.
  CHECK(edge_copy(true, true, false) == EdgeCopy{whole, whole});
  CHECK(edge_copy(true, false, false) == EdgeCopy{whole, packed});
  CHECK(edge_copy(false, true, false) == EdgeCopy{packed, whole});
  CHECK(edge_copy(false, false, false) == EdgeCopy{packed, packed});
}

TEST_CASE("backward exchanges the ends") {
  const BlockPair pair{0, 0, 4, true, false};
  CHECK(edge_copy(pair, false, Direction::forward) == EdgeCopy{BlockUse::whole, BlockUse::packed});
  CHECK(edge_copy(pair, false, Direction::backward) == EdgeCopy{BlockUse::packed, BlockUse::whole});
}

TEST_CASE("contributions to a gradient are added up unless a single one can be used as it is") {
  GradientSum sum;
  CHECK(sum.copied_bytes() == 0);
  sum.add(100, BlockUse::whole);
  CHECK(sum.copied_bytes() == 0);
  GradientSum more;
  sum.add(more);  // nothing from another edge
  CHECK(sum.copied_bytes() == 0);
  more.add(50, BlockUse::in_place);
  sum.add(more);
  CHECK(sum.count == 2);
  CHECK(sum.copied_bytes() == 150);
  GradientSum part;
  part.add(30, BlockUse::packed);
  CHECK(part.copied_bytes() == 30);
}

// A producer's two halves (100 bytes each, devices 0 and 1) are read whole by both parts of a consumer, also on 0 and 1.
// Forward each consumer assembles 200 bytes from its own device and from the other; halves are sent as they are. Backward
// each consumer packs the other's half of its contribution, and each producer adds up two contributions.
TEST_CASE("bytes copied where halves are gathered") {
  const BlockPairs pairs = {
      {0, 0, 100, true, false}, {1, 0, 100, true, false}, {0, 1, 100, true, false}, {1, 1, 100, true, false}};
  EdgeCopyBytes copies;
  copies.set(pairs, {0, 1}, {0, 1}, true);
  CHECK(copies.assembled == Vector<int64_t>{200, 200});
  CHECK(copies.packed == Vector<int64_t>{0, 0});
  CHECK(copies.packed_gradient == Vector<int64_t>{100, 100});
  for (const GradientSum& sum : copies.gradients) CHECK(sum.copied_bytes() == 200);
  copies.set(pairs, {0, 1}, {0, 1}, false);
  CHECK(copies.packed_gradient == Vector<int64_t>{0, 0});
  for (const GradientSum& sum : copies.gradients) CHECK(sum.count == 0);
}
