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
  std::optional<Precision> precision;  // instead of what the strategy says
  Vector<std::string> profiles;        // files
  OptimizerFlags optimizer;            // instead of what the graph file says
  FrameworkConventions conventions = {};
};

struct GraphAndTopology {
  Graph graph;  // of all micro-batches
  Topology topology;
  std::string annotations = {};  // file; "": none
  StrategySettings settings = {};
  std::shared_ptr<const Replicas> replicas = nullptr;  // that the devices stand for; null: themselves
};

GraphAndTopology load_files(const ProblemFiles& files, const StrategySettings& settings);

// Its graph has the types that follow from the precision.
GraphAndTopology with_precision(GraphAndTopology files, Precision precision);

// What a command works on; `problem` refers to the rest.
struct Loaded {
  Loaded(GraphAndTopology files, CostMode mode, Vector<Profile> profiles, const FrameworkConventions& conventions = {});
  Loaded(const Loaded&) = delete;

  const Graph graph;                               // of one micro-batch
  const std::shared_ptr<const Graph> batch_graph;  // of all micro-batches; null: there is one
  const Topology topology;
  const StrategySettings settings;
  const std::shared_ptr<const Replicas> replicas;
  KernelCosts kernels;
  std::optional<Annotations> annotations;
  Problem problem() {
    return {graph,       topology,
            kernels,     annotations ? &*annotations : nullptr,
            settings,    state_buffers(graph.optimizer.value_or(OptimizerSettings())),
            batch_graph, replicas};
  }
};

// With the optimizer and the precision of the flags, so that a strategy file has them and ffexec trains with them.
// A directory among the profiles stands for the file in it of each device model of the topology that has one,
// MODEL.json. Throws InputError.
Loaded load(GraphAndTopology files, const CostOptions& costs);

}  // namespace ff
