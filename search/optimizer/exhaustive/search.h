// Exhaustive search: the strategy of least cost in the whole search space, proved to be that, or how far from proved.
//
// Depth-first search over the operators in topological order. Partial strategies are given up when a lower bound on
// every completion (PrefixBounds) reaches the limit; before, configurations and pairs of neighbours that cannot belong
// to a better strategy are struck out (ExhaustiveBounds). Symmetric strategies are looked at once. What remains is
// simulated. The search runs several times with limits that approach the best known cost: each run that ends without a
// strategy below its limit proves the limit, which is what remains as the lower bound when the search is ended early.
#pragma once

#include <atomic>
#include <functional>

#include "search/optimizer/evaluator.h"
#include "search/optimizer/exhaustive/space.h"

namespace ff {

struct ExhaustiveProgress {
  double elapsed_s = 0;
  int64_t nodes = 0, leaves = 0;
  Nanoseconds best = 0, lower_bound = 0;
};

struct ExhaustiveSettings {
  double budget_s = 0;         // wall time; 0: not limited
  int64_t nodes = 0;           // partial strategies to be bounded; 0: not limited
  uint64_t seed = 0;           // of the Markov chains that look for a first good strategy
  int64_t proposals = 320000;  // of these chains
  Assignments assignments = Assignments::all;
};

struct ExhaustiveResult {
  Strategy best;
  Evaluation best_evaluation;
  bool proven = false;  // no strategy of the space costs less than `best`
  // no strategy of the space costs less than this, in ns; the best cost when proven, 0 before anything is
  Nanoseconds lower_bound = 0;
  double log10_size = 0;   // decimal logarithm of the number of strategies in the space
  int64_t symmetries = 1;  // permutations of devices that change nothing
  // The space was too large to be laid out (more than 8 parts an operator or 100,000 configurations): nothing was
  // searched.
  bool too_large = false;
  int64_t nodes = 0;           // partial strategies whose bound was computed
  int64_t leaves = 0;          // strategies simulated
  Nanoseconds first_cost = 0;  // of the Markov chains' best strategy
  double first_found_s = 0, elapsed_s = 0;
  bool interrupted = false;  // by the budget, the number of nodes, or `stop`
};

ExhaustiveResult search_exhaustive(const Graph& graph, const Topology& topology, KernelCosts& kernels,
                                   const ExhaustiveSettings& settings, const std::atomic<bool>& stop,
                                   const std::function<void(const ExhaustiveProgress&)>& progress);

}  // namespace ff
