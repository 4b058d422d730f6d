// Delta simulation against full simulation along chains of proposals as a search makes them.
#pragma once

#include "tests/support/delta_comparison.h"

namespace ff {

// A network with the shapes of image classifiers (convolutions, normalization and pooling, then linear layers with most
// of the parameters, a loss) on 4 to 16 devices of a topology in topologies/. Proposals are drawn, limited and accepted
// as in a Markov chain (metropolis_hastings.h); from time to time the chain goes on from another strategy. Every answer
// of delta simulation is compared with full simulation: makespans of all proposals, whole timelines of accepted ones.
DeltaComparison compare_chain_with_full(RandomSource& random, int proposals,
                                        Synchronization synchronization = Synchronization::all_reduce);

}  // namespace ff
