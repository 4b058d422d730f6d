// A simulated timeline as a Chrome trace (chrome://tracing, ui.perfetto.dev).
#pragma once

#include <string>

#include "common/topology.h"
#include "search/optimizer/evaluator.h"

namespace ff {

// One row a device for compute, one a channel for what crosses it. Times in microseconds. Throws MachineError.
void write_trace(const std::string& path, const Topology& topology, TaskGraphBuilder& builder,
                 const Evaluator::Details& details);

}  // namespace ff
