// A collective of f32 or bf16 among a group's ranks, as one of them calls it.
#pragma once

#include "common/data_type.h"
#include "common/task_graph/collectives.h"
#include "common/vector.h"

namespace ff {

// Counts are by place in the group. Blocks of several ranks lie one after the other, in that order.
struct CollectiveCall {
  CollectiveKind kind;
  int root = -1;               // broadcast, reduce
  const void* send = nullptr;  // null: nothing to send; reduce: everyone's, the root's may be its `receive`
  void* receive = nullptr;     // null: nothing is wanted
  Vector<int64_t> elements;    // all_gather: sent by each; reduce_scatter: received by each; else one number
  Vector<int64_t> send_elements, receive_elements;  // all_to_all: to each and from each
  DataType type = DataType::f32;                    // sums of bf16 are rounded at each addition

  int64_t sent(int place) const;  // elements in `send` of the rank at this place, and in `receive`
  int64_t received(int place) const;
  // So many elements after the beginning of `send` and `receive`.
  const void* send_at(int64_t elements) const { return static_cast<const char*>(send) + bytes_of(type, elements); }
  void* receive_at(int64_t elements) const { return static_cast<char*>(receive) + bytes_of(type, elements); }
};

// What all the ranks' calls, by place, do together, on host memory: for ranks that share it. Throws MachineError where
// the calls do not fit each other.
void perform(const Vector<CollectiveCall*>& calls);

}  // namespace ff
