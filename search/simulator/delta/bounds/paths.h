// Longest paths through the operators: what comes after a task at least.
#pragma once

#include <algorithm>

#include "common/vector.h"
#include "search/simulator/delta/bounds/spans.h"
#include "search/simulator/delta/strategy_state.h"

namespace ff::delta {

// Each operator takes the time of its fastest part's kernel (and reduction); copies and transfers take none.
// Only edges count over which every part of both ends exchanges data, whatever the degrees. Then middle and
// tail_producers of an operator do not depend on its own configuration. From a joint reduction (spans.h) on, all
// devices have work to do, which may take longer than any path.
struct OperatorPaths {
  Vector<Nanoseconds> middle;              // [operator]: from its forward to its backward task, through its consumers
  Vector<Nanoseconds> tail_producers;      // [operator]: after its backward task, through its producers
  PerDirection<Vector<Nanoseconds>> tail;  // [direction][operator]: after the direction's last task; backward: through
                                           // producers, or its own synchronization where it alone has its parameters
  Vector<Nanoseconds> behind;              // [stage (spans.h)]: after any task of it
  // What the operators' own configurations say.
  struct Least {
    Nanoseconds kernel = 0;      // of the fastest part: its statistics, if any, and the rest
    Nanoseconds statistics = 0;  // of the part that is fastest at these
    Nanoseconds rest = 0;
    Nanoseconds reduction = 0;
    Nanoseconds all() const { return kernel + reduction; }
    bool operator==(const Least&) const = default;
  };
  PerDirection<Vector<Least>> least;                  // [direction][operator]
  PerDirection<Vector<uint8_t>> has_joint_reduction;  // [direction][operator]
  Vector<Nanoseconds> least_synchronization;          // [operator]: of its own
  // [next_statistics]: from the end of a task of the former operator until the joint reduction of the latter has ended
  // at least, which its synchronization holds up, and an update on each device; 0: not known
  Vector<Nanoseconds> held_up;
  // From the end of a reduction of the operator in this direction.
  Nanoseconds behind_reduction(Direction direction, OperatorId op) const {
    return behind[stage_of(direction, op, true)] - least[direction][op].reduction;
  }
  // From the moment when a part has what it waits for in this direction.
  Nanoseconds behind_arrival(Direction direction, OperatorId op) const {
    const Least& its = least[direction][op];
    return std::max(its.all() + tail[direction][op], its.statistics + behind[stage_of(direction, op, true)]);
  }

  void resize(const NetworkStructure& network);
  // What the operator's own configuration says.
  void set_least(const StrategyState& state, OperatorId op);
  void set_held_up(const StrategyState& state, int number);
  // What comes after: backward of operators from this one on, if nothing has changed before, then forward.
  void connect_behind(const NetworkStructure& network, const Spans& spans, OperatorId backward, OperatorId forward) {
    for (OperatorId op = backward; op < network.count(); ++op) connect_backward(network, op, spans);
    for (OperatorId op = network.count(); op-- > forward;) connect_forward(network, op, spans);
  }
  // Of one operator, in order: backward from the first operator on, then forward from the last on.
  void connect_backward(const NetworkStructure& network, OperatorId op, const Spans& spans);
  void connect_forward(const NetworkStructure& network, OperatorId op, const Spans& spans);
  void set_behind(Direction direction, OperatorId op, const Spans& spans);
};

}  // namespace ff::delta
