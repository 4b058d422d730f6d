// Of random cases a run of the tests takes some, others each day.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace ff {

// Days since 1970. FF_TEST_DAY gives another, whose cases run again; tests show it with what fails.
inline uint32_t test_day() {
  const char* given = std::getenv("FF_TEST_DAY");
  return static_cast<uint32_t>(given ? std::atoll(given) : std::time(nullptr) / 86400);
}

// The first of `count` cases, numbered in turn from day to day; from 0 again after a thousand days.
inline uint32_t first_case_of_today(uint32_t count) { return test_day() % 1000 * count; }

}  // namespace ff
