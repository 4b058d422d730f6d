// Tasks of a unit of parameters: how gradients become new values on every holder (wiring.h).
#pragma once

#include <map>

#include "common/task_graph/assembly/draft.h"
#include "common/task_graph/synchronization_units.h"

namespace ff::assembly {

// The tasks of one unit, while it is added to a draft.
class UnitDraft {
 public:
  UnitDraft(Draft& draft, const SynchronizationUnit& unit) : unit(unit), draft_(draft) {}

  const SynchronizationUnit& unit;

  // The `round`th of so many.
  int32_t add_collective(TaskKind kind, int round = 0, int rounds = 1);
  void add_update(int32_t place, const HolderWork& work);
  // On the holders that are here, of their shards; `sends`: values go to the other holders.
  void add_shard_updates(int rounds, bool sends);
  void add_copy(int32_t place);
  void add_transfer(TaskKind kind, int32_t place);
  // Bytes that each holder adds up of its own parts' gradients; 0 for those that are not here.
  Vector<int64_t> own_sums() const;

  // What its contributors release, or the barriers, and what each task that was added releases; of collectives of a
  // kind, the last one.
  void link_contributors();
  void link_barriers(const std::map<DeviceId, int32_t>& barriers);
  void link(AfterUpdate after_update);

 private:
  Task new_task(TaskKind kind, int64_t number, int64_t other) const;
  int32_t add(UnitTask at, const Task& task);
  int32_t find(UnitTask task) const {  // -1: it is not here
    const Vector<int32_t>& of_kind = tasks_[static_cast<size_t>(task.kind)];
    return of_kind.empty() ? -1 : of_kind[task.place];
  }

  Draft& draft_;
  Array<Vector<int32_t>, task_kind_count> tasks_;  // [kind][place]; empty: none of the kind
  Vector<UnitTask> added_;
};

}  // namespace ff::assembly
