// The numbers of a constant. Those of a weight that is another one's, transposed or cut, are computed when they are
// asked for, which most of a large model's never are before they are written.
#pragma once

#include <memory>

#include "search/import/progressions.h"

namespace ff::importing {

class Floats {
 public:
  Floats() = default;
  Floats(Vector<float> values);
  // The elements of a box with these strides, row-major.
  Floats box(const Shape& shape, const Vector<int64_t>& strides, int64_t offset) const;

  explicit operator bool() const { return content_ != nullptr; }
  int64_t size() const;
  // Computed once, and kept as long as one of the copies.
  const Vector<float>& operator*() const;
  const Vector<float>* operator->() const { return &**this; }
  // Not kept where they are computed for this.
  std::shared_ptr<const Vector<float>> once() const;

 private:
  struct Content {
    std::shared_ptr<const Vector<float>> values;  // null: not computed
    std::shared_ptr<const Vector<float>> source;  // what the places are of
    Progressions places;
  };

  std::shared_ptr<Content> content_;
};

}  // namespace ff::importing
