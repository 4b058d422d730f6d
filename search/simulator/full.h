// Full simulation (paper section 5.2): the judge of every faster algorithm.
#pragma once

#include "common/task_graph/dependencies.h"
#include "common/task_graph/task_graph.h"
#include "search/simulator/timeline.h"

namespace ff {

class RepetitionWatch;  // repetition.h

// First in, first out by ready time (the paper's assumption A3): tasks are taken in order of (ready time, key); a task
// starts when it is ready and every resource that it uses is free, and occupies each for its own time.
Timeline simulate_full(const TaskGraph& tasks, const TaskCosts& costs);
Timeline simulate_full(const TaskGraph& tasks, const Dependencies& dependencies, const TaskCosts& costs,
                       RepetitionWatch* watch = nullptr);

// All tasks in order of (start, ready, key): the issue order that the executor follows.
Vector<int> tasks_by_start(const TaskGraph& tasks, const Timeline& timeline);

}  // namespace ff
