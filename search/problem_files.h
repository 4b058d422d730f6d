// From files to a problem: what the commands of ffsearch begin with.
#pragma once

#include <optional>
#include <string>

#include "search/cost/kernel_costs.h"
#include "search/optimizer/problem.h"

namespace ff {

struct ProblemFiles {
  std::string graph, topology;
  int64_t batch = 0, batch_per_device = 0;  // 0: the graph file's
  std::string annotations;                  // "": none
};

struct CostOptions {
  CostMode mode = CostMode::automatic;
  Precision precision = Precision::fp32;  // of GPUs' matrix products and convolutions
  Vector<std::string> profiles;           // files
  double momentum = 0;                    // of SGD, as ffexec's: what is not 0 takes memory
};

struct GraphAndTopology {
  Graph graph;
  Topology topology;
  std::string annotations = {};  // file; "": none
  Synchronization synchronization = Synchronization::all_reduce;
};

GraphAndTopology load_files(const ProblemFiles& files, Synchronization synchronization);

// What a command works on; `problem` refers to the rest.
struct Loaded {
  Loaded(GraphAndTopology files, CostMode mode, Vector<Profile> profiles, Precision precision, bool momentum = false);
  Loaded(const Loaded&) = delete;

  const Graph graph;
  const Topology topology;
  const Synchronization synchronization;
  const bool momentum;
  KernelCosts kernels;
  std::optional<Annotations> annotations;
  Problem problem() {
    return {graph, topology, kernels, annotations ? &*annotations : nullptr, synchronization, momentum};
  }
};

// A directory among the profiles stands for the file in it of each device model of the topology that has one,
// MODEL.json. Throws InputError.
Loaded load(GraphAndTopology files, const CostOptions& costs);

}  // namespace ff
