#include "search/optimizer/mcmc/metropolis_hastings.h"

#include <catch2/catch.hpp>

using namespace ff;

TEST_CASE("the largest accepted cost is where the acceptance probability falls to the uniform number") {
  // exp(-2 x) = 1/e for x = 1/2: half as much again.
  CHECK(largest_accepted_cost(1000, 2, std::exp(-1.0)) == Approx(1500).margin(1));
  // exp(-500 x) = 0.5 for x = ln 2 / 500 = 0.0013863: 1386.3 ns more than a millisecond, in whole nanoseconds.
  CHECK(largest_accepted_cost(1e6, 500, 0.5) == 1001386);
}

TEST_CASE("what costs no more than the current strategy is always accepted") {
  for (const double uniform : {0.0, 0.25, 0.999999999})
    for (const double beta : {1.0, 500.0}) CHECK(largest_accepted_cost(123456, beta, uniform) >= 123456);
}

TEST_CASE("without beta everything is accepted") {
  CHECK(largest_accepted_cost(1000, 0, 0.5) == std::numeric_limits<double>::infinity());
}

TEST_CASE("a slower proposal is accepted as often as the formula says") {
  // beta x = 10 * 0.1 = 1: exp(-1) = 36.8 % of the uniform numbers.
  int accepted = 0;
  for (int i = 0; i < 1000; ++i) accepted += 1100 <= largest_accepted_cost(1000, 10, i / 1000.0);
  CHECK(accepted == 368);
}
