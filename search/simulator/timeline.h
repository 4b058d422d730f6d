// What a simulation gives: ready, start and end of every task.
#pragma once

#include "search/cost/duration.h"

namespace ff {

struct Timeline {
  Vector<Nanoseconds> ready, start, end;  // by task
  Nanoseconds makespan = 0;
};

}  // namespace ff
