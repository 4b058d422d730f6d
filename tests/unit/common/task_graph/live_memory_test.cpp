#include "common/task_graph/live_memory.h"

#include <catch2/catch.hpp>

using namespace ff;

namespace {

PlannedBuffer buffer(int32_t number, int64_t bytes, int first, int last) {
  return {{BufferKey::Kind::output, number, 0}, bytes, first, last};
}

}  // namespace

TEST_CASE("sizes are rounded up to the alignment of buffers") {
  CHECK(aligned(0) == 0);
  CHECK(aligned(1) == 64);
  CHECK(aligned(64) == 64);
  CHECK(aligned(65) == 128);
}

// Three steps; the last buffer lives until the iteration's end.
TEST_CASE("what lives at each step is added up, and after the last step") {
  MemoryPlan plan;
  plan.steps = {7, 8, 9};
  plan.buffers = {buffer(0, 100, 0, 1), buffer(1, 64, 1, 2), buffer(2, 1, 2, 3)};
  CHECK(live_bytes(plan) == Vector<int64_t>{128, 128 + 64, 64 + 64, 64, 0});
}

// By size: the first is placed at 0, the second, which lives with it, after it. The third lives with the second alone
// and fits in front of it.
TEST_CASE("a buffer takes the smallest gap between those that live with it") {
  Vector<PlannedBuffer> buffers{buffer(0, 100, 0, 1), buffer(1, 64, 1, 2), buffer(2, 60, 2, 3)};
  CHECK(assign_offsets(buffers) == 128 + 64);
  CHECK(buffers[0].offset == 0);
  CHECK(buffers[1].offset == 128);
  CHECK(buffers[2].offset == 0);
}
