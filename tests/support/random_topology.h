// Random device topologies.
#pragma once

#include "common/topology.h"
#include "tests/support/random_source.h"

namespace ff {

// Devices on one or two switches, or joined pairwise; few different rates, so that ready times tie often. Full and half
// duplex, links that keep their ends busy, rates of their own for all-reduce. `alike`: all devices and all links are
// equal, and where there are switches, one of them.
Topology random_topology(RandomSource& random, int devices, bool alike = false);

}  // namespace ff
