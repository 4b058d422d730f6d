// What an iteration really took, from a trace that ffexec wrote, to be shown next to the prediction.
#pragma once

#include <map>
#include <string>

#include "search/report/html/analysis.h"

namespace ff::html {

struct MeasuredIteration {
  std::string path;
  struct Rank {
    Nanoseconds computing = 0;  // kernels and updates
    Nanoseconds moving = 0;     // copies, calls that send and receive, waits for data
  };
  Vector<Rank> ranks;                            // = device
  Nanoseconds time = 0;                          // from the first rank's begin to the last one's end
  std::map<std::string, Nanoseconds> computing;  // by the name of the task
};

// `path`: ffexec --trace, of as many ranks as the topology has devices. Throws InputError.
MeasuredIteration load_measured_iteration(const std::string& path, int device_count);

// "" without a measurement. Throws InputError where the trace is of another strategy's tasks.
std::string measured_section(const Analysis& analysis, const MeasuredIteration& measured);
// "measured 1.098 ms, predicted 1.067 ms (-2.8 %)"
std::string measured_text(Nanoseconds predicted, Nanoseconds measured);

}  // namespace ff::html
