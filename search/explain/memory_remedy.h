#pragma once

#include <string>

#include "search/cost/duration.h"

namespace ff {

// A change that lets a strategy fit into device memory that does not.
struct MemoryRemedy {
  std::string what;
  Nanoseconds predicted = 0;
  double fullness = 0;
};

}  // namespace ff
