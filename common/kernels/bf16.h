// bf16: the upper half of an f32, so 8 bits of exponent and 8 of mantissa, the leading one included. Rounding to
// nearest, ties to even, changes a number by at most 2^-8 of its size wherever it is normal.
#pragma once

#include <bit>
#include <cstdint>

namespace ff {

using Bf16 = uint16_t;                       // its bits
constexpr float bf16_rounding = 1.0f / 256;  // the largest relative change

constexpr float f32_of(Bf16 bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

constexpr Bf16 bf16_of(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  // Adding could carry the mantissa of a NaN into its sign.
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<Bf16>((bits >> 16) | 0x40u);
  return static_cast<Bf16>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace ff
