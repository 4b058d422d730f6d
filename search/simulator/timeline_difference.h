// Two simulations compared: the same tasks, each with the same times?
#pragma once

#include <string>

#include "common/task_graph/task_graph.h"
#include "search/simulator/delta.h"
#include "search/simulator/timeline.h"

namespace ff {

// The first task, by key, whose ready, start or end differs between delta simulation's records and the timeline that
// full simulation gives for the task graph, with both times in nanoseconds; "" where all are equal.
std::string timeline_difference(const Vector<DeltaSimulator::Record>& records, const TaskGraphBuilder& builder,
                                const TaskGraph& tasks, const Timeline& timeline);

}  // namespace ff
