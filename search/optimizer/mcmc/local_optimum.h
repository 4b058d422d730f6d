// Is a strategy locally optimal: is no strategy better that differs in one operator?
#pragma once

#include <functional>
#include <string>

#include "search/optimizer/mcmc/chain_oracle.h"
#include "search/optimizer/search_control.h"
#include "search/optimizer/search_space.h"

namespace ff {

// The configurations of an operator that a neighbour may have: all degrees of the search space; for each, every
// assignment of devices where there are at most `most_assignments` of them (devices ^ parts), else consecutive devices
// from every first one (wrapping around).
class Neighbourhood {
 public:
  Neighbourhood(const Graph& graph, const Topology& topology, const SearchSpace& space, int64_t most_assignments = 256);

  // Calls visit(configuration) for each until it returns false.
  void for_each(OperatorId op, const std::function<bool(const Configuration&)>& visit) const;
  // "all degrees of the search space, every assignment of devices", or what else was looked at.
  const std::string& text() const { return text_; }

 private:
  bool every_assignment(int parts) const;

  const SearchSpace& space_;
  int device_count_;
  int64_t most_assignments_;
  std::string text_;
};

struct LocalOptimum {
  Strategy strategy;
  Prediction prediction;
  bool proven = false;       // no neighbour of `strategy` is better; false when stopped before that was known
  int64_t neighbours = 0;    // of `strategy`, itself not counted; of the operators looked at, when stopped
  int64_t operators = 0;     // whose neighbours are known not to be better than `strategy`; all of them when proven
  int64_t evaluated = 0;     // on the way
  int64_t improvements = 0;  // 0: the strategy given was locally optimal
  double elapsed_s = 0;
};

// Goes through all neighbours of `start`, moves to each that is better, and ends when none is. Of its progress,
// `proposals` are the strategies evaluated.
LocalOptimum local_optimum(const Problem& problem, const Neighbourhood& neighbourhood, const Strategy& start,
                           SimulatorKind simulator, const SearchControl& control);

}  // namespace ff
