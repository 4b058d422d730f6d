// Longest paths through the operators: what lies behind a task at least.
#pragma once

#include "common/vector.h"
#include "search/simulator/delta/strategy_state.h"

namespace ff::delta {

// Each operator takes the time of its fastest part's kernel (and reduction); copies and transfers take none.
// Only edges count over which every part of both ends exchanges data, whatever the degrees. Then head, middle and
// tail_producers of an operator do not depend on its own configuration.
struct OperatorPaths {
  Vector<Nanoseconds> head;                // [operator]: from the start to its forward tasks
  Vector<Nanoseconds> middle;              // [operator]: from its forward to its backward task, through its consumers
  Vector<Nanoseconds> tail_producers;      // [operator]: behind its backward task, through its producers
  PerDirection<Vector<Nanoseconds>> tail;  // [direction][operator]: behind the direction's last task; backward: through
                                           // producers, or its own synchronization where it alone has its parameters
  PerDirection<Vector<Nanoseconds>> least;    // [direction][operator]: of its own
  Vector<Nanoseconds> least_synchronization;  // [operator]: of its own
  // From the moment when a part has what it waits for in this direction.
  Nanoseconds behind_arrival(Direction direction, OperatorId op) const {
    return least[direction][op] + tail[direction][op];
  }

  void resize(OperatorId operators);
  // What the operator's own configuration says.
  void set_least(const StrategyState& state, OperatorId op);
  // The paths, when all of that is set.
  void connect(const NetworkStructure& network);
};

}  // namespace ff::delta
