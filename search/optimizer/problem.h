// What a search is given: an operator graph, the devices to train it on, and what kernels cost there; and what the user
// has decided already.
#pragma once

#include "common/graph.h"
#include "search/cost/kernel_costs.h"
#include "search/optimizer/annotations.h"

namespace ff {

// By reference: all must outlive whatever is made of a problem. Thread-safe, as are they.
struct Problem {
  const Graph& graph;
  const Topology& topology;
  KernelCosts& kernels;
  const Annotations* annotations = nullptr;  // none: the user has not decided anything
  Synchronization synchronization = Synchronization::all_reduce;
  bool momentum = false;  // of SGD: trained parameters have velocities, which take memory

  Strategy keeping_annotations(Strategy strategy) const {
    return keep_annotations(std::move(strategy), annotations, graph, topology);
  }
};

}  // namespace ff
