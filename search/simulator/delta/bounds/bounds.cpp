#include "search/simulator/delta/bounds/bounds.h"

namespace ff::delta {

void Bounds::count(TaskKey key, Nanoseconds duration, Progress& progress) const {
  const TaskKind kind = kind_of(key);
  const int subject = subject_of(key);
  if (is_compute(kind)) {
    DeviceWork& done = progress.done[state_.tasks[subject].parts[part_of(key)].device];
    done.all += duration;
    for (size_t i = 0; i < tail_count; ++i)
      if ((tails_behind(direction_of(kind), subject) >> i & 1) != 0) done.before_tail[i] += duration;
  } else if (kind == TaskKind::update) {
    progress.done[other_of(key)].all += duration;
  } else if (kind == TaskKind::synchronization) {
    for (const UnitState& unit : state_.groups[subject].units)
      if (unit.number == part_of(key))
        for (size_t i = 0; i < tail_count; ++i)
          if (tail(i).contains[subject]) progress.synchronized[i] += occupancy(unit, tail(i).busiest);
  }
}

}  // namespace ff::delta
