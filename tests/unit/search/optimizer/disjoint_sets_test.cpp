#include "search/optimizer/disjoint_sets.h"

#include <catch2/catch.hpp>

using namespace ff;

TEST_CASE("sets are numbered in the order of their first elements") {
  DisjointSets sets(6);
  CHECK(sets.numbers() == Vector<int>{0, 1, 2, 3, 4, 5});
  sets.join(5, 3);
  sets.join(4, 1);
  sets.join(3, 0);  // {0, 3, 5}, {1, 4}, {2}
  CHECK(sets.numbers() == Vector<int>{0, 1, 2, 0, 1, 0});
  sets.join(5, 4);
  sets.join(0, 3);
  CHECK(sets.numbers() == Vector<int>{0, 0, 1, 0, 0, 0});
}
