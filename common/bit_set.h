// Sets of small numbers (devices, operators), a bit each: for unions and intersections a word at a time.
#pragma once

#include <bit>
#include <cstdint>

#include "common/vector.h"

namespace ff {

using BitSet = Vector<uint64_t>;

inline size_t words_for(size_t members) { return (members + 63) / 64; }
inline void insert(BitSet& set, int member) { set[member / 64] |= uint64_t{1} << member % 64; }
inline bool contains(const BitSet& set, int member) { return (set[member / 64] >> member % 64 & 1) != 0; }

// Calls visit(member), ascending.
template <typename Visit>
void for_each_member(const BitSet& set, const Visit& visit) {
  for (size_t word = 0; word < set.size(); ++word)
    for (uint64_t left = set[word]; left != 0; left &= left - 1)
      visit(static_cast<int>(word * 64) + std::countr_zero(left));
}
inline Vector<int> members(const BitSet& set) {
  Vector<int> result;
  for_each_member(set, [&](int member) { result.push_back(member); });
  return result;
}

}  // namespace ff
