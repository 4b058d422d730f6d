// A collective of floats among a group's ranks, as one of them calls it.
#pragma once

#include "common/task_graph/collectives.h"
#include "common/vector.h"

namespace ff {

// Counts are by place in the group. Blocks of several ranks lie one after the other, in that order.
struct CollectiveCall {
  CollectiveKind kind;
  int root = -1;                // broadcast, reduce
  const float* send = nullptr;  // null: nothing to send; reduce: everyone's, the root's may be its `receive`
  float* receive = nullptr;     // null: nothing is wanted
  Vector<int64_t> elements;     // all_gather: sent by each; reduce_scatter: received by each; else one number
  Vector<int64_t> send_elements, receive_elements;  // all_to_all: to each and from each

  int64_t sent(int place) const;  // elements in `send` of the rank at this place, and in `receive`
  int64_t received(int place) const;
};

// What all the ranks' calls, by place, do together, on host memory: for ranks that share it. Throws MachineError where
// the calls do not fit each other.
void perform(const Vector<CollectiveCall*>& calls);

}  // namespace ff
