// Recomputation: operators whose outputs are not kept for backward but computed a second time in front of it, so that
// a device needs less memory for more time (Chen et al. 2016, arXiv 1604.06174).
//
// Forward of a recomputed operator runs as ever, and its output is dropped after its last reader in forward. A second
// forward pass, a `recompute` task for each part, fills buffers of its own for backward. It reads again what it read
// before: an input that is the output of another recomputed operator's part on the same device, used where it lies, is
// recomputed too. All other inputs are kept from forward: those of operators that are not recomputed, and those that
// came from other devices or were assembled from pieces. So nothing is sent a second time. Operators that are not
// recomputed themselves read the second output, too, in their backward pass, where they read it where it lies.
//
// Of what is recomputed, backward may read nothing: the output of a layer's last product is added to the residual, and
// no gradient needs it. Such an operator is dropped with its segment, and not computed again. PyTorch's checkpoints end
// there, too (torch.utils.checkpoint without reentrance, "early stop", since 2.1); Megatron-LM's do not.
//
// Parts on one device that read each other's recomputed outputs form a segment. It is recomputed when the gradient of
// the output of its last operator, or of the last that reads it in its backward pass, is there.
#pragma once

#include "common/graph.h"

namespace ff {

// By operator: is it recomputed? `patterns` as in name_patterns.h. An operator that a pattern names without "*" must be
// one that can be recomputed; "*" leaves out those that cannot. Throws InputError.
Vector<bool> recomputed_operators(const Graph& graph, const Vector<std::string>& patterns);

// By operator: is it computed again, as backward reads its output or what its kernel keeps, or an operator that is
// computed again reads its output?
Vector<bool> computed_again(const Graph& graph, const Vector<bool>& recomputed);

// Can it be recomputed, and is that of use? Not where losses alone read it, whose backward follows their forward at
// once.
bool is_worth_recomputing(const Graph& graph, OperatorId op);

// All operators that are worth it, as patterns, but some checkpoints: those after which nothing else that is recomputed
// is read, so many of them that the bytes of checkpoints and of the largest segment between two of them are together
// least. For a transformer these are residual connections. Empty: there is no such operator.
Vector<std::string> full_recomputation(const Graph& graph);

// What a user gives: patterns, or "full" alone. As patterns that a file can have; throws InputError.
Vector<std::string> recomputation_patterns(const Graph& graph, const Vector<std::string>& given);

// Why an operator cannot be recomputed; "" where it can.
std::string why_not_recomputed(const Graph& graph, OperatorId op);

}  // namespace ff
