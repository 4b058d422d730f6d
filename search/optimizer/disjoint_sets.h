// Sets that are joined (union-find), in the order of their first elements.
#pragma once

#include <algorithm>
#include <numeric>

#include "common/vector.h"

namespace ff {

class DisjointSets {
 public:
  explicit DisjointSets(int elements) : parent_(elements) { std::iota(parent_.begin(), parent_.end(), 0); }

  void join(int a, int b) {
    a = first(a);
    b = first(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }
  // The number of each element's set. Sets are numbered from 0 in the order of their first elements.
  Vector<int> numbers() {
    Vector<int> number(parent_.size());
    int next = 0;
    for (int element : parent_.indices()) number[element] = first(element) == element ? next++ : number[first(element)];
    return number;
  }

 private:
  int first(int element) {  // of the element's set
    while (parent_[element] != element) element = parent_[element] = parent_[parent_[element]];
    return element;
  }

  Vector<int> parent_;  // of the same set, and not behind the element
};

}  // namespace ff
