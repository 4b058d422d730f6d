// Lower bound on the cost of every completion of a partial strategy: the operators 0, 1, ... in topological order are fixed, the others open.
#pragma once

#include "search/optimizer/exhaustive_bounds.h"

namespace ff {

// A stack of choices, for operator 0, then 1, ... Every task of a fixed operator has an earliest end and a least time behind it: along the paths
// among fixed operators exactly as the task graph has them, through open ones by the tables of ExhaustiveBounds. The bound is the largest of
//   path:     an earliest end and the time behind it
//   machine:  one_machine_bound of what a device has to do between the two: forward, backward and update tasks of fixed operators
//   work:     the work of fixed operators and the least of open ones, spread evenly over the devices
class PrefixBounds {
 public:
  explicit PrefixBounds(ExhaustiveBounds& bounds);

  int size() const { return size_; }
  const Choice& operator[](OperatorId op) const { return choices_[static_cast<size_t>(op)]; }
  void push(const Choice& choice);
  void pop();

  // Evaluates the prefix; at once when a part of the bound reaches `enough`.
  Nanoseconds evaluate(Nanoseconds enough);
  // A bound on the prefix with `choice` behind it, from the last evaluation of the prefix alone: quick, and weaker than pushing it.
  Nanoseconds glance(const Choice& choice);
  Strategy strategy() const;  // of the fixed operators; the others are empty

 private:
  using Parts = std::array<Nanoseconds, most_parts>;
  struct Fixed {  // of one operator
    Parts forward, backward;         // durations, copies included
    Parts forward_end, backward_end;  // earliest
    Parts forward_tail, tail;        // least time behind these ends
    Parts update_tail;
  };
  struct Group {
    int last = -1;  // the last operator of it
    std::map<std::vector<int32_t>, std::vector<UnitBound>> cache;  // by degrees and devices of its operators
  };

  const std::vector<UnitBound>& units(int group);
  void durations();
  void gather_gradients();
  void ends();
  void tails();
  Nanoseconds machines(Nanoseconds longest, Nanoseconds enough);

  ExhaustiveBounds& bounds_;
  ExhaustiveSpace& space_;
  int size_ = 0;
  std::vector<Choice> choices_;
  std::vector<Fixed> fixed_;
  std::vector<Crossing> crossings_;  // [edge], of those with a fixed consumer
  std::vector<Group> groups_;
  std::vector<std::vector<MachineTask>> machine_tasks_;  // [device]
  std::vector<std::array<int64_t, most_parts>> packing_, gradient_packing_, input_copies_, gradient_copies_;  // [operator][part], bytes
  struct Contributions {
    std::array<int, most_parts> count;
    std::array<int64_t, most_parts> bytes;
    std::array<bool, most_parts> in_place;
  };
  std::vector<Contributions> contributions_;  // [tensor]
  std::vector<const std::vector<UnitBound>*> complete_;  // units of the groups that are fixed
};

}  // namespace ff
