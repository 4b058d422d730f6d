// Annotations completed by data flow, as GShard does (Lepikhin et al. 2020, arXiv 2006.16668: "iterative data-flow
// analysis to infer sharding for the rest of the tensors").
#pragma once

#include "common/strategy.h"
#include "search/optimizer/problem.h"

namespace ff {

// Every operator that an annotation does not decide gets the configuration, carried over from a neighbour that has one,
// forward or backward, that moves the fewest bytes over the edges to all such neighbours; what a batch split reaches
// without moving anything comes first. What nothing reaches is data-parallel. The rule in full: docs/annotations.md.
Strategy propagate(const Problem& problem);

// Bytes that the devices receive over an edge, forward and, where it has a gradient, backward.
int64_t moved_bytes(const Graph& graph, TensorId tensor, int input, OperatorId consumer,
                    const Configuration& producer_configuration, const Configuration& consumer_configuration);

}  // namespace ff
