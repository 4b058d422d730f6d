// Which tasks end before a parameter group is synchronized, whatever the strategy.
#pragma once

#include <cstdint>

#include "common/bit_set.h"
#include "common/task_graph/task_graph.h"
#include "common/vector.h"

namespace ff::delta {

// Tasks are looked at sample by sample: all tensors have the sample first, and a part reads and writes its own samples.
// "Part with a sample" means that the part's block includes it. Then, for every sample:
//   - an operator that reads whole samples of a tensor (linear) waits, with each part, for all parts of the producer
//     with that sample; if it may be split into partial sums, whoever reads the sum does, waiting for all of them
//     (not so parts that wait for each other's statistics: each of those does);
//   - from there on it holds for all operators after it of which every part reads something, and
//   - for all operators in front of the producer of which every element is read;
//   - backward, the same edges in the other direction, but those after which there may be partial sums;
//   - a piece of a parameter waits for parts with every sample.
class SynchronizationOrder {
 public:
  // A set of operators for each group: of graphs with more operators than this nothing is said, since it would take
  // gigabytes.
  static constexpr int most_operators = 8192;

  explicit SynchronizationOrder(const TaskGraphBuilder& builder);

  // All the direction's tasks of these operators end before the first unit of the group is ready to be synchronized.
  // False is always safe; what the group's own operators do backward is left to the strategy (no unit waits for another
  // shard's parts).
  const BitSet& before(Direction direction, int group) const { return before_[direction][group]; }
  // Trained groups of which something is said, those before which the fewest tasks end first.
  const Vector<int>& groups() const { return groups_; }

 private:
  PerDirection<Vector<BitSet>> before_;  // [direction][group]
  Vector<int> groups_;
};

}  // namespace ff::delta
