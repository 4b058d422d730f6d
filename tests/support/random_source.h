// Random bits for tests: from a seed, or from bytes that a fuzzer chose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>

namespace ff {

// A uniform random bit generator. Each number takes one of the bytes for its highest bits, so that a fuzzer decides
// what is drawn; after the last byte, and in all other bits, it is a Mersenne Twister.
class RandomSource {
 public:
  using result_type = uint32_t;
  explicit RandomSource(uint32_t seed) : random_(seed) {}
  RandomSource(const uint8_t* bytes, size_t size)
      : random_(static_cast<uint32_t>(size)), next_(bytes), end_(bytes + size) {}

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }
  result_type operator()() {
    const result_type bits = static_cast<result_type>(random_());
    return next_ == end_ ? bits : static_cast<result_type>(*next_++) << 24 | bits >> 8;
  }

  int64_t between(int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(*this); }

 private:
  std::mt19937 random_;
  const uint8_t* next_ = nullptr;
  const uint8_t* end_ = nullptr;
};

}  // namespace ff
