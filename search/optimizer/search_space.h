// The SOAP space as the search samples it.
#pragma once

#include "common/strategy.h"
#include "common/vector.h"
#include "search/optimizer/random.h"

namespace ff {

// For every operator, the degrees that a random configuration can have: each degree divides the number of devices and
// is at most the dimension's size, and their product is at most the number of devices. (Strategy files may hold any
// other degrees.)
class SearchSpace {
 public:
  // whole_operators: no operator is split, which leaves device placement alone.
  SearchSpace(const Graph& graph, const Topology& topology, bool whole_operators = false);

  const Vector<Degrees>& degrees(OperatorId op) const { return degrees_[op]; }

  // Degrees uniformly from degrees(op). Devices: with equal chances, consecutive ones from a random first device on
  // (wrapping around), which keeps neighbours near, or each drawn alone.
  Configuration random_configuration(OperatorId op, RandomStream& random) const;
  Strategy random_strategy(RandomStream& random) const;

 private:
  Vector<Vector<Degrees>> degrees_;  // [operator]
  int device_count_;
};

}  // namespace ff
