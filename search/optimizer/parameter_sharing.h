// Which operators share parameters? Unrolled steps of one layer do.
#pragma once

#include "common/graph.h"

namespace ff {

// Sets of operators that share parameters, directly or through others, each in graph order and ordered by their first
// operator. An operator that shares none is a set of its own.
Vector<Vector<OperatorId>> parameter_sharing_layers(const Graph& graph);

}  // namespace ff
