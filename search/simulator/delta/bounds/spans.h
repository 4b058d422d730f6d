// Work that certainly comes after a moment at which all parts of an operator have met.
//
// Where one reduction gathers the statistics of all parts of an operator (global batch normalization), no task after
// it begins before it ends: a joint reduction. So if S is a set of tasks each of which waits for a task after the
// reduction, some device must do all of its share of S from there on, one after the other, and after the last of them
// lies at least the shortest of the paths that come after members of S:
//
//   makespan - end of the reduction >= max over devices(work of S on the device) + min over S(path after it)
//
// Paths (paths.h) lead from reduction to reduction along such spans. Between two joint reductions of a chain of
// operators S is what lies between them. Where branches meet again (concat) S is all work of the branches, which no
// single path through them contains. A bound holds whatever S is, so the sets are chosen for a strategy, those that
// bound it best, and kept while it changes.
#pragma once

#include <utility>

#include "common/vector.h"
#include "search/simulator/delta/strategy_state.h"

namespace ff::delta {

struct OperatorPaths;

// The tasks of an operator's parts in one direction: those of its statistics, or the rest.
constexpr int stage_of(Direction direction, OperatorId op, bool statistics) {
  return 4 * op + 2 * static_cast<int>(direction) + (statistics ? 0 : 1);
}

class Spans {
 public:
  struct Span {
    Vector<int> stages;        // the set
    Vector<int> last;          // those that lie before no others of it
    Nanoseconds longest = 0;   // work of a device, with the change
    Vector<Nanoseconds> work;  // [device], without
  };

  explicit Spans(const StrategyState& state);

  // Chooses sets for the state as it is, and connects its paths with them.
  void choose(OperatorPaths& paths);

  // From the end of the operator's joint reduction in this direction to the end of all, at least.
  Nanoseconds behind_reduction(Direction direction, OperatorId op, const OperatorPaths& paths) const {
    return behind_source(source_of(direction, op), paths);
  }
  // From the start of all to its end.
  Nanoseconds of_all(const OperatorPaths& paths) const { return behind_source(source_count_ - 1, paths); }
  const Vector<Span>& all() const { return spans_; }

  // What the stages of operators take on each device is to change; to be followed by apply or by undo.
  void begin_change();
  Nanoseconds* change_of(int stage);  // [device]: to be added to; none where it makes no difference
  void end_change();
  void apply();
  void undo();

 private:
  // A stage's work to be added.
  struct StageChange {
    int stage = -1;
    Vector<Nanoseconds> more;  // [device]
  };
  struct Changed {
    int span = -1;
    Nanoseconds longest_before = 0;
    Vector<Nanoseconds> work;  // [device]
  };

  static constexpr size_t stages_looked_at = 96;  // after each joint reduction
  static constexpr size_t spans_kept = 3;         // of each

  int source_of(Direction direction, OperatorId op) const { return 2 * op + static_cast<int>(direction); }
  Nanoseconds behind_source(int source, const OperatorPaths& paths) const;
  void find_behind();
  void choose_from(int source, const OperatorPaths& paths);
  void add_stage(int stage, Vector<Nanoseconds>& work, Nanoseconds& longest) const;

  const StrategyState& state_;
  int source_count_;            // the last one: the start of all
  Vector<Vector<int>> behind_;  // [source]: stages of which each task waits for one after the joint reduction
  Vector<Vector<int>> before_;  // [stage]: stages of which some task waits for each task of it
  Vector<Span> spans_;
  Vector<std::pair<int, int>> of_source_;  // [source]: its spans, from and to
  Vector<Vector<int>> with_stage_;         // [stage]: spans
  ReusedVector<StageChange> changes_;
  ReusedVector<Changed> changed_;
  Vector<int> change_of_stage_, changed_of_span_;  // -1: none
};

}  // namespace ff::delta
