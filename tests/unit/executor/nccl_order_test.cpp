#include <catch2/catch.hpp>

#include "executor/trainer.h"
#include "executor/transport/nccl.h"

using namespace ff;

TEST_CASE("NCCL's operations share one stream where it does not keep the order of their calls") {
  CHECK_FALSE(nccl_needs_one_stream(22809, "1"));
  CHECK(nccl_needs_one_stream(22505, "1"));      // 2.25 does not know the variable
  CHECK(nccl_needs_one_stream(22809, "0"));      // the user's choice
  CHECK(nccl_needs_one_stream(22809, nullptr));  // not set
}

TEST_CASE("iterations that warm up do not count as measured, and the one that is recorded is one of them") {
  CHECK(warm_up_iterations(10, false) == 2);
  CHECK(warm_up_iterations(10, true) == 3);
  CHECK(warm_up_iterations(3, true) == 2);  // one is left
  CHECK(warm_up_iterations(1, true) == 0);
}
