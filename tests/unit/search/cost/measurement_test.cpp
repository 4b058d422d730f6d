#include "search/cost/measurement.h"

#include <catch2/catch.hpp>

using namespace ff;

TEST_CASE("a device model is found by the GPU's name") {
  CHECK(names_model("NVIDIA H200", "h200"));
  CHECK(names_model("Tesla P100-SXM2-16GB", "p100"));
  CHECK(names_model("NVIDIA A100-SXM4-80GB", "a100"));
  CHECK_FALSE(names_model("NVIDIA GH200 480GB", "h200"));
  CHECK_FALSE(names_model("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "h100"));  // a part of one
  CHECK_FALSE(names_model("NVIDIA H100 80GB HBM3", "h200"));
}
