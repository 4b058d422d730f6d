// Micro-batches: equal pieces of a batch that pass through the network one after the other, while gradients accumulate.
//
// A strategy says how each operator computes one micro-batch; searches look at the graph of one. For the task graph, m
// micro-batches are the outermost factor of the sample degree: an operator with sample degree d has m d parts along the
// samples, those of micro-batch k are k d .. (k+1) d - 1, and each micro-batch has the devices of the strategy again.
// As parts are numbered row-major and the sample dimension comes first, part p of an operator with n parts per
// micro-batch belongs to micro-batch p / n. Everything else follows from the parts: a device runs them one after the
// other, adds up their gradients in one buffer, and synchronizes parameters after the last of them.
//
// An operator without a sample dimension (a learned table of positions) is computed once for all micro-batches.
#pragma once

#include "common/strategy.h"

namespace ff {

// Is the operator computed once for each micro-batch? Its first dimension is then that of the samples.
bool has_micro_batches(const OperatorDefinition& definition);

// From what a strategy says of one micro-batch to the parts of the whole batch.
Degrees expanded_degrees(const OperatorDefinition& definition, const Degrees& degrees, int micro_batches);
Configuration expanded(const OperatorDefinition& definition, const Configuration& configuration, int micro_batches);
Strategy expanded(const Graph& graph, const Strategy& strategy, int micro_batches);
inline Strategy expanded(const StrategyFile& file) {
  return expanded(file.graph, file.strategy, file.settings.micro_batches);
}
Vector<Change> expanded(const Graph& graph, const Vector<Change>& changes, int micro_batches);
// And back: what an expanded strategy says of one micro-batch.
Strategy of_one_micro_batch(const Graph& graph, const Strategy& expanded, int micro_batches);

// Of a part of an expanded strategy; -1 for an operator that is computed once.
inline int micro_batch_of(const OperatorDefinition& definition, int64_t parts, int64_t part, int micro_batches) {
  return has_micro_batches(definition) ? static_cast<int>(part / (parts / micro_batches)) : -1;
}

// The same network with so many times the samples, or for one of m micro-batches with an m-th of them. Throws
// InputError where they are not a whole number or where an operator's dimensions say that it would compute something
// else.
Graph graph_of_batch(const Graph& of_one, int micro_batches);
Graph graph_of_micro_batch(const Graph& whole, int micro_batches);

}  // namespace ff
