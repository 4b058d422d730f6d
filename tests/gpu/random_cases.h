// How many random cases the GPU's tests draw, and which; FF_GPU_TEST_CASES, FF_GPU_TEST_SEED and FF_GPU_TEST_SECONDS
// say otherwise. On a GPU: many, the same in every run. With the stand-in (FF_CUDA_STAND_IN): fewer, since a thread of
// a kernel takes a microsecond and more, and others each day.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "tests/support/cases_of_today.h"

namespace ff::random_cases {

#ifdef FF_CUDA_STAND_IN
constexpr bool stand_in = true;
#else
constexpr bool stand_in = false;
#endif

inline int64_t number_from(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoll(text) : otherwise;
}

inline uint32_t first_seed() {
  return static_cast<uint32_t>(number_from("FF_GPU_TEST_SEED", stand_in ? int64_t{1000} * test_day() : 0));
}

inline int number_of_cases(int most) {
  return static_cast<int>(std::min<int64_t>(most, number_from("FF_GPU_TEST_CASES", stand_in ? 30 : most)));
}

// Time for the random strategies of one number of ranks.
inline double seconds() {
  return static_cast<double>(number_from("FF_GPU_TEST_SECONDS", stand_in ? 15 : 1'000'000'000));
}

}  // namespace ff::random_cases
