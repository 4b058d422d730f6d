#include "tests/support/delta_comparison.h"

#include <algorithm>

#include "common/task_graph/issue_order.h"
#include "search/optimizer/evaluator.h"
#include "tests/support/random_network.h"
#include "tests/support/random_topology.h"

namespace ff {
namespace {

// Empty when all tasks have the same times.
std::string difference_of(const DeltaSimulator& delta, Evaluator& evaluator) {
  const Evaluator::Details details = evaluator.details(delta.strategy());
  Vector<DeltaSimulator::Record> records = delta.records();
  if (records.size() != details.tasks.tasks.size()) {
    return std::to_string(records.size()) + " records of " + std::to_string(details.tasks.tasks.size()) + " tasks";
  }
  std::sort(records.begin(), records.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
  Vector<int> order(records.size());
  for (size_t t = 0; t < order.size(); ++t) order[t] = static_cast<int>(t);
  std::sort(order.begin(), order.end(),
            [&](int a, int b) { return details.tasks.tasks[a].key < details.tasks.tasks[b].key; });
  for (size_t i = 0; i < order.size(); ++i) {
    const int t = order[i];
    const DeltaSimulator::Record& record = records[i];
    if (record.key == details.tasks.tasks[t].key && record.ready == details.timeline.ready[t] &&
        record.start == details.timeline.start[t] && record.end == details.timeline.end[t])
      continue;
    return task_name(evaluator.builder(), details.tasks, t) + ": delta " + std::to_string(record.ready) + " " +
           std::to_string(record.start) + " " + std::to_string(record.end) + ", full " +
           std::to_string(details.timeline.ready[t]) + " " + std::to_string(details.timeline.start[t]) + " " +
           std::to_string(details.timeline.end[t]);
  }
  if (delta.makespan() == details.timeline.makespan) return "";
  return "makespan: delta " + std::to_string(delta.makespan()) + ", full " + std::to_string(details.timeline.makespan);
}

// By what the simulator has rejected one proposal more than before.
std::string rejected_by(const DeltaStatistics& now, const DeltaStatistics& before) {
  constexpr Array<const char*, bound_count> names{"no bound", "a device's work", "a path", "synchronization",
                                                  "transfers"};
  for (size_t bound = 0; bound < bound_count; ++bound)
    if (now.rejected_by[bound] > before.rejected_by[bound]) return std::string(" by a bound on ") + names[bound];
  return now.rejected_during_simulation > before.rejected_during_simulation ? " at an event" : "";
}

}  // namespace

DeltaComparison compare_delta_with_full(RandomSource& random, int changes, int interval,
                                        Synchronization synchronization) {
  const Graph graph = random_graph(random);
  const int devices = static_cast<int>(random.between(1, 5));
  const Topology topology = random_topology(random, devices);
  KernelCosts kernels(topology, CostMode::analytic, {});
  TaskCostModel costs(graph, topology, kernels);
  Evaluator evaluator({graph, topology, kernels, nullptr, synchronization});
  DeltaSimulator delta(evaluator.builder(), topology, costs);
  Strategy strategy = random_strategy(graph, devices, random);
  delta.reset(strategy);
  std::string difference = difference_of(delta, evaluator);
  for (int change = 0; change < changes && difference.empty(); ++change) {
    const auto fail = [&](const std::string& text) { difference = "change " + std::to_string(change) + ": " + text; };
    const Strategy other = random_strategy(graph, devices, random);
    const OperatorId last = static_cast<OperatorId>(graph.operators.size()) - 1;
    Vector<Change> proposal;  // of one operator, or of some
    const OperatorId one = static_cast<OperatorId>(random.between(0, last));
    const int64_t several = random.between(0, 3);
    for (OperatorId op = 0; op <= last; ++op)
      if (op == one || (several == 0 && random.between(0, 2) == 0)) proposal.push_back({op, other[op]});
    // Limits around the current makespan, and none.
    const Nanoseconds limit = random.between(0, 2) == 0 ? INT64_MAX : delta.makespan() * random.between(70, 150) / 100;
    const bool compare = change % interval == 0 || change + 1 == changes;
    Strategy proposed = delta.strategy();
    for (const Change& each : proposal) proposed[each.op] = each.configuration;
    const DeltaStatistics before = delta.statistics();
    if (change % 4 == 0) {  // the least limit with which no bound may reject it
      const Nanoseconds judged = evaluator.evaluate(proposed).makespan;
      if (delta.propose(proposal, judged) != judged)
        fail("rejected at its makespan " + std::to_string(judged) + rejected_by(delta.statistics(), before));
      delta.reject();
    }
    const auto makespan = delta.propose(proposal, limit);
    if (compare || !makespan) {
      const Nanoseconds judged = evaluator.evaluate(proposed).makespan;
      if (makespan && *makespan != judged)
        fail("makespan: delta " + std::to_string(*makespan) + ", full " + std::to_string(judged));
      if (!makespan && judged <= limit)
        fail("rejected at the limit " + std::to_string(limit) + ", full takes " + std::to_string(judged) +
             rejected_by(delta.statistics(), before));
    }
    if (!difference.empty()) break;
    if (makespan && random.between(0, 1)) {
      delta.accept();
      strategy = proposed;
    } else {
      delta.reject();
    }
    if (delta.strategy() != strategy) fail("the strategy is another one");
    if (compare && difference.empty())
      if (const std::string text = difference_of(delta, evaluator); !text.empty()) fail(text);
  }
  return {difference, delta.statistics()};
}

}  // namespace ff
