#include "search/optimizer/exhaustive/schedule_bounds.h"

#include <algorithm>
#include <cmath>

namespace ff::exhaustive {

Nanoseconds one_machine_bound(Vector<MachineTask>& tasks) {
  std::sort(tasks.begin(), tasks.end(), [](const MachineTask& a, const MachineTask& b) { return a.head < b.head; });
  const auto shorter_tail = [](const MachineTask& a, const MachineTask& b) { return a.tail < b.tail; };
  static thread_local Vector<MachineTask> ready;
  ready.clear();
  Nanoseconds now = 0, longest = 0;
  size_t next = 0;
  while (next < tasks.size() || !ready.empty()) {
    if (ready.empty()) now = std::max(now, tasks[next].head);
    for (; next < tasks.size() && tasks[next].head <= now; ++next) {
      ready.push_back(tasks[next]);
      std::push_heap(ready.begin(), ready.end(), shorter_tail);
    }
    std::pop_heap(ready.begin(), ready.end(), shorter_tail);
    MachineTask& task = ready.back();
    if (next < tasks.size() && tasks[next].head < now + task.work) {  // until the next one is ready
      task.work -= tasks[next].head - now;
      now = tasks[next].head;
      std::push_heap(ready.begin(), ready.end(), shorter_tail);
      continue;
    }
    now += task.work;
    longest = std::max(longest, now + task.tail);
    ready.pop_back();
  }
  return longest;
}

Nanoseconds spread_bound(Vector<OpenTask>& tasks, int devices) {
  std::sort(tasks.begin(), tasks.end(), [](const OpenTask& a, const OpenTask& b) { return a.head > b.head; });
  double work = 0, longest = 0;
  for (const OpenTask& task : tasks) {
    work += task.work;
    longest = std::max(longest, static_cast<double>(task.head) + work / devices);
  }
  // times are whole; sums may have been rounded up
  return static_cast<Nanoseconds>(std::ceil(longest * (1 - 1e-12) - 1e-6));
}

}  // namespace ff::exhaustive
