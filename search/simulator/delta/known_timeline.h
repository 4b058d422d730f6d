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
  Nanoseconds latest_behind = 0;      // of all tasks after this
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
  struct Recorded {
    size_t position = never;
    Nanoseconds end = 0;
  };

  KnownTimeline(const StrategyState& state, const SlotLayout& layout) : state_(state), layout_(layout) {}

  // Forgets everything. The slots may be other ones.
  void clear();

  const Vector<Record>& records() const { return records_; }
  Recorded recorded(TaskKind kind, OperatorId op, int part) const {
    const int32_t position = position_[layout_.slot(kind, op, part)];
    return position < 0 ? Recorded{} : Recorded{static_cast<size_t>(position), records_[position].end};
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

  // The snapshot before this task, where there is one.
  std::optional<size_t> known_before(TaskKey next) const {
    const int32_t slot = layout_.slot(next);
    if (slot < 0 || snapshot_at_[slot] < 0) return std::nullopt;
    const size_t index = static_cast<size_t>(snapshot_at_[slot]);
    if (index >= snapshots_.size() || snapshots_[index].next != next) return std::nullopt;
    return index;
  }
  // The latest end of what is skipped, as it becomes.
  Nanoseconds latest_of(const Skip& skip) const;

  // ---- recording: apart from this timeline, which a simulation may return to, until the record replaces it ----
  // From the last of so many snapshots on, which stay; 0: from the beginning.
  void begin_recording(size_t kept_snapshots);
  // The task is next: takes a snapshot if one is due.
  void before(const Event& next, EventLoop& loop) {
    if (is_snapshot_due(next, loop)) take_snapshot(next, loop);
  }
  void record(const Record& record) {
    recorded_.records.push_back(record);
    ++recorded_.position;
  }
  // The simulation skips this, which is repeated with the snapshots in it.
  void repeat(const Skip& skip, EventLoop& loop);
  void adopt();

  // Counts the progress at each snapshot anew.
  void recount_progress(const Bounds& bounds);

 private:
  // events; fewer restart closer to a change and take longer to record
  static constexpr size_t least_snapshot_distance = 32;

  bool is_snapshot_due(const Event& next, const EventLoop& loop) const {
    if (!recorded_.has_snapshot) return true;
    const size_t distance = recorded_.position - recorded_.last_snapshot;
    return distance >= least_snapshot_distance && distance >= snapshot_distance(next, loop);
  }
  size_t snapshot_distance(const Event& next, const EventLoop& loop) const;
  void take_snapshot(const Event& next, EventLoop& loop);
  Snapshot& add_snapshot(TaskKey next);
  // Of the recorded: adopts what is repeated.
  struct Repeat;
  void adopt(const Repeat& repeat);
  // Adds a record that has this position.
  void place(const Record& record, size_t position) {
    Nanoseconds& latest = snapshots_.back().latest_until_next;
    latest = std::max(latest, record.end);
    const int32_t slot = layout_.slot(record.key);
    if (slot < 0) return;
    const TaskKind kind = kind_of(record.key);
    const OperatorId op = subject_of(record.key);
    position_[slot] = static_cast<int32_t>(position);
    if (kind == TaskKind::forward) first_forward_[op] = std::min(first_forward_[op], position);
    if (kind == TaskKind::backward || (kind == TaskKind::forward && !state_.has_backward(op)))
      first_before_barrier_ = std::min(first_before_barrier_, position);
  }

  const StrategyState& state_;
  const SlotLayout& layout_;
  Vector<Record> records_;
  ReusedVector<Snapshot> snapshots_;
  Vector<int32_t> position_;      // [slot]: of its task or reduction in records_; -1: it never had one
  Vector<int32_t> snapshot_at_;   // [slot]: the snapshot before its task; -1: never one
  Vector<size_t> first_forward_;  // [operator]
  size_t first_before_barrier_ = 0;

  struct Repeat {
    Skip skip;
    size_t records = 0;       // so many have been recorded before
    bool with_first = false;  // a snapshot is due where it begins
    Progress progress;        // there
  };
  struct {
    size_t kept_snapshots = 0;
    Vector<Record> records;
    ReusedVector<Snapshot> snapshots;
    ReusedVector<Repeat> repeats;
    size_t position = 0;       // of the next record in the timeline
    size_t last_snapshot = 0;  // where that was taken
    bool has_snapshot = false;
  } recorded_;
  // While it is adopted: the timeline before, from the first that is not kept on.
  struct {
    Vector<Record> records;
    ReusedVector<Snapshot> snapshots;
    size_t first_record = 0, first_snapshot = 0;
  } previous_;
};

}  // namespace ff::delta
