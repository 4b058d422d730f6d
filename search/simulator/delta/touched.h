// Which tasks of the known timeline a proposal touches, and at which positions of it.
#pragma once

#include <algorithm>

#include "common/vector.h"
#include "search/simulator/delta/known_timeline.h"

namespace ff::delta {

// A change touches tasks in two places: the operator and its neighbours forward, and again backward, with the
// synchronization of its parameters. Where parameters have owners, a change also alters what barriers wait for, and
// after them everything: from the first task that a barrier waits for nothing is as it was.
class Touched {
 public:
  explicit Touched(const StrategyState& state)
      : state_(state), is_changed_(state.operators.size(), 0), is_touched_(state.operators.size(), 0),
        is_touched_group_(state.groups.size(), 0) {}

  // By the state's last change.
  void find(const KnownTimeline& timeline);

  bool contains(TaskKey task) const;
  bool contains(const Waiting& waiting) const;

  // Positions in the known timeline.
  // What is taken before happens as it did.
  size_t first() const { return std::min(first_forward_, first_contribution_); }
  // Touched from the start: a task without predecessors, or the first of a producer.
  bool from_beginning() const { return first_forward_ == 0; }
  // The touched tasks of the first place are not after this, those of the second not before or after these.
  size_t last_forward() const { return last_forward_; }
  size_t first_backward() const { return std::min(first_backward_, first_contribution_); }
  size_t last_backward() const { return last_backward_; }  // never: it may be any

 private:
  bool is_changed_edge(int e) const {
    return is_changed_[state_.edge(e).producer] || is_changed_[state_.edge(e).consumer];
  }
  void find_first_forward(const KnownTimeline& timeline);
  void find_first_contribution(const KnownTimeline& timeline);
  void find_places(const KnownTimeline& timeline);

  const StrategyState& state_;
  Vector<OperatorId> changed_, touched_;     // touched: changed, or next to a changed one
  Vector<uint8_t> is_changed_, is_touched_;  // [operator]
  Vector<int> touched_groups_;
  Vector<uint8_t> is_touched_group_;  // [group]: its units may be other ones
  size_t first_forward_ = 0, last_forward_ = 0, first_contribution_ = 0, first_backward_ = 0, last_backward_ = 0;
};

}  // namespace ff::delta
