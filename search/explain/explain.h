// ffsearch explain and ffsearch diff: why a strategy takes as long as it does, and how two differ.
#pragma once

#include <string>

#include "search/explain/explanation.h"
#include "search/explain/shortened.h"

namespace ff {

struct ExplainSettings {
  Vector<std::string> what_if;  // what_if.h
  int limit = 10;               // lines of each table of the text; JSON has all
  ExplainedPart part;           // of the plan that the file was shortened from
};

// Throws InputError for a question that cannot be asked of the strategy, before anything is simulated.
void expect_answerable(const Problem& problem, const Strategy& strategy, const ExplainSettings& settings);

// `file`: the strategy with its issue order and buffers; its graph and topology are the problem's. Throws InputError.
Explanation explain_strategy(const Problem& problem, const StrategyFile& file, const ExplainSettings& settings);

// Both plans as they would run, their settings that differ and, where these are equal, what each difference of
// configurations alone changes, from a towards b. Each evaluator has its file's graph, topology and settings.
Explanation explain_difference(Evaluator& evaluator_a, const StrategyFile& a, Evaluator& evaluator_b,
                               const StrategyFile& b, int limit, const ExplainedPart& part = {});

// What an edit changed, and the predicted iteration before and after.
Explanation describe_edit(const Problem& problem, const Strategy& before, const Strategy& after,
                          Nanoseconds predicted_before, Nanoseconds predicted_after);

// Throws InputError where the two are of different graphs (but for the optimizer) or machines.
void expect_comparable(const std::string& path_a, const StrategyFile& a, const std::string& path_b,
                       const StrategyFile& b);

}  // namespace ff
