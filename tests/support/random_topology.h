// Random device topologies.
#pragma once

#include <random>

#include "common/topology.h"

namespace ff {

// Devices on one or two switches, or joined pairwise; few different rates, so that ready times tie often. Full and half duplex, links that keep
// their ends busy, rates of their own for all-reduce. `alike`: all devices and all links are equal, and where there are switches, one of them.
Topology random_topology(std::mt19937& random, int devices, bool alike = false);

}  // namespace ff
