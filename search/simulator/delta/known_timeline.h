// The current strategy's timeline: every task's times, and snapshots of the simulation to restart from and to return
// to.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>

#include "common/vector.h"
#include "search/simulator/delta.h"
#include "search/simulator/delta/event_loop.h"

namespace ff::delta {

// Where the simulation stood, and what came then.
struct Snapshot : LoopState {
  size_t position = 0;                // so many tasks had been taken
  TaskKey next = 0;                   // of the task to be taken then
  Nanoseconds ready = 0;              // of that task
  Nanoseconds latest_until_next = 0;  // latest end of the tasks up to the next snapshot
  Nanoseconds latest_behind = 0;      // of all tasks behind this
};

// What can be skipped from one snapshot on: it happens as it did, so much later.
struct Skip {
  size_t from, to;  // snapshots
  bool to_end;      // `to` is the end of the timeline
  Nanoseconds later;
};

class KnownTimeline {
 public:
  using Record = DeltaSimulator::Record;
  static constexpr size_t never = std::numeric_limits<size_t>::max();
  // A forward or backward task or a reduction in the timeline.
  struct Place {
    size_t position = never;
    Nanoseconds end = 0;
  };

  KnownTimeline(const StrategyState& state, const SlotLayout& layout) : state_(state), layout_(layout) {}

  // Forgets everything. The slots may be other ones.
  void clear();

  const Vector<Record>& records() const { return records_; }
  // Not while recording.
  Place place(TaskKind kind, OperatorId op, int part) const {
    const int32_t position = position_[layout_.slot(kind, op, part)];
    return position < 0 ? Place{} : Place{static_cast<size_t>(position), records_[position].end};
  }
  // The position of the operator's first forward task.
  size_t first_forward(OperatorId op) const { return first_forward_[op]; }

  // Where parameters have owners: the position of the first task that a barrier waits for.
  size_t first_before_barrier() const { return first_before_barrier_; }

  const ReusedVector<Snapshot>& snapshots() const { return snapshots_; }
  // How many of them are at this position or before.
  size_t snapshots_until(size_t position) const {
    return static_cast<size_t>(
        std::upper_bound(snapshots_.begin(), snapshots_.end(), position,
                         [](size_t at, const Snapshot& snapshot) { return at < snapshot.position; }) -
        snapshots_.begin());
  }

  // ---- what a simulation may return to: while an accepted change is recorded, the timeline before it ----
  size_t known_begin() const { return recording_ ? previous_.first_snapshot : 0; }
  size_t known_end() const { return known_begin() + (recording_ ? previous_.snapshots.size() : snapshots_.size()); }
  const Snapshot& known(size_t index) const {
    return recording_ ? previous_.snapshots[index - previous_.first_snapshot] : snapshots_[index];
  }
  // The snapshot before this task, where there is one.
  std::optional<size_t> known_before(TaskKey next) const {
    const int32_t slot = layout_.slot(next);
    if (slot < 0 || snapshot_at_[slot] < 0) return std::nullopt;
    const size_t index = static_cast<size_t>(snapshot_at_[slot]);
    if (index < known_begin() || index >= known_end() || known(index).next != next) return std::nullopt;
    return index;
  }
  // The latest end of what is skipped, as it becomes.
  Nanoseconds latest_of(const Skip& skip) const;

  // ---- recording ----
  // From the last of so many snapshots on, which stay; 0: from the beginning.
  void begin_recording(size_t kept_snapshots, bool may_return);
  // The task is next: takes a snapshot if one is due.
  void before(const Event& next, EventLoop& loop) {
    if (is_snapshot_due(next, loop)) take_snapshot(next, loop);
  }
  void record(const Record& record) {
    Nanoseconds& latest = snapshots_.back().latest_until_next;
    latest = std::max(latest, record.end);
    append(record);
  }
  // Records what the simulation skips, and the snapshots in it.
  void repeat(const Skip& skip, EventLoop& loop);
  void end_recording();

  // Counts the progress at each snapshot anew.
  void recount_progress(const Bounds& bounds);

 private:
  // events; fewer restart closer to a change and take longer to record
  static constexpr size_t least_snapshot_distance = 32;

  bool is_snapshot_due(const Event& next, const EventLoop& loop) const {
    if (snapshots_.empty()) return true;
    const size_t distance = records_.size() - snapshots_.back().position;
    return distance >= least_snapshot_distance && distance >= snapshot_distance(next, loop);
  }
  size_t snapshot_distance(const Event& next, const EventLoop& loop) const;
  void take_snapshot(const Event& next, EventLoop& loop);
  Snapshot& add_snapshot(TaskKey next);
  void append(const Record& record) {
    const TaskKind kind = kind_of(record.key);
    if (const int32_t slot = layout_.slot(record.key); slot >= 0) {
      const OperatorId op = subject_of(record.key);
      position_[slot] = static_cast<int32_t>(records_.size());
      if (kind == TaskKind::forward) first_forward_[op] = std::min(first_forward_[op], records_.size());
      if (kind == TaskKind::backward || (kind == TaskKind::forward && !state_.has_backward(op)))
        first_before_barrier_ = std::min(first_before_barrier_, records_.size());
    }
    records_.push_back(record);
  }

  const StrategyState& state_;
  const SlotLayout& layout_;
  Vector<Record> records_;
  ReusedVector<Snapshot> snapshots_;
  Vector<int32_t> position_;      // [slot]: of its task or reduction in records_; -1: it never had one
  Vector<int32_t> snapshot_at_;   // [slot]: the snapshot before its task; -1: never one
  Vector<size_t> first_forward_;  // [operator]
  size_t first_before_barrier_ = 0;

  bool recording_ = false;
  // While recording: the timeline before, from there on.
  struct {
    Vector<Record> records;
    ReusedVector<Snapshot> snapshots;
    size_t first_record = 0, first_snapshot = 0;
  } previous_;
};

}  // namespace ff::delta
