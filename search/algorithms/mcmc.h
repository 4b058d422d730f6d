// Markov Chain Monte Carlo as an algorithm: what chains start from, levels of fewer devices, and what became of both.
#pragma once

#include "search/algorithms/algorithms.h"

namespace ff {

// The heuristic baselines, a search of fewer devices where there are many, and chains from what these found
// (docs/algorithms.md, mcmc). whole_operators: placement, no operator is split. Throws NotApplicable, InputError.
AlgorithmResult search_by_chains(AlgorithmRequest request, bool whole_operators);

}  // namespace ff
