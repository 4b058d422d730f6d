// A graph on a topology with analytic kernel costs, and what a search of it needs.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "search/algorithms/algorithms.h"

namespace ff {

struct SearchProblem {
  explicit SearchProblem(const std::string& graph_name, const std::string& topology_name = "p100-1x4")
      : SearchProblem(load_graph(FF_SOURCE_DIR "/graphs/" + graph_name + ".json"),
                      load_topology(FF_SOURCE_DIR "/topologies/" + topology_name + ".json")) {}
  SearchProblem(Graph a_graph, Topology a_topology) : graph(std::move(a_graph)), topology(std::move(a_topology)) {}

  Graph graph;
  Topology topology;
  KernelCosts kernels{topology, CostMode::analytic, {}};
  Problem problem{graph, topology, kernels};
  SearchSpace space{graph, topology};
  Evaluator evaluator{problem};
  std::atomic<bool> stop{false};

  // Chains from data parallelism and from a random strategy.
  McmcResult search(const McmcSettings& settings) const {
    RandomStream random(settings.seed, 99);
    return search_mcmc(problem,
                       {{"data-parallel", data_parallel(graph, topology)}, {"random", space.random_strategy(random)}},
                       settings, {stop});
  }
  AlgorithmResult run(const std::string& algorithm, const McmcSettings& settings = {.proposals = 300},
                      const Vector<std::string>& init = {}) {
    return run_algorithm(
        algorithm,
        {.evaluator = evaluator, .space = space, .settings = {.search = settings, .init = init}, .control = {stop}});
  }
};

// Calls visit for every combination of choices below `sizes`.
inline void for_each_choice(const Vector<int>& sizes, const std::function<void(const Vector<int>&)>& visit) {
  Vector<int> choice(sizes.size(), 0);
  int digit = 0;
  while (digit < sizes.count()) {
    visit(choice);
    for (digit = 0; digit < sizes.count(); ++digit) {
      if (++choice[digit] < sizes[digit]) break;
      choice[digit] = 0;
    }
  }
}

}  // namespace ff
