// What a search is given: an operator graph, the devices to train it on, and what kernels cost there.
#pragma once

#include "common/graph.h"
#include "search/cost/kernel_costs.h"

namespace ff {

// By reference: all three must outlive whatever is made of a problem. Thread-safe, as are they.
struct Problem {
  const Graph& graph;
  const Topology& topology;
  KernelCosts& kernels;
};

}  // namespace ff
