#include "common/kernels/cuda/divisor.h"

#include <catch2/catch.hpp>
#include <limits>
#include <random>

namespace ff::cuda {

TEST_CASE("division by multiplication is integer division") {
  constexpr int32_t most = std::numeric_limits<int32_t>::max();
  std::mt19937 random(1);
  const auto draw = [&] { return static_cast<int32_t>(random() >> (1 + random() % 31)); };  // of any length
  const auto differs = [](int32_t number, int32_t divisor) {
    int32_t rest = number;
    const int32_t remainder = Divisor<int32_t>(divisor).remainder(rest);
    const uint32_t quotient = Divisor<uint32_t>(static_cast<uint32_t>(divisor)).quotient(static_cast<uint32_t>(number));
    return rest != number / divisor || remainder != number % divisor || static_cast<int32_t>(quotient) != rest;
  };
  int64_t wrong = 0;
  for (int i = 0; i < 200'000; ++i) {
    const int32_t divisor = i < 1000 ? i + 1 : std::max(draw(), 1);
    wrong += differs(draw(), divisor) + differs(most, divisor) + differs(0, divisor);
    const int64_t multiple = int64_t{1 + draw() % (most / divisor)} * divisor;  // where quotients change
    wrong += multiple <= most && differs(static_cast<int32_t>(multiple), divisor);
    wrong += differs(static_cast<int32_t>(multiple - 1), divisor);
  }
  CHECK(wrong == 0);
  for (const int32_t divisor : {most, most - 1, 1 << 30, (1 << 30) + 1})
    for (const int32_t number : {0, 1, divisor - 1, divisor, most}) CHECK_FALSE(differs(number, divisor));

  int64_t large = 1'000'000'000'007;
  CHECK(Divisor<int64_t>(1000).remainder(large) == 7);
  CHECK(large == 1'000'000'000);
}

}  // namespace ff::cuda
