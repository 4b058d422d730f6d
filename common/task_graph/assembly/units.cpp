#include "common/task_graph/assembly/units.h"

namespace ff::assembly {

Task UnitDraft::new_task(TaskKind kind, int64_t number, int64_t other) const {
  if (number >= most_key_parts)
    check_room_in_keys("parameter group \"" + draft_.builder.groups()[unit.group].name + '"',
                       "or more pieces times micro-batches", number + 1, most_key_parts);
  Task task{make_task_key(kind, unit.group, number, other), kind};
  task.unit = static_cast<int32_t>(draft_.result.units.size());
  return task;
}

int32_t UnitDraft::add(UnitTask at, const Task& task) {
  Vector<int32_t>& of_kind = tasks_[static_cast<size_t>(at.kind)];
  if (of_kind.empty()) of_kind.assign(unit.holders.size(), -1);
  if (of_kind[at.place] < 0) added_.push_back(at);
  return of_kind[at.place] = draft_.add(task);
}

int32_t UnitDraft::add_collective(TaskKind kind, int round, int rounds) {
  Task task = new_task(kind, int64_t{unit.number} * rounds + round, 0);
  task.round = round;
  task.bytes = unit.bytes;
  return add({kind}, task);
}

void UnitDraft::add_update(int32_t place, const HolderWork& work) {
  const DeviceId holder = unit.holders[place];
  Task task = new_task(TaskKind::update, unit.number, holder);
  task.device = holder;
  task.bytes = work.updated;
  task.copy_bytes = work.copied;
  add({TaskKind::update, place}, task);
}

void UnitDraft::add_shard_updates(int rounds, bool sends) {
  const Vector<int64_t> sums = own_sums();
  const int64_t shard_bytes = element_bytes * shard_elements(packed(unit).elements, unit.holder_count());
  for (int place : unit.holders.indices())
    if (draft_.is_here(unit.holders[place]))
      add_update(place, work_with_shards(shard_bytes, sums[place], rounds, sends));
}

void UnitDraft::add_copy(int32_t place) {
  const DeviceId holder = unit.holders[place];
  Task task = new_task(TaskKind::parameter_copy, unit.number, holder);
  task.device = holder;
  task.copy_bytes = unit.bytes;
  add({TaskKind::parameter_copy, place}, task);
}

// Between the owner and another holder.
void UnitDraft::add_transfer(TaskKind kind, int32_t place) {
  const DeviceId holder = unit.holders[place];
  Task task = new_task(kind, unit.number, holder);
  task.device = kind == TaskKind::parameter_gradient ? holder : unit.owner;
  task.destination = kind == TaskKind::parameter_gradient ? unit.owner : holder;
  task.bytes = unit.bytes;
  add({kind, place}, task);
}

Vector<int64_t> UnitDraft::own_sums() const {
  if (draft_.whole()) return gradient_sum_bytes(unit, draft_.graph, draft_.strategy);
  Vector<int64_t> sums(unit.holders.size(), 0);
  for (const int place : unit.holders.indices())
    if (const DeviceId holder = unit.holders[place]; draft_.is_here(holder))
      sums[place] = gradient_sum_bytes(unit, draft_.graph, draft_.strategy, holder);
  return sums;
}

void UnitDraft::link_contributors() {
  const int32_t next = find(after_contributors(unit));
  for (const auto& [op, part] : contributors_of(unit)) draft_.add_order(draft_.very_last(op, part), next);
}

void UnitDraft::link_barriers(const std::map<DeviceId, int32_t>& barriers) {
  for (int place : unit.holders.indices())
    if (const auto barrier = barriers.find(unit.holders[place]); barrier != barriers.end())
      for_each_successor(unit, AfterUpdate::owner_sends, {TaskKind::barrier, place},
                         [&](UnitTask next) { draft_.add_order(barrier->second, find(next)); });
}

void UnitDraft::link(AfterUpdate after_update) {
  for (const UnitTask& task : added_)
    for_each_successor(unit, after_update, task, [&](UnitTask next) { draft_.add_order(find(task), find(next)); });
}

}  // namespace ff::assembly
