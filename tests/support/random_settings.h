// Small transformers, and random settings of plans for them.
#pragma once

#include <optional>
#include <string>

#include "common/graph.h"
#include "common/topology.h"
#include "search/optimizer/parallelism.h"
#include "tests/support/committed_files.h"
#include "tests/support/random_network.h"

namespace ff {

// Of the committed network with four heads, so that they can be split among four devices.
Graph tiny_transformer(int64_t samples);
// As GPT-2: first and last layer share parameters, and a table of positions is computed once for all micro-batches.
Graph tiny_tied_transformer(int64_t samples);
// As Mixtral's, of four experts.
Graph tiny_mixture(int64_t samples);

// The settings of a plan for so many devices; nothing where they do not divide them.
std::optional<Parallelism> random_settings(RandomSource& random, const Graph& graph, int devices,
                                           bool has_experts = false);

}  // namespace ff
