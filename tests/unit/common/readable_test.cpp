#include "common/readable.h"

#include <catch2/catch.hpp>

TEST_CASE("bytes are told in units of 1000") {
  CHECK(ff::bytes_text(999) == "999 B");
  CHECK(ff::bytes_text(1000) == "1.0 kB");
  CHECK(ff::bytes_text(12'345'678) == "12.3 MB");
  CHECK(ff::bytes_text(1'234'000'000) == "1.23 GB");
}

TEST_CASE("times are told in microseconds, milliseconds or seconds") {
  CHECK(ff::time_text(0) == "0.0 us");
  CHECK(ff::time_text(999'940) == "999.9 us");
  CHECK(ff::time_text(1'234'000) == "1.234 ms");
  CHECK(ff::time_text(12'345'000'000) == "12.35 s");
}
