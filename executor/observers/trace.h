// What really ran, as a file for chrome://tracing and Perfetto.
#pragma once

#include <string>

#include "common/vector.h"
#include "executor/observers/timekeeper.h"
#include "executor/program/program.h"

namespace ff {

// Rank 0: Chrome trace JSON of all ranks' events of one iteration; the others return "". All ranks call. One process
// row a rank; its first thread is what the rank did, its second the transfers that it received, from the sender's start
// to their arrival here. `device_names` by rank.
std::string gather_trace(const Program& program, const Vector<Event>& events, const Vector<std::string>& device_names);

}  // namespace ff
