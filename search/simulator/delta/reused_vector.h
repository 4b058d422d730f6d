// A vector whose elements keep their memory when they are removed. An element that is added again holds what it held.
#pragma once

#include "common/vector.h"

namespace ff::delta {

template <typename T>
class ReusedVector {
 public:
  T& add() {
    if (size_ == all_.size()) all_.emplace_back();
    return all_[size_++];
  }
  void shrink(size_t size) { size_ = size; }
  void clear() { size_ = 0; }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t index) { return all_[index]; }
  const T& operator[](size_t index) const { return all_[index]; }
  T& back() { return all_[size_ - 1]; }
  const T& back() const { return all_[size_ - 1]; }
  T* begin() { return all_.data(); }
  T* end() { return all_.data() + size_; }
  const T* begin() const { return all_.data(); }
  const T* end() const { return all_.data() + size_; }

 private:
  Vector<T> all_;
  size_t size_ = 0;
};

}  // namespace ff::delta
