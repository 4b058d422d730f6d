// FNV-1a (Fowler, Noll, Vo; the 64-bit constants of draft-eastlake-fnv): identifies texts and small values; not for
// security.
#pragma once

#include <cstdint>
#include <string_view>

namespace ff {

constexpr uint64_t hash_basis = 0xcbf29ce484222325ULL;

// One step; `value` is a byte in FNV-1a proper. Larger values are mixed in at once where only equality matters.
constexpr uint64_t hash_step(uint64_t hash, uint64_t value) { return (hash ^ value) * 0x100000001b3ULL; }

// Byte by byte, so that the result can be written to files.
constexpr uint64_t hash_text(std::string_view text, uint64_t hash = hash_basis) {
  for (const char c : text) hash = hash_step(hash, static_cast<unsigned char>(c));
  return hash;
}
constexpr uint64_t hash_bytes(uint64_t value, uint64_t hash) {  // its eight bytes, the lowest first
  for (int byte = 0; byte < 8; ++byte) hash = hash_step(hash, value >> (8 * byte) & 0xFF);
  return hash;
}

}  // namespace ff
