// Which inputs of recomputed operators are recomputed, too.
#pragma once

#include "common/task_graph/edge_copies.h"
#include "common/task_graph/task_graph.h"

namespace ff {

// Does the consumer's part read the producer's output where it lies, and are both recomputed?
inline bool recomputed_in_place(const TaskGraphBuilder& builder, const Strategy& strategy, int index,
                                const BlockPair& pair) {
  const Edge& edge = builder.edges()[index];
  return builder.recomputed(edge.producer) && builder.recomputed(edge.consumer) &&
         strategy[edge.producer].devices[pair.producer_part] == strategy[edge.consumer].devices[pair.consumer_part] &&
         edge_copy(pair, /*local=*/true, Direction::forward).destination == BlockUse::in_place;
}

}  // namespace ff
