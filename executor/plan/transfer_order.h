// One order of transfers for all ranks: what a transport that matches them by their order alone needs (NCCL).
//
// Why nothing waits for ever. All ranks start their transfers and all-reduces in the order of the task graph (`order`),
// each rank those that it takes part in, and each of its streams runs them one after the other. Take the first
// operation in that order that is not complete. What its data depends on comes earlier in the order and is complete,
// and so is everything that its ranks started before it. So it runs.
//
// Groups run at once and keep that true: between two members a rank has no step of its own, so that the sends of a
// group are ready when the ones before it are done; its members are of one edge and direction, so that none depends on
// another one, through whatever ranks: that would be a way from the edge's end back to its begin; and it has at most
// one send and one receive with each peer and at most `largest_transfer_run` members, which NCCL's kernels process side
// by side (more than one with a peer it takes one after the other).
#pragma once

#include "common/task_graph/task_graph.h"
#include "common/vector.h"

namespace ff {

struct TransferRun {
  Vector<int> tasks;  // transfers from or to this rank, started together, in the shared order
  int steps_before;   // this rank's steps that precede it in the order
};

// `order` holds the tasks of this rank, or of all, each after those that it depends on; steps_here says of each task
// whether it is a step of this rank.
constexpr int largest_transfer_run = 8;
Vector<TransferRun> order_transfers(const TaskGraph& tasks, const Vector<int>& order, const Vector<bool>& steps_here,
                                    int rank);

}  // namespace ff
