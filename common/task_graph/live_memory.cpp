#include "common/task_graph/live_memory.h"

#include <numeric>

namespace ff {

Vector<int64_t> live_bytes(const MemoryPlan& plan) {
  Vector<int64_t> live(plan.steps.size() + 2, 0);
  for (const PlannedBuffer& one : plan.buffers) {
    live[one.first] += aligned(one.bytes);
    live[static_cast<size_t>(one.last) + 1] -= aligned(one.bytes);
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  return live;
}

}  // namespace ff
