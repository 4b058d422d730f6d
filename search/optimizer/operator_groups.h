// Operators that belong together.
#pragma once

#include "common/graph.h"

namespace ff {

// Sets of operators that share parameters, directly or through others (unrolled steps of one layer do), each in graph
// order and ordered by their first operator. An operator that shares none is a set of its own.
Vector<Vector<OperatorId>> parameter_sharing_layers(const Graph& graph);

// The longest path of layers in front of each operator's layer (parameter_sharing_layers). A path that returns to an
// earlier layer (attention fed back to a decoder) does not count.
Vector<int> layer_depths(const Graph& graph);

// The co-location group of each operator, numbered from 0 in graph order: operators that share parameters lie together,
// and an operator without parameters lies with the operator that computes its first input.
Vector<int> colocation_groups(const Graph& graph);

}  // namespace ff
