// Division by a number that the host knows: it prepares a multiplication and a shift. On a GPU an integer division is
// some 20 instructions; several of them outlast the access to memory.
#pragma once

#include <cstdint>

namespace ff::cuda {

// Of 32 bits, for numbers from 0 to 2^31 - 1 by 1 to 2^31 - 1: Granlund and Montgomery 1994 ("Division by invariant
// integers using multiplication", PLDI), figure 4.1; for numbers up to 2^32 - 1 the sum would need 33 bits. Of 64 bits:
// a plain division.
template <class Index>
class Divisor {
 public:
  constexpr explicit Divisor(Index divisor) : divisor_(divisor) {
    if constexpr (sizeof(Index) == 4) {
      const uint64_t one = 1, d = static_cast<uint64_t>(divisor);
      while (one << shift_ < d) ++shift_;
      factor_ = d > 0 ? static_cast<uint32_t>((one << 32) * ((one << shift_) - d) / d + 1) : 0;
    }
  }

  constexpr Index quotient(Index number) const {
    if constexpr (sizeof(Index) == 4) {
      const uint32_t n = static_cast<uint32_t>(number);
      return static_cast<Index>((static_cast<uint32_t>(uint64_t{n} * factor_ >> 32) + n) >> shift_);
    } else {
      return number / divisor_;
    }
  }

  // Leaves the quotient in place of `number`.
  constexpr Index remainder(Index& number) const {
    const Index before = number;
    number = quotient(before);
    return before - number * divisor_;
  }

 private:
  Index divisor_;
  uint32_t factor_ = 0, shift_ = 0;
};

}  // namespace ff::cuda
