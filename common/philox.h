// Philox4x32-10, the counter-based generator of Salmon et al. 2011 ("Parallel random numbers: as easy as 1, 2, 3",
// SC11): a pure function of (key, counter), so that any split of a tensor draws the same numbers. CUDA's curand has the
// same generator.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/hash.h"
#include "common/vector.h"

namespace ff {

constexpr Array<uint32_t, 4> philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  constexpr uint64_t multiplier0 = 0xD2511F53, multiplier1 = 0xCD9E8D57;  // ibid., table 2
  constexpr uint32_t weyl0 = 0x9E3779B9, weyl1 = 0xBB67AE85;
  // Words of 32 bits in 64, so that compilers make vector instructions of a loop over counters: one multiplication in
  // each lane, its halves by a shift and a mask. Products of 32-bit variables become four times as many instructions
  // (GCC 12).
  constexpr uint64_t word = 0xFFFFFFFF;
  uint64_t c0 = counter_low & word, c1 = counter_low >> 32, c2 = counter_high & word, c3 = counter_high >> 32;
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = multiplier0 * c0, product1 = multiplier1 * c2;
    c0 = (product1 >> 32) ^ c1 ^ k0;
    c1 = product1 & word;
    c2 = (product0 >> 32) ^ c3 ^ k1;
    c3 = product0 & word;
    k0 += weyl0;
    k1 += weyl1;
  }
  return {static_cast<uint32_t>(c0), static_cast<uint32_t>(c1), static_cast<uint32_t>(c2), static_cast<uint32_t>(c3)};
}

// Stream of a named thing (a parameter, an operator's mask) under a seed: FNV-1a of the name mixed with the seed.
inline uint64_t random_stream(uint64_t seed, std::string_view name) {
  return hash_text(name, hash_basis ^ (seed * 0x9E3779B97F4A7C15ULL));
}

// Uniform in [0, 1) with 24 bits, as floats hold them.
constexpr float uniform_float(uint32_t bits) { return static_cast<float>(bits >> 8) * (1.0f / 16777216.0f); }

// Number `index` of a stream, uniform in [0, 1): lane index % 4 of counter index / 4.
inline float uniform_at(uint64_t stream, uint64_t index, uint64_t subsequence = 0) {
  return uniform_float(philox(stream, index / 4, subsequence)[index % 4]);
}

}  // namespace ff
