// How mixtures of experts are split by hand (GShard: Lepikhin et al. 2020, arXiv 2006.16668).
#pragma once

#include <optional>

#include "common/strategy.h"

namespace ff {

// Experts over all devices, everything else by batch. Where there are fewer experts than devices, the rows of each are
// split too. Nothing where no operator has a dimension "expert".
std::optional<Strategy> gshard(const Graph& graph, const Topology& topology);

}  // namespace ff
