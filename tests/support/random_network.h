// Random small networks and strategies for the equivalence test.
#pragma once

#include <string>

#include "common/strategy.h"
#include "tests/support/random_source.h"

namespace ff {

// A valid ffgraph/1 with a loss, drawn from `random`: all operator types, residual additions, concatenations, shared parameters.
Json random_network(RandomSource& random);

// Any degrees (dividing or not) and any of the devices, several tasks on one and none on others included.
Strategy random_strategy(const Graph& graph, int devices, RandomSource& random);

}  // namespace ff
