// Lower bounds on how long devices need for tasks that are released over time.
#pragma once

#include "common/vector.h"
#include "search/cost/duration.h"

namespace ff::exhaustive {

// A task on one machine: it cannot begin before `head`, works for `work`, and `tail` passes after it.
struct MachineTask {
  Nanoseconds head, work, tail;
};
// Length of the best preemptive schedule of the tasks on one machine (Jackson's rule: of those ready, the longest tail
// first), which no schedule beats, with or without preemption. Reorders `tasks`.
Nanoseconds one_machine_bound(Vector<MachineTask>& tasks);

// Work that somebody has to do, not before `head`.
struct OpenTask {
  Nanoseconds head;
  double work;
};
// The earliest time by which `devices` can have done the tasks, however they are divided: for each head, the head plus
// an even share of the work that is released then or later. Reorders `tasks`.
Nanoseconds spread_bound(Vector<OpenTask>& tasks, int devices);

}  // namespace ff::exhaustive
