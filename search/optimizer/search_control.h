// How a search is watched and ended from outside.
#pragma once

#include <atomic>
#include <functional>

#include "search/cost/duration.h"

namespace ff {

struct SearchProgress {
  double elapsed_s = 0;
  int64_t proposals = 0, accepted = 0;  // of exhaustive search: partial strategies bounded, strategies simulated
  Nanoseconds current = 0, best = 0;    // of exhaustive search, current: the proven lower bound
};

struct SearchControl {
  const std::atomic<bool>& stop;  // ends the search early, with the best so far
  // Called a few times a second, by one thread at a time; may be empty.
  std::function<void(const SearchProgress&)> progress = nullptr;
};

}  // namespace ff
