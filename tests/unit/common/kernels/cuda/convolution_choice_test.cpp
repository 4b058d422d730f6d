#include "common/kernels/cuda/convolution_choice.h"

#include <catch2/catch.hpp>
#include <random>
#include <vector>

using namespace ff::cuda;

namespace {

constexpr int64_t no_limit = INT64_MAX;

ConvolutionCandidate candidate(int order, double ms, bool deterministic = true, bool own_math = true,
                               int64_t workspace_bytes = 0) {
  return {order, deterministic, own_math, workspace_bytes, ms};
}

int choose(std::vector<ConvolutionCandidate> candidates, int64_t limit = no_limit) {
  return choose_convolution(candidates, limit);
}

}  // namespace

TEST_CASE("a convolution is computed in a deterministic way if there is one, whatever its time and arithmetic") {
  CHECK(choose({candidate(0, 1, false), candidate(1, 50)}) == 1);
  CHECK(choose({candidate(0, 1, /*deterministic=*/false, /*own_math=*/true),
                candidate(1, 50, /*deterministic=*/true, /*own_math=*/false)}) == 1);
  CHECK(choose({candidate(0, 1, false), candidate(1, 50, false)}) == 0);
}

TEST_CASE("of two ways the one that was measured with its own arithmetic is taken") {
  CHECK(choose({candidate(0, 1, true, false), candidate(1, 5, true, true)}) == 1);
}

TEST_CASE("a way that is much faster is taken, one that is a little faster is not") {
  CHECK(choose({candidate(0, 1.2), candidate(1, 1)}) == 0);
  CHECK(choose({candidate(0, 1.3), candidate(1, 1)}) == 1);
  CHECK(choose({candidate(1, 1), candidate(0, 1.2)}) == 1);
}

TEST_CASE("times that vary by a tenth do not change the choice") {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> noise(0.95, 1.05);
  const double ms[] = {3.0, 1.0, 1.05, 0.95};  // 1 to 3 are alike
  for (int run = 0; run < 1000; ++run) {
    std::vector<ConvolutionCandidate> candidates;
    for (int i = 0; i < 4; ++i) candidates.push_back(candidate(i, ms[i] * noise(random)));
    REQUIRE(choose(candidates) == 1);
  }
}

TEST_CASE("a workspace beyond the limit is not taken, and the limit follows from the device alone") {
  CHECK(choose({candidate(0, 1, true, true, 101), candidate(1, 9, true, true, 100)}, 100) == 1);
  CHECK(choose({candidate(0, 1, true, true, 101)}, 100) == -1);
  CHECK(choose({}) == -1);
  CHECK(workspace_limit_bytes(int64_t{80} << 30) == int64_t{1} << 30);
  CHECK(workspace_limit_bytes(int64_t{16} << 30) == int64_t{256} << 20);
}
