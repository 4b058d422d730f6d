// Random numbers for the search: a Philox stream, so that results are the same on every machine and for any number of
// threads.
#pragma once

#include "common/philox.h"
#include "common/vector.h"

namespace ff {

class RandomStream {
 public:
  RandomStream(uint64_t seed, uint64_t chain) : key_(random_stream(seed, "search")), chain_(chain) {}

  uint32_t next() {
    if (lane_ == 4) {
      values_ = philox(key_, counter_++, chain_);
      lane_ = 0;
    }
    return values_[lane_++];
  }
  // Uniform in {0, ..., count - 1}: rejection instead of a biased remainder.
  int below(int count) {
    const uint32_t range = static_cast<uint32_t>(count), limit = UINT32_MAX - UINT32_MAX % range;
    uint32_t value = next();
    while (value >= limit) value = next();
    return static_cast<int>(value % range);
  }
  template <typename T>
  const T& one_of(const Vector<T>& choices) {
    return choices[below(choices.count())];
  }
  // Uniform in [0, 1) with 53 bits.
  double uniform() {
    const uint64_t high = next() >> 5, low = next() >> 6;
    return (static_cast<double>(high) * 67108864.0 + static_cast<double>(low)) / 9007199254740992.0;
  }

 private:
  uint64_t key_, chain_, counter_ = 0;
  Array<uint32_t, 4> values_{};
  int lane_ = 4;
};

}  // namespace ff
