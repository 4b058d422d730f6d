// Edges of the operator graph, and who exchanges which blocks over one.
#pragma once

#include "common/graph.h"
#include "common/task_graph/task.h"
#include "common/vector.h"

namespace ff {

// An input of an operator that another operator produces.
struct Edge {
  TensorId tensor;
  OperatorId producer;
  OperatorId consumer;
  int input;  // of the consumer
};

// In order of (consumer, input). Graph inputs are present where they are needed: they are no edges.
Vector<Edge> edges_of(const Graph& graph);
// Does the consumer contribute to the gradient of what it reads?
bool has_gradient(const Graph& graph, const Edge& edge);

// A non-empty intersection of a producer's output block and a consumer's input block.
struct BlockPair {
  int32_t producer_part;
  int32_t consumer_part;
  int64_t bytes;
  bool whole_output;  // the intersection is the producer's whole block
  bool whole_input;   // the intersection is all that the consumer reads
  // The producer's block is a partial sum (DimensionKind::reduction): the consumer adds the partial sums.
  bool partial = false;
  bool operator==(const BlockPair&) const = default;
};

// What the parts at both ends of an edge write and read, under given degrees.
struct EdgeBlocks {
  Vector<Block> written, read;  // [producer part], [consumer part]
  int writers = 1;              // so many producer parts write a partial sum each
  DataType type = DataType::f32;
};
EdgeBlocks blocks_of(const Graph& graph, const Edge& edge, const Degrees& producer, const Degrees& consumer);

// The pairs of one edge, in order of (consumer part, producer part).
using BlockPairs = Vector<BlockPair>;
BlockPairs intersect_blocks(const EdgeBlocks& blocks);

// The intersection itself.
Block region_of(const Graph& graph, const Edge& edge, const BlockPair& pair, const Degrees& producer,
                const Degrees& consumer);

}  // namespace ff
