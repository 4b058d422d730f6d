// A machine, or a cluster of equal ones, as a topology (fftopology/1), with the source of every number.
#pragma once

#include "common/json_file.h"
#include "search/discovery/machine.h"

namespace ff::discovery {

struct ClusterSettings {
  int64_t nodes = 1;
  double network_gb_per_s = 0;  // of each network adapter, or of a node without one; 0: as the adapters' own rates
  int cpu_ranks = 0;            // devices of a node without GPUs; 0: one a NUMA node
  int usable_processors = 0;    // of this process, where it is this machine; 0: all
};

// Throws InputError where the rate of the network is needed and not known. What was estimated is added to the notes.
Json topology_of(Machine& machine, const ClusterSettings& settings);

}  // namespace ff::discovery
