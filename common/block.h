// Blocks: the rectangles of a tensor (or of an operator's iteration space) that tasks read and write.
#pragma once

#include <cassert>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "common/vector.h"

namespace ff {

using Shape = Vector<int64_t>;

int64_t volume(const Shape& shape);
std::string to_string(const Shape& shape);  // "[64, 3, 224, 224]"

// Half-open range of indices along one axis.
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Interval&) const = default;
};

inline Interval intersect(Interval a, Interval b) {
  return {a.begin > b.begin ? a.begin : b.begin, a.end < b.end ? a.end : b.end};
}

// Part `index` of a dimension of `size` elements split `degree` ways: [floor(i n/d), floor((i+1) n/d)).
inline Interval split(int64_t size, int64_t degree, int64_t index) {
  return {index * size / degree, (index + 1) * size / degree};
}

// A rectangle: one interval an axis. Fixed capacity, so that blocks are plain values without allocation.
class Block {
 public:
  static constexpr int max_rank = 6;

  Block() = default;
  explicit Block(const Shape& shape) {  // the whole tensor
    for (int64_t size : shape) append({0, size});
  }
  Block(std::initializer_list<Interval> intervals) {
    for (Interval interval : intervals) append(interval);
  }

  int rank() const { return rank_; }
  void append(Interval interval) {
    assert(rank_ < max_rank);
    intervals_[rank_++] = interval;
  }
  Interval& operator[](int axis) { return intervals_[axis]; }
  const Interval& operator[](int axis) const { return intervals_[axis]; }

  bool empty() const {
    for (int axis = 0; axis < rank_; ++axis)
      if (intervals_[axis].size() <= 0) return true;
    return false;
  }
  int64_t volume() const {  // elements; 0 when empty
    int64_t elements = 1;
    for (int axis = 0; axis < rank_; ++axis) elements *= intervals_[axis].size() > 0 ? intervals_[axis].size() : 0;
    return elements;
  }
  bool contains(const Block& other) const {
    for (int axis = 0; axis < rank_; ++axis)
      if (other[axis].begin < intervals_[axis].begin || other[axis].end > intervals_[axis].end) return false;
    return true;
  }
  Shape shape() const {
    Shape sizes;
    for (int axis = 0; axis < rank_; ++axis) sizes.push_back(intervals_[axis].size());
    return sizes;
  }
  bool operator==(const Block& other) const {
    if (rank_ != other.rank_) return false;
    for (int axis = 0; axis < rank_; ++axis)
      if (!(intervals_[axis] == other[axis])) return false;
    return true;
  }

 private:
  Array<Interval, max_rank> intervals_{};
  int rank_ = 0;
};

// The axis of a stored block that lies at `position` in memory, outermost first: channels last with four axes (see
// kernels/backend.h).
constexpr int stored_axis(int rank, int position) {
  constexpr int channels_last[] = {0, 2, 3, 1};
  return rank == 4 ? channels_last[position] : position;
}

// Of each axis of a block as it is stored: how many elements lie between one index and the next.
Vector<int64_t> stored_strides(const Shape& shape);

Block intersect(const Block& a, const Block& b);  // same rank; may be empty()
std::string to_string(const Block& block);        // "[0:16, 0:3, 0:112]"

}  // namespace ff
