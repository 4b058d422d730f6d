// Plans of large models have tens of millions of tasks, micro-batch after micro-batch alike. They are explained with
// fewer micro-batches.
#pragma once

#include <string>

#include "search/optimizer/evaluator.h"

namespace ff {

// What is simulated of a strategy: `micro_batches` of `of_all`; equal where nothing is left out.
struct ExplainedPart {
  int micro_batches = 1, of_all = 1;
  bool is_whole() const { return micro_batches == of_all; }
};

// Of `all` micro-batches with so many tasks each so many as have `most_tasks` together, a multiple of the stages, as
// interleaved chunks need it, and at least twice as many as there are stages, so that each runs forward and backward
// alternately.
ExplainedPart explained_part(int all, int64_t tasks_of_micro_batch, int64_t stages, int64_t most_tasks);

// Likewise, of compute tasks. Throws InputError where they exceed three times as many tasks. `path`: of the file, for
// messages.
constexpr int64_t most_explained_tasks = 2'000'000;
ExplainedPart explained_part(const std::string& path, const StrategyFile& file,
                             int64_t most_tasks = most_explained_tasks);
// Of two that are compared: the same part of both, `given` micro-batches, or 0: as many as either is explained with.
// Throws InputError where parts of unequal numbers of micro-batches would be compared.
ExplainedPart compared_part(const std::string& path_a, const StrategyFile& a, const std::string& path_b,
                            const StrategyFile& b, int given = 0, int64_t most_tasks = most_explained_tasks);

// As given on the command line. Throws InputError where the plan has fewer.
ExplainedPart given_part(const std::string& path, const StrategyFile& file, int micro_batches);

// The strategy for the batch of so many micro-batches. An issue order is left out if that is not all.
void shorten(StrategyFile& file, const ExplainedPart& part);

// The shortened strategy's issue order: 1F1B.
Vector<std::string> shortened_issue_order(Evaluator& evaluator, const StrategyFile& file);

}  // namespace ff
