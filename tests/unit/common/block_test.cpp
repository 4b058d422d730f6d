#include "common/block.h"

#include <catch2/catch.hpp>

#include "tests/support/random_source.h"

using namespace ff;

namespace {

// Visits every index of a block, as [rank] numbers.
template <class Visit>
void for_each_index(const Block& block, const Visit& visit) {
  Vector<int64_t> index;
  for (int axis = 0; axis < block.rank(); ++axis) index.push_back(block[axis].begin);
  for (int64_t count = block.volume(); count > 0; --count) {
    visit(index);
    for (int axis = block.rank() - 1; axis >= 0 && ++index[axis] == block[axis].end; --axis)
      index[axis] = block[axis].begin;
  }
}

bool holds(const Block& block, const Vector<int64_t>& index) {
  for (int axis = 0; axis < block.rank(); ++axis)
    if (index[axis] < block[axis].begin || index[axis] >= block[axis].end) return false;
  return true;
}

// Now and then empty in an axis.
Block random_block(RandomSource& random, int rank) {
  Block block;
  for (int axis = 0; axis < rank; ++axis) {
    const int64_t begin = random.between(0, 4);
    block.append({begin, begin + random.between(0, 5)});
  }
  return block;
}

}  // namespace

TEST_CASE("a dimension is split into parts that differ by one element at most") {
  // 7 over 3: floor(7/3) = 2, floor(14/3) = 4.
  CHECK(split(7, 3, 0) == Interval{0, 2});
  CHECK(split(7, 3, 1) == Interval{2, 4});
  CHECK(split(7, 3, 2) == Interval{4, 7});
  for (int64_t size = 1; size <= 40; ++size)
    for (int64_t degree = 1; degree <= size; ++degree) {
      int64_t end = 0;
      for (int64_t index = 0; index < degree; ++index) {
        const Interval part = split(size, degree, index);
        REQUIRE(part.begin == end);
        REQUIRE((part.size() == size / degree || part.size() == size / degree + 1));
        end = part.end;
      }
      REQUIRE(end == size);
    }
}

TEST_CASE("blocks by hand") {
  const Block block = {{0, 16}, {3, 6}, {10, 12}};
  CHECK(block.rank() == 3);
  CHECK(block.volume() == 16 * 3 * 2);
  CHECK(block.shape() == Shape{16, 3, 2});
  CHECK(to_string(block) == "[0:16, 3:6, 10:12]");
  CHECK_FALSE(block.empty());
  CHECK(Block(Shape{4, 5}) == Block{{0, 4}, {0, 5}});
  CHECK(Block(Shape{4, 5}) != Block{{0, 4}});
  CHECK(Block(Shape{4, 0}).empty());
  CHECK(intersect(block, {{8, 20}, {0, 5}, {11, 12}}) == Block{{8, 16}, {3, 5}, {11, 12}});
  CHECK(intersect(block, {{16, 20}, {0, 5}, {11, 12}}).empty());  // touching is not meeting
  CHECK(block.contains({{0, 16}, {4, 5}, {10, 12}}));
  CHECK_FALSE(block.contains({{0, 16}, {4, 7}, {10, 12}}));
}

TEST_CASE("a block without axes is a single element") {
  CHECK(Block().volume() == 1);
  CHECK_FALSE(Block().empty());
  CHECK(to_string(Block()) == "[]");
}

TEST_CASE("volume, intersection and containment are those of the sets of indices") {
  int meetings = 0, contained = 0;
  for (uint32_t number = 0; number < 2000; ++number) {
    RandomSource random(number);
    const int rank = static_cast<int>(random.between(1, 3));
    const Block a = random_block(random, rank), b = random_block(random, rank), both = intersect(a, b);
    INFO("case " << number << ": " << to_string(a) << " and " << to_string(b));
    int64_t elements = 0, common = 0;
    bool all_held = true;
    for_each_index(b, [&](const Vector<int64_t>& index) {
      ++elements;
      common += holds(a, index);
      all_held = all_held && holds(a, index);
      REQUIRE(holds(both, index) == holds(a, index));
    });
    REQUIRE(b.volume() == elements);
    REQUIRE(b.empty() == (elements == 0));
    REQUIRE(both.volume() == common);
    REQUIRE(both.empty() == (common == 0));
    REQUIRE(intersect(b, a) == both);
    if (!b.empty()) REQUIRE(a.contains(b) == all_held);
    if (!both.empty()) REQUIRE((a.contains(both) && b.contains(both)));
    meetings += !both.empty();
    contained += !b.empty() && a.contains(b);
  }
  CHECK(meetings > 200);
  CHECK(contained > 20);
}

TEST_CASE("the parts of a split block are disjoint and cover it") {
  for (uint32_t number = 0; number < 300; ++number) {
    RandomSource random(number);
    const Shape shape = {random.between(1, 9), random.between(1, 9)};
    const int64_t rows = random.between(1, static_cast<int>(shape[0])),
                  columns = random.between(1, static_cast<int>(shape[1]));
    Vector<Block> parts;
    int64_t covered = 0;
    for (int64_t part = 0; part < rows * columns; ++part) {
      parts.push_back({split(shape[0], rows, part / columns), split(shape[1], columns, part % columns)});
      REQUIRE(Block(shape).contains(parts.back()));
      covered += parts.back().volume();
      for (int64_t other = 0; other < part; ++other) REQUIRE(intersect(parts[part], parts[other]).empty());
    }
    REQUIRE(covered == volume(shape));
  }
}
