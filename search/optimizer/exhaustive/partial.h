// Lower bound on the cost of every completion of a partial strategy: some operators are fixed, the others open.
#pragma once

#include "search/optimizer/exhaustive/bounds.h"

namespace ff::exhaustive {

// A stack of choices. Every task of a fixed operator has an earliest end and a least time after it: along the paths
// among fixed operators exactly as the task graph has them, through open ones by the tables of Bounds. The
// bound is the largest of
//   path:     an earliest end and the time after it
//   machine:  one_machine_bound of what a device has to do between the two: forward, backward and update tasks of fixed
//             operators
//   work:     the work of all tasks that cannot begin before some time, open operators at their least, spread evenly
//             over the devices from that time on
class PartialBounds {
 public:
  explicit PartialBounds(Bounds& bounds);

  bool fixed(OperatorId op) const { return is_fixed_[op]; }
  const Choice& operator[](OperatorId op) const { return choices_[op]; }
  void push(OperatorId op, const Choice& choice);
  void pop();

  // Evaluates the partial strategy; at once when a part of the bound reaches `enough`.
  Nanoseconds evaluate(Nanoseconds enough);
  // A bound with `choice` for `op` too, from the last evaluation: quick, and weaker than pushing it.
  Nanoseconds glance(OperatorId op, const Choice& choice);
  Strategy strategy() const;  // of the fixed operators; the others are empty

 private:
  using Parts = Array<Nanoseconds, most_parts>;
  struct Fixed {                                     // of one operator
    Parts forward, backward;                         // durations, copies included
    Parts forward_ready, forward_end, backward_end;  // earliest
    Parts forward_tail, tail;                        // least time after these ends
    Parts update_tail;
  };
  struct Group {
    size_t fixed = 0;                                    // how many of its operators
    std::map<Vector<int32_t>, Vector<UnitBound>> cache;  // by degrees and devices of its operators
  };

  const Vector<UnitBound>& units(int group);
  void find_durations();
  void add_open_copies(OperatorId op);
  bool crossed(int edge) const;  // are both ends fixed?
  void find_ends();
  void find_tails();
  void find_update_tails();
  void find_backward_tails();
  void find_forward_tails();
  Nanoseconds machine_bound(Nanoseconds longest, Nanoseconds enough);
  void add_partly_fixed_groups();
  Nanoseconds end_of(OperatorId op, int part) const;  // earliest, of the last task of a part

  Bounds& bounds_;
  Space& space_;
  Vector<OperatorId> order_;        // fixed operators, as pushed
  Vector<OperatorId> topological_;  // the same, ascending
  Vector<bool> is_fixed_;
  Vector<Vector<int>> groups_of_;  // [operator], trained or not
  Vector<Choice> choices_;
  Vector<Fixed> fixed_;
  Vector<Crossing> crossings_;  // [edge], of those with both ends fixed
  Vector<Group> groups_;
  Vector<Vector<MachineTask>> machine_tasks_;  // [device]
  // [operator][part], bytes
  Vector<Array<int64_t, most_parts>> packing_, gradient_packing_, input_copies_, gradient_copies_;
  Vector<Array<GradientSum, most_parts>> gradients_;  // [tensor][part of its producer]
  Vector<OpenTask> released_;                         // everything that has to be done, and when it can begin
  Vector<const Vector<UnitBound>*> complete_;         // units of the groups that are fixed
};

}  // namespace ff::exhaustive
