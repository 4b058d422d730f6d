#include "common/degrees.h"

#include <catch2/catch.hpp>

using namespace ff;

TEST_CASE("shares cut a dimension in their proportion, in lowest terms") {
  Degrees degrees{2, 3};
  degrees.set_shares(0, {6, 2});
  CHECK(degrees.shares(0) == Vector<int>{3, 1});
  CHECK(degrees.shares(1).empty());
  CHECK(degrees.interval(0, 64, 0) == Interval{0, 48});
  CHECK(degrees.interval(0, 64, 1) == Interval{48, 64});
  CHECK(degrees.interval(0, 5, 0) == Interval{0, 3});  // 3.75 begins in element 3
  CHECK(degrees.interval(1, 7, 1) == split(7, 3, 1));
  CHECK(degrees.leave_none_empty(0, 2));
  CHECK_FALSE(degrees.leave_none_empty(0, 1));
  CHECK_FALSE(degrees == Degrees{2, 3});
  CHECK(degrees.same_degrees({2, 3}));
  Degrees other{2, 3};
  other.set_shares(0, {1, 3});
  CHECK_FALSE(degrees == other);
  Vector<int> key, other_key;
  degrees.append_to(key);
  other.append_to(other_key);
  CHECK(key != other_key);
}

TEST_CASE("equal shares are none") {
  Degrees degrees{2, 3};
  degrees.set_shares(1, {4, 4, 4});
  CHECK_FALSE(degrees.has_shares());
  CHECK(degrees == Degrees{2, 3});
  degrees.set_shares(1, {1, 2, 3});
  degrees.set_shares(1, {});
  CHECK(degrees == Degrees{2, 3});
}

TEST_CASE("parts with shares cover a dimension without gaps, whatever its size") {
  for (int64_t size = 1; size < 40; ++size)
    for (const Vector<int>& shares : {Vector<int>{3, 1}, {1, 1000}, {5, 2, 7}, {1, 2, 3, 4}}) {
      Degrees degrees(1, shares.count());
      degrees.set_shares(0, shares);
      int64_t reached = 0;
      for (const int index : shares.indices()) {
        const Interval interval = degrees.interval(0, size, index);
        CHECK(interval.begin == reached);
        CHECK(interval.end >= reached);
        reached = interval.end;
      }
      CHECK(reached == size);
    }
}
