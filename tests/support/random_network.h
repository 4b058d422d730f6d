// Random small networks and strategies for the equivalence test.
#pragma once

#include <random>
#include <string>

#include "common/strategy.h"

namespace ff {

// A valid ffgraph/1 with a loss, drawn from `random`: all operator types, residual additions, concatenations, shared parameters.
Json random_network(std::mt19937& random);

// Any degrees (dividing or not) and any of the devices, several tasks on one and none on others included.
Strategy random_strategy(const Graph& graph, int devices, std::mt19937& random);

}  // namespace ff
