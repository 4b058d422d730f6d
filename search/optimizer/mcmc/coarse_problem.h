// Multilevel search: a cluster of many nodes that are alike is searched as one of fewer nodes with their share of the
// samples, where a proposal takes a fraction of the time; what is found there is projected onto all nodes and the
// search goes on from it. As in multilevel graph partitioning (Karypis and Kumar 1998, SIAM J. Sci. Comput. 20:1).
#pragma once

#include <optional>

#include "search/optimizer/baselines/sub_cluster.h"
#include "search/optimizer/problem.h"

namespace ff {

struct CoarseProblem {
  Graph graph;         // of 1 / copies of the samples
  SubCluster cluster;  // of 1 / copies of the nodes
  int copies;
  Vector<Vector<DeviceId>> devices;  // [copy]: what stands for the devices of `cluster`

  // Every copy does with its samples what the coarse strategy does with all of its: an operator's parts are its copies'
  // parts, which share out the samples.
  Strategy projected(const Graph& whole, const Strategy& coarse) const;
};

// Nothing where the devices are not `copies` times the same number of whole nodes, all alike, or the samples do not
// divide, or an operator does not split by sample as often.
std::optional<CoarseProblem> coarse_problem(const Problem& problem, int copies);

// How many copies make a problem small, yet of several nodes; 1: none, as it is small already.
int coarse_copies(const Topology& topology);

}  // namespace ff
