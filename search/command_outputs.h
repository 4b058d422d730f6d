// What several commands say of a strategy that was simulated, and the files that they write of it.
#pragma once

#include <functional>
#include <string>

#include "search/optimizer/evaluator.h"
#include "search/report/summary.h"

namespace ff {

// `times`: [task], how many tasks of further micro-batches it stands for, itself included; empty: for none.
SearchReport describe(const Problem& problem, const Evaluator::Details& details, const Vector<int64_t>& times = {});

// A strategy file, in this order of tasks. `kept`: what the provenance says instead of what it would say of the report.
void write_strategy(const std::string& out, const Strategy& strategy, const SearchReport& report,
                    const Problem& problem, Schedule schedule, Vector<std::string> issue_order, TransferBuffers buffers,
                    const Json& kept);

// A strategy file and a trace; "": none.
void write_outputs(const std::string& out, const std::string& trace, const Strategy& strategy,
                   const SearchReport& report, Evaluator& evaluator, const Evaluator::Details& details,
                   const Json& kept = Json::object());

// The simulated time of data parallelism, which every result shows for comparison.
Baseline data_parallel_baseline(Evaluator& evaluator,
                                const std::function<void(const Strategy&, const Prediction&)>& found = nullptr);

// Where sharding changes nothing, as without replicas of parameters; "" else.
std::string sharding_note(const StrategySettings& settings, const TaskGraph& tasks);

// Said as ffexec says it; "" where the file has no order, or one of its tasks. `unlike`: what the tasks follow from.
std::string issue_order_note(const std::string& path, const StrategyFile& file, Evaluator& evaluator,
                             const std::string& unlike = "configurations");

}  // namespace ff
