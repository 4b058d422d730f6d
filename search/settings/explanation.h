// ffsearch explain and ffsearch diff for plans by settings (optimizer/parallelism.h) of any size: some devices are
// simulated for all where they do the same, and what could be otherwise are the settings.
#pragma once

#include "search/explain/explain.h"
#include "search/settings/report.h"

namespace ff {

// The critical path, what each stage does, what other values of each setting would change, the answers to `what_if`,
// and memory. `costs` with the framework's conventions. A plan with more tasks than explained_part takes is simulated
// with fewer micro-batches for the path and the memory, as `settings.part` says unless that is 1 of 1. Throws
// InputError for a question that cannot be asked.
Explanation explain_settings(const PlanOfFile& plan, const CostOptions& costs, const ExplainSettings& settings);

// Of two plans of the same graph, batch and number of devices, on the devices of `a`: what each setting that differs
// changes alone, from a towards b, where that is a plan.
Explanation explain_settings_difference(const PlanOfFile& a, const PlanOfFile& b, const CostOptions& costs, int limit);

}  // namespace ff
