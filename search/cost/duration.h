// Durations of tasks and the resources that they occupy: what a simulation works on.
#pragma once

#include <cstdint>

#include "common/vector.h"

namespace ff {

using Nanoseconds = int64_t;

// Resources are numbered: devices first (as in the topology), then channels.
struct ResourceUse {
  int32_t resource;
  Nanoseconds occupancy;  // from the task's start; a fast link of a route is free again before the transfer ends
};

// Duration and resources of every task of a task graph. Every duration and occupancy is at least 1 ns, so that a task
// is ready strictly before it ends and the order (ready time, key) in which tasks are taken is well defined.
struct TaskCosts {
  Vector<Nanoseconds> duration;
  Vector<int32_t> use_begin;  // uses of task t: uses[use_begin[t] .. use_begin[t + 1])
  Vector<ResourceUse> uses;
  int32_t resource_count = 0;
};

}  // namespace ff
