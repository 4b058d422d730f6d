// A list of whole numbers, kept as arithmetic progressions that follow one another. Which element of an initializer
// each element of a weight is would take 8 bytes an element as a plain list; after a transposition, a cut or a join it
// is one progression a row.
#pragma once

#include <cstdint>

#include "common/block.h"
#include "common/vector.h"

namespace ff::importing {

class Progressions {
 public:
  static constexpr int64_t none = -1;  // an element that has no number; all others are 0 or more

  // first, first + step, ...; its `count` elements begin at `begin` in the list.
  struct Run {
    int64_t begin, first, step, count;
    int64_t last() const { return first + step * (count - 1); }
    bool operator==(const Run&) const = default;
  };

  static Progressions consecutive(int64_t first, int64_t count);

  void add(int64_t number);
  void add(int64_t first, int64_t step, int64_t count);
  void add(const Progressions& other, int64_t begin, int64_t count);  // a part of another list

  int64_t size() const { return runs_.empty() ? 0 : runs_.back().begin + runs_.back().count; }
  int64_t at(int64_t element) const;
  const Vector<Run>& runs() const { return runs_; }
  // Of one list there is one way to be kept.
  bool operator==(const Progressions&) const = default;

  // Do the elements from `begin` on go first, first + step, ...?
  bool goes(int64_t begin, int64_t count, int64_t first, int64_t step) const;
  bool has_none() const;
  // Is some number there twice?
  bool repeats() const;
  // The elements of a box with these strides, row-major.
  Progressions box(const Shape& shape, const Vector<int64_t>& strides, int64_t offset) const;

 private:
  int64_t run_of(int64_t element) const;
  bool repeats_element_by_element() const;

  Vector<Run> runs_;
};

// Calls with the offset of each row (the last axis) of a box with these strides.
template <typename Call>
void for_each_row(const Shape& shape, const Vector<int64_t>& strides, int64_t offset, const Call& call) {
  if (volume(shape) == 0) return;
  const int rows = shape.count() - 1;
  Vector<int64_t> index(shape.size(), 0);
  while (true) {
    call(offset);
    int axis = rows - 1;
    for (; axis >= 0; --axis) {
      offset += strides[axis];
      if (++index[axis] < shape[axis]) break;
      offset -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

}  // namespace ff::importing
