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
  OptimizerFlags optimizer;               // instead of what the graph file says
};

struct GraphAndTopology {
  Graph graph;  // of all micro-batches
  Topology topology;
  std::string annotations = {};  // file; "": none
  StrategySettings settings = {};
};

GraphAndTopology load_files(const ProblemFiles& files, const StrategySettings& settings);

// What a command works on; `problem` refers to the rest.
struct Loaded {
  Loaded(GraphAndTopology files, CostMode mode, Vector<Profile> profiles, Precision precision);
  Loaded(const Loaded&) = delete;

  const Graph graph;                               // of one micro-batch
  const std::shared_ptr<const Graph> batch_graph;  // of all micro-batches; null: there is one
  const Topology topology;
  const StrategySettings settings;
  KernelCosts kernels;
  std::optional<Annotations> annotations;
  Problem problem() {
    return {graph,      topology,
            kernels,    annotations ? &*annotations : nullptr,
            settings,   state_buffers(graph.optimizer.value_or(OptimizerSettings())),
            batch_graph};
  }
};

// With the optimizer of the flags in the graph, so that a strategy file has it and ffexec trains with it.
// A directory among the profiles stands for the file in it of each device model of the topology that has one,
// MODEL.json. Throws InputError.
Loaded load(GraphAndTopology files, const CostOptions& costs);

}  // namespace ff
