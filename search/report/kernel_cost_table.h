// Where the times of a strategy's kernels come from: ffsearch simulate --explain-costs.
#pragma once

#include <string>

#include "search/cost/task_costs.h"
#include "search/optimizer/problem.h"

namespace ff {

// The kernels of a group of operators that are alike (plan_text.h), of its first part.
struct ExplainedKernel {
  std::string operators;  // patterns
  Phase phase;
  int64_t tasks;  // of an iteration
  Nanoseconds duration;
  CostSource source;
  std::string how;  // terms with their rates, or the signature of a profile's entry
};

// Forward and backward of each group, in the order of the graph. `strategy` is that of one micro-batch.
Vector<ExplainedKernel> explained_kernels(const Problem& problem, const Strategy& strategy);
// A table, and the sources that device models name.
std::string kernel_cost_text(const Vector<ExplainedKernel>& kernels, const Topology& topology);
Json kernel_cost_json(const Vector<ExplainedKernel>& kernels);

}  // namespace ff
