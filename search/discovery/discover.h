// The command `ffsearch topology`: what this machine is, or the one of a recorded file, as a topology.
#pragma once

#include "search/commands.h"

namespace ff {

struct TopologyOptions {
  std::string out;              // topology file to write
  std::string hwloc_xml;        // of another machine; "": this one
  int64_t nodes = 1;            // of a cluster of such machines
  double network_gb_per_s = 0;  // 0: as the network adapters say
  int cpu_ranks = 0;            // devices of a node without GPUs; 0: one a NUMA node
};

CommandResult run_topology(const TopologyOptions& options);

}  // namespace ff
