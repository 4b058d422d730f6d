// The command `ffsearch topology`: what this machine is, the one of a recorded file, or a preset, as a topology.
#pragma once

#include <optional>

#include "search/commands.h"

namespace ff {

struct TopologyOptions {
  std::string out;                    // topology file to write
  std::string hwloc_xml;              // of another machine; "": this one
  std::optional<std::string> preset;  // a machine that is sold, instead
  int gpus_per_node = 0;              // of a preset; 0: as sold
  int64_t nodes = 1;                  // of a cluster of such machines
  double network_gb_per_s = 0;        // 0: as the network adapters say
  int cpu_ranks = 0;                  // devices of a node without GPUs; 0: one a NUMA node
};

CommandResult run_topology(const TopologyOptions& options);

}  // namespace ff
