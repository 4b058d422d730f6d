// Who reads outputs that were recomputed.
#pragma once

#include "common/task_graph/edge_copies.h"
#include "common/task_graph/task_graph.h"

namespace ff {

// Does the consumer have a use for what the producer computes the second time: to be recomputed itself, or backward?
inline bool reads_recomputed(const TaskGraphBuilder& builder, const Edge& edge) {
  const Operator& consumer = builder.graph().operators[edge.consumer];
  return builder.recomputed(edge.producer) &&
         (builder.recomputed(edge.consumer) ||
          (consumer.has_backward && consumer.definition->backward_reads_input(edge.input)));
}

// And does the consumer's part read it where it lies? Else it keeps what it got forward.
inline bool reads_recomputed(const TaskGraphBuilder& builder, const Strategy& strategy, int index,
                             const BlockPair& pair) {
  const Edge& edge = builder.edges()[index];
  return reads_recomputed(builder, edge) &&
         strategy[edge.producer].devices[pair.producer_part] == strategy[edge.consumer].devices[pair.consumer_part] &&
         edge_copy(pair, /*local=*/true, Direction::forward).destination == BlockUse::in_place;
}

}  // namespace ff
