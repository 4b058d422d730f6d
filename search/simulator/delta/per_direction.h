// One of something for each direction through the graph.
#pragma once

#include "common/task_graph/task.h"

namespace ff::delta {

template <typename T>
struct PerDirection {
  T values[2]{};
  T& operator[](Direction direction) { return values[static_cast<size_t>(direction)]; }
  const T& operator[](Direction direction) const { return values[static_cast<size_t>(direction)]; }
};

}  // namespace ff::delta
