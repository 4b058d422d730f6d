#include "search/simulator/timeline_difference.h"

#include <algorithm>
#include <numeric>

#include "common/task_graph/issue_order.h"

namespace ff {

std::string timeline_difference(const Vector<DeltaSimulator::Record>& records, const TaskGraphBuilder& builder,
                                const TaskGraph& tasks, const Timeline& timeline) {
  if (records.size() != tasks.tasks.size())
    return "delta simulation has " + std::to_string(records.size()) + " tasks, full simulation has " +
           std::to_string(tasks.tasks.size());
  Vector<int> by_key(records.size()), tasks_by_key(records.size());
  std::iota(by_key.begin(), by_key.end(), 0);
  std::iota(tasks_by_key.begin(), tasks_by_key.end(), 0);
  std::sort(by_key.begin(), by_key.end(), [&](int a, int b) { return records[a].key < records[b].key; });
  std::sort(tasks_by_key.begin(), tasks_by_key.end(),
            [&](int a, int b) { return tasks.tasks[a].key < tasks.tasks[b].key; });
  for (int i : by_key.indices()) {
    const DeltaSimulator::Record& record = records[by_key[i]];
    const int t = tasks_by_key[i];
    if (record.key == tasks.tasks[t].key && record.ready == timeline.ready[t] && record.start == timeline.start[t] &&
        record.end == timeline.end[t])
      continue;
    const auto times = [](Nanoseconds ready, Nanoseconds start, Nanoseconds end) {
      return std::to_string(ready) + " " + std::to_string(start) + " " + std::to_string(end);
    };
    return task_name(builder, tasks, t) + ": ready, start and end are " +
           times(record.ready, record.start, record.end) + " ns by delta simulation, " +
           times(timeline.ready[t], timeline.start[t], timeline.end[t]) + " ns by full simulation";
  }
  return "";
}

}  // namespace ff
