// A simulated timeline as a Chrome trace (chrome://tracing, ui.perfetto.dev).
#pragma once

#include <string>

#include "search/optimizer/evaluator.h"

namespace ff {

// One row a device for compute, one a channel for what crosses it; of devices that others stand for, none. Times in
// microseconds. Throws MachineError.
void write_trace(const std::string& path, Evaluator& evaluator, const Evaluator::Details& details);

}  // namespace ff
