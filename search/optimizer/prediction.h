// What a strategy is predicted to cost.
#pragma once

#include "search/cost/duration.h"

namespace ff {

struct Prediction {
  Nanoseconds makespan = 0;
  // the makespan; for a strategy that exceeds a device's memory, at least twice as much and growing with the excess
  double cost = 0;
  double fullness = 0;  // needed of the fullest device's memory, as a fraction of it; 0 where no memory is limited
  bool feasible() const { return fullness <= 1; }
};

// What fits goes before what does not, then the cheaper.
inline bool better(const Prediction& a, const Prediction& b) {
  return a.feasible() != b.feasible() ? a.feasible() : a.cost < b.cost;
}

}  // namespace ff
