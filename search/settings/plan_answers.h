// What users ask of plans, beside which is best: why not another value of a setting, what the time is spent on, what
// another machine would change, which batch fits.
#pragma once

#include "search/explain/explain.h"
#include "search/settings/search.h"

namespace ff {

struct PlanQuestion {
  const Graph& graph;
  const Topology& topology;
  const CostOptions& costs;
  const Vector<SettingsPrediction>& plans;  // the fastest first, at least one
};

struct SettingsQuestion {
  const Graph& graph;
  const Topology& topology;
  const CostOptions& costs;
  const SettingsSearchOptions& options;
  const SettingsSearchResult& result;  // at least one plan
};
// For each value of a setting ("tp") that the search met, or one of them ("tp=4"), the best plan: each found by a
// search with that value given, of the same options, for what is left of their budget; else the best that was met.
// Throws InputError for another key, and for a value that is not possible.
Explanation best_by_value(const SettingsQuestion& question, const std::string& setting, const std::atomic<bool>& stop);
// What the devices of each stage do in an iteration of the first plan.
Explanation time_by_stage(const PlanQuestion& question);
// Throws InputError where one of these cannot be asked of any plan: another key or value, a change that is not
// understood, a batch that the graph cannot have.
void check_questions(const Graph& graph, const Topology& topology, const SettingsSearchOptions& options,
                     const Vector<std::string>& why, const Vector<std::string>& what_if);
// The plans under a change of machine or batch (explain/what_if.h): the first one's time, or why it is not possible
// then, and which is then the fastest.
Explanation plans_under_change(const PlanQuestion& question, const std::string& change);
// The largest micro-batch with which the first plan fits, its number of micro-batches unchanged, and so the batch.
Explanation largest_batch(const PlanQuestion& question);
// Where a search found nothing that fits: the settings that need the least memory of those met.
std::string nothing_fits_text(const SettingsSearchResult& result);

}  // namespace ff
