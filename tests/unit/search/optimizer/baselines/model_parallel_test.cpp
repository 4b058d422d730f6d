#include "search/optimizer/baselines/model_parallel.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "tests/support/random_source.h"
#include "tests/support/search_problem.h"

using namespace ff;

namespace {

Nanoseconds slowest_stage(const Vector<Vector<Nanoseconds>>& times, const Vector<int>& stage_of) {
  Vector<Nanoseconds> sums(times.size(), 0);
  for (size_t item = 0; item < stage_of.size(); ++item) sums[stage_of[item]] += times[stage_of[item]][item];
  return *std::max_element(sums.begin(), sums.end());
}

}  // namespace

TEST_CASE("stages are balanced as well as by trying every cut") {
  RandomSource random(1);
  for (int round = 0; round < 300; ++round) {
    const int64_t stages = random.between(1, 4), items = random.between(1, 8);
    Vector<Vector<Nanoseconds>> times(stages, Vector<Nanoseconds>(items));
    for (auto& row : times)
      for (Nanoseconds& time : row) time = random.between(0, 9);
    if (random.between(0, 1)) std::fill(times.begin() + 1, times.end(), times[0]);  // equal devices
    Vector<int> kind;                                                               // each stage has its own
    for (const int stage : times.indices()) kind.push_back(stage);
    Nanoseconds least = std::numeric_limits<Nanoseconds>::max();
    for_each_choice(Vector<int>(items, static_cast<int>(stages)), [&](const Vector<int>& stage_of) {
      if (std::is_sorted(stage_of.begin(), stage_of.end())) least = std::min(least, slowest_stage(times, stage_of));
    });
    for (const int64_t largest_table : {1000, 0}) {  // with a table, and by bisection
      const Vector<int> found = balanced_stages(times, kind, largest_table);
      REQUIRE(std::is_sorted(found.begin(), found.end()));
      REQUIRE(slowest_stage(times, found) == least);
    }
  }
}

TEST_CASE("equal items on many equal devices are cut alike with a table and by bisection") {
  const Vector<Vector<Nanoseconds>> times = {Vector<Nanoseconds>(200, 7)};
  const Vector<int> kind(150, 0);
  const Vector<int> found = balanced_stages(times, kind);
  CHECK(found == balanced_stages(times, kind, 0));
  CHECK(found.back() == 99);  // two each
}

TEST_CASE("model parallelism: whole operators, devices in order") {
  SearchProblem nmt("nmt", "p100-4x4");
  const Strategy strategy = nmt.run("model-parallel").strategy;
  for (size_t op = 0; op < strategy.size(); ++op) {
    REQUIRE(strategy[op].parts() == 1);
    REQUIRE(strategy[op].devices[0] >= (op > 0 ? strategy[op - 1].devices[0] : 0));
  }
  CHECK(strategy.back().devices[0] == 15);
}
