#include "common/errors.h"

#include <catch2/catch.hpp>

using namespace ff;

TEST_CASE("the nearest name is suggested where one is near, else all are named") {
  const Vector<std::string> names = {"kernel", "stride", "padding", "pad"};
  CHECK(nearest_name("kernal", names) == "kernel");  // one letter changed
  CHECK(nearest_name("strid", names) == "stride");   // one left out
  CHECK(nearest_name("pading", names) == "padding");
  CHECK(nearest_name("dilation", names) == "");
  CHECK(suggestion("kernal", names) == "; did you mean \"kernel\"?");
  CHECK(suggestion("dgx-a100", {"dgx-a100-40gb", "dgx-a100-80gb", "dgx-h100"}) ==
        "; did you mean \"dgx-a100-40gb\" or \"dgx-a100-80gb\"?");
  CHECK(suggestion("pa", names) == "; did you mean \"pad\"?");  // too short to be the beginning of names
  CHECK(suggestion("dilation", names) == "; known: kernel, stride, padding, pad");
}
