// How one operator is split along each of its parallelizable dimensions.
#pragma once

#include <cstdint>
#include <numeric>

#include "common/block.h"
#include "common/hash.h"
#include "common/vector.h"

namespace ff {

// [dimension]: into how many parts. The parts of a dimension are alike in size, to one element, unless they have
// shares: [3, 1] gives three quarters to the first of two and one quarter to the second. Meant for devices that are not
// alike.
class Degrees : public Vector<int> {
 public:
  using Vector<int>::Vector;
  static constexpr int most_share = 1000;  // so that sizes times the sum of shares stay within 64 bits

  // Of the parts of one dimension; empty: alike.
  const Vector<int>& shares(int dimension) const {
    static const Vector<int> alike;
    return shares_.empty() ? alike : shares_[dimension];
  }
  bool has_shares() const { return !shares_.empty(); }
  // One positive number a part; kept in lowest terms, and not at all where all are equal. Empty: alike again.
  void set_shares(int dimension, Vector<int> shares) {
    int divisor = 0;
    bool equal = true;
    for (const int share : shares) {
      assert(share > 0);
      divisor = std::gcd(divisor, share);
      equal = equal && share == shares[0];
    }
    if (equal) shares.clear();
    for (int& share : shares) share /= divisor;
    if (shares_.empty() && !shares.empty()) shares_.resize(count());
    if (!shares_.empty()) shares_[dimension] = std::move(shares);
    for (const Vector<int>& some : shares_)
      if (!some.empty()) return;
    shares_.clear();
  }
  void drop_shares() { shares_.clear(); }

  // Part `index` of a dimension of `size` elements: with the shares s, from floor(size (s_0 + .. + s_(i-1)) / sum) on.
  Interval interval(int dimension, int64_t size, int64_t index) const {
    const int degree = (*this)[dimension];
    if (shares_.empty() || shares_[dimension].empty()) return split(size, degree, index);
    const Vector<int>& shares = shares_[dimension];
    assert(shares.count() == degree);
    int64_t before = 0, sum = 0;
    for (const int i : shares.indices()) {
      if (i < index) before += shares[i];
      sum += shares[i];
    }
    return {size * before / sum, size * (before + shares[index]) / sum};
  }
  // Has every part of the dimension an element?
  bool leave_none_empty(int dimension, int64_t size) const {
    for (int64_t index = 0; index < (*this)[dimension]; ++index)
      if (interval(dimension, size, index).size() <= 0) return false;
    return true;
  }

  bool same_degrees(const Degrees& other) const {
    return static_cast<const Vector<int>&>(*this) == static_cast<const Vector<int>&>(other);
  }
  bool operator==(const Degrees& other) const { return same_degrees(other) && shares_ == other.shares_; }
  // Some order, for sets and maps.
  auto operator<=>(const Degrees& other) const {
    const auto by_degree = static_cast<const Vector<int>&>(*this) <=> static_cast<const Vector<int>&>(other);
    return by_degree != 0 ? by_degree : shares_ <=> other.shares_;
  }

  // Appends numbers that tell these from all other degrees of the operator.
  template <class Number>
  void append_to(Vector<Number>& key) const {
    key.insert(key.end(), begin(), end());
    for (const int d : shares_.indices()) {
      if (shares_[d].empty()) continue;
      key.push_back(-1 - d);
      key.insert(key.end(), shares_[d].begin(), shares_[d].end());
    }
  }

 private:
  Vector<Vector<int>> shares_;  // [dimension]; empty where none has any
};

int parts_of(const Degrees& degrees);  // into so many parts: the product

struct NumbersHash {
  size_t operator()(const Vector<int>& numbers) const {
    uint64_t hash = hash_basis;
    for (const int number : numbers) hash = hash_step(hash, static_cast<uint64_t>(number));
    return hash ^ hash >> 32;
  }
};

struct DegreesHash {
  size_t operator()(const Degrees& degrees) const {
    const size_t hash = NumbersHash()(degrees);
    if (!degrees.has_shares()) return hash;
    uint64_t all = hash;
    for (const int d : degrees.indices())
      for (const int share : degrees.shares(d)) all = hash_step(all, static_cast<uint64_t>(share));
    return all ^ all >> 32;
  }
};

}  // namespace ff
