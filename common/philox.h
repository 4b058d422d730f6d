// Philox4x32-10, the counter-based generator of Salmon et al. 2011 ("Parallel random numbers: as easy as 1, 2, 3", SC11): a pure
// function of (key, counter), so that any split of a tensor draws the same numbers. CUDA's curand has the same generator.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace ff {

constexpr std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  constexpr uint32_t multiplier0 = 0xD2511F53, multiplier1 = 0xCD9E8D57;  // ibid., table 2
  constexpr uint32_t weyl0 = 0x9E3779B9, weyl1 = 0xBB67AE85;
  uint32_t c0 = static_cast<uint32_t>(counter_low), c1 = static_cast<uint32_t>(counter_low >> 32);
  uint32_t c2 = static_cast<uint32_t>(counter_high), c3 = static_cast<uint32_t>(counter_high >> 32);
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{multiplier0} * c0, product1 = uint64_t{multiplier1} * c2;
    const uint32_t n0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ k0, n2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(product1);
    c3 = static_cast<uint32_t>(product0);
    c0 = n0;
    c2 = n2;
    k0 += weyl0;
    k1 += weyl1;
  }
  return {c0, c1, c2, c3};
}

// Stream of a named thing (a parameter, an operator's mask) under a seed: FNV-1a of the name mixed with the seed.
inline uint64_t random_stream(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ULL ^ (seed * 0x9E3779B97F4A7C15ULL);
  for (unsigned char c : name) hash = (hash ^ c) * 0x100000001b3ULL;
  return hash;
}

// Uniform in [0, 1) with 24 bits, as floats hold them.
constexpr float uniform_float(uint32_t bits) { return static_cast<float>(bits >> 8) * (1.0f / 16777216.0f); }

// Number `index` of a stream, uniform in [0, 1): lane index % 4 of counter index / 4.
inline float uniform_at(uint64_t stream, uint64_t index, uint64_t subsequence = 0) {
  return uniform_float(philox(stream, index / 4, subsequence)[index % 4]);
}

}  // namespace ff
