// Does a simulation of micro-batches repeat itself? Then the time of many follows from that of a few, exactly.
//
// A simulation looks at its state alone: which tasks were taken, when those end that others still wait for, and until
// when resources are busy. Every decision compares times, or numbers of micro-batches, with each other. So where the
// state at the beginning of micro-batch k + d is that at the beginning of micro-batch k, but for times that are all
// later by T and micro-batches that are all later by d, what follows is the same, too, as long as micro-batches are
// left; and with j d micro-batches more, the iteration takes j T longer.
#pragma once

#include <optional>

#include "search/simulator/full.h"

namespace ff {

struct Repetition {
  int micro_batches;  // so many further ones
  Nanoseconds time;   // take so much longer
  // `further` is a multiple of micro_batches.
  Nanoseconds time_of(int further) const { return further / micro_batches * time; }
};

// Follows a simulation of one iteration with several micro-batches.
class RepetitionWatch {
 public:
  // [task]: its micro-batch; -1: of none, or of all. Must outlive the watch.
  explicit RepetitionWatch(const Vector<int32_t>& micro_batch)
      : micro_batch_(micro_batch), taken_(micro_batch.size(), not_taken) {}

  // The simulator takes a task (simulate_full: its start may be later). `free_at`: [resource], before that.
  void take(int task, Nanoseconds now, const Vector<Nanoseconds>& free_at) {
    if (micro_batch_[task] == begins_.count()) begins_.push_back({count_, now, free_at});
    taken_[task] = count_++;
  }

  // After the simulation, of these dependencies, with this timeline: does the last micro-batch begin in the state in
  // which an earlier one began? The one that repeats soonest.
  std::optional<Repetition> found(const TaskGraph& tasks, const Dependencies& dependencies,
                                  const Timeline& timeline) const;

 private:
  static constexpr int32_t not_taken = -1;
  // When the first task of a micro-batch is taken.
  struct Begin {
    int32_t taken;  // tasks before
    Nanoseconds time;
    Vector<Nanoseconds> free_at;  // [resource]
  };
  friend class RepetitionSearch;

  const Vector<int32_t>& micro_batch_;
  Vector<int32_t> taken_;  // [task]: how many were taken before
  int32_t count_ = 0;
  Vector<Begin> begins_;  // [micro-batch]
};

// [task]: its micro-batch, of transfers and collectives, too; -1: of none, of all, or there is one alone.
Vector<int32_t> micro_batches_of_tasks(const TaskGraphBuilder& builder, const Strategy& strategy,
                                       const TaskGraph& tasks);

// Tasks of all micro-batches, as updates that add up gradients, copy more with each of them, from the second one on by
// as much. Now for further ones, too. False where it is not by as much. [task] as above.
struct FurtherMicroBatches {
  int few, further;  // those of the task graph, more than two, and more than those
  const TaskGraph& of_two;
};
bool copy_for_all(TaskGraph& tasks, const Vector<int32_t>& micro_batch, const FurtherMicroBatches& micro_batches);

}  // namespace ff
