// Delta simulation against full simulation on a random network, topology and chain of changes.
#pragma once

#include <string>

#include "search/simulator/delta.h"
#include "tests/support/random_source.h"

namespace ff {

struct DeltaComparison {
  std::string difference;  // empty: none
  DeltaStatistics statistics;
};

// Proposals with and without a limit, accepted and rejected, and some at their own makespan, where a bound that is too
// large shows. Every 40 changes the simulator is reset to another strategy. The whole timelines are compared at first,
// every `interval` changes and at last; makespans then and whenever a proposal was rejected early.
DeltaComparison compare_delta_with_full(RandomSource& random, int changes, int interval,
                                        Synchronization synchronization = Synchronization::all_reduce);

}  // namespace ff
