// Recomputation: operators whose outputs are not kept for backward but computed a second time in front of it, so that
// a device needs less memory for more time (Chen et al. 2016, arXiv 1604.06174).
//
// Forward of a recomputed operator runs as ever, and its output is dropped after its last reader in forward. A second
// forward pass, a `recompute` task for each part, fills buffers of its own for backward. It reads again what it read
// before: an input that is the output of another recomputed operator's part on the same device, used where it lies, is
// recomputed too. All other inputs are kept from forward: those of operators that are not recomputed, and those that
// came from other devices or were assembled from pieces. So nothing is sent a second time.
//
// Parts on one device that read each other's recomputed outputs form a segment. It is recomputed when the gradient of
// its last operator's output is there.
#pragma once

#include "common/graph.h"

namespace ff {

// By operator: is it recomputed? `patterns` as in name_patterns.h. An operator that a pattern names without "*" must be
// one that can be recomputed; "*" leaves out those that cannot. Throws InputError.
Vector<bool> recomputed_operators(const Graph& graph, const Vector<std::string>& patterns);

// All operators that can be recomputed, as patterns, but those that losses alone read, whose backward follows their
// forward at once, and some checkpoints: those after which nothing else that is
// recomputed is read, so many of them that the bytes of checkpoints and of the largest segment between two of them are
// together least. For a transformer these are residual connections. Empty: there is no such operator.
Vector<std::string> full_recomputation(const Graph& graph);

// What a user gives: patterns, or "full" alone. As patterns that a file can have; throws InputError.
Vector<std::string> recomputation_patterns(const Graph& graph, const Vector<std::string>& given);

// Why an operator cannot be recomputed; "" where it can.
std::string why_not_recomputed(const Graph& graph, OperatorId op);

}  // namespace ff
