#include "search/optimizer/exhaustive/schedule_bounds.h"

#include <catch2/catch.hpp>

using namespace ff;
using namespace ff::exhaustive;

TEST_CASE("the one-machine bound is the best preemptive schedule") {
  Vector<MachineTask> tasks{{0, 4, 0}, {1, 2, 6}, {3, 1, 1}};
  CHECK(one_machine_bound(tasks) == 9);  // 0..1 first, 1..3 second (tail until 9), then the others
  Vector<OpenTask> open{{0, 10}, {6, 8}, {8, 4}};
  CHECK(spread_bound(open, 2) == 12);  // from 6 on 12 units on two devices; from 0 on 22, from 8 on 4
}
