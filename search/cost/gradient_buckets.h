// Which gradients a framework reduces at once, and which weights it gathers at once: buckets of what the same devices
// have.
#pragma once

#include "common/task_graph/task_graph.h"
#include "common/vector.h"
#include "search/cost/conventions.h"

namespace ff {

// Are its gradients those of norms, which are reduced after backward (FrameworkConventions::late_reductions_beyond)?
inline bool is_reduced_late(const SynchronizationUnit& unit, const FrameworkConventions& conventions) {
  return conventions.late_reductions_beyond > 0 && unit.holder_count() > conventions.late_reductions_beyond;
}

// Of a unit: the bytes that are reduced or gathered with it, over its own; 0: with another unit.
struct BucketShare {
  double reduced = 1, gathered = 1;
};

// [unit], each by itself where the framework has no buckets. A chunk is a row of operators on the same devices; a
// bucket has units of one chunk, in the order of backward, until it has FrameworkConventions::bucket_elements of them,
// and is that of the last of these: it is reduced when all are there, and gathered in front of all. What is
// sharded and gathered by layers (TaskGraph::gathered_with) is a bucket each.
Vector<BucketShare> bucket_shares(const Graph& graph, const TaskGraph& tasks, const Strategy& strategy,
                                  const FrameworkConventions& conventions);

}  // namespace ff
