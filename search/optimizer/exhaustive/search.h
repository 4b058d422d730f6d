// Exhaustive search: the strategy of least cost in the whole search space, proved to be that, or how far from proved.
//
// Before each run, configurations and pairs of neighbours that cannot belong to a strategy below a limit are struck out
// (Bounds). Then depth-first search: operators are fixed one after the other, the heaviest and its neighbours first, and
// a partial strategy is given up when a lower bound on every completion (PartialBounds) reaches the limit. Symmetric
// strategies are looked at once. What remains is simulated. The search runs several times with limits that approach the
// best known cost: each run that ends without a strategy below its limit proves the limit, which is what remains as the
// lower bound when the search is ended early.
#pragma once

#include "search/optimizer/evaluator.h"
#include "search/optimizer/exhaustive/space.h"
#include "search/optimizer/search_control.h"

namespace ff::exhaustive {

struct Settings {
  double budget_s = 0;         // wall time; 0: not limited
  int64_t nodes = 0;           // partial strategies to be bounded; 0: not limited
  uint64_t seed = 0;           // of the Markov chains that look for a first good strategy
  int64_t proposals = 320000;  // of these chains
  Assignments assignments = Assignments::all;
};

struct Result {
  Strategy best;
  Prediction best_prediction;
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

// Of its progress, `proposals` are the partial strategies bounded, `accepted` those simulated, `current` is the lower
// bound proven so far.
Result search(const Problem& problem, const Settings& settings, const SearchControl& control);

}  // namespace ff::exhaustive
