// How many bytes of a memory plan's buffers live at once.
#pragma once

#include "common/task_graph/memory_plan.h"

namespace ff {

constexpr int64_t aligned(int64_t bytes) {
  return (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
}

// By step, and after the last one.
Vector<int64_t> live_bytes(const MemoryPlan& plan);

}  // namespace ff
