#include "tests/support/delta_comparison.h"

#include <algorithm>

#include "search/optimizer/evaluator.h"
#include "search/simulator/timeline_difference.h"
#include "tests/support/random_network.h"
#include "tests/support/random_topology.h"

namespace ff {
namespace {

// Empty when all tasks have the same times.
std::string difference_of(const DeltaSimulator& delta, Evaluator& evaluator) {
  const Evaluator::Details details = evaluator.details(delta.strategy());
  const std::string difference =
      timeline_difference(delta.records(), evaluator.builder(), details.tasks, details.timeline);
  if (!difference.empty() || delta.makespan() == details.timeline.makespan) return difference;
  return "makespan: delta " + std::to_string(delta.makespan()) + ", full " + std::to_string(details.timeline.makespan);
}

}  // namespace

DeltaComparison compare_delta_with_full(RandomSource& random, int changes, int interval,
                                        Synchronization synchronization) {
  const Graph graph = random_graph(random);
  const int devices = static_cast<int>(random.between(1, 5));
  const Topology topology = random_topology(random, devices);
  KernelCosts kernels(topology, CostMode::analytic, {});
  TaskCostModel costs(graph, topology, kernels);
  Evaluator evaluator({graph, topology, kernels, nullptr, {synchronization}});
  DeltaSimulator delta(evaluator.builder(), topology, costs);
  Strategy strategy = random_strategy(graph, devices, random);
  delta.reset(strategy);
  std::string difference = difference_of(delta, evaluator);
  for (int change = 0; change < changes && difference.empty(); ++change) {
    if (change % 40 == 39) delta.reset(strategy = random_strategy(graph, devices, random));
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
    if (change % 4 == 0) {  // the least limit with which no bound may reject it
      const Nanoseconds judged = evaluator.evaluate(proposed).makespan;
      if (delta.propose(proposal, judged) != judged)
        fail("rejected at its makespan " + std::to_string(judged) + " " + delta.rejected_by());
      delta.reject();
    }
    const auto makespan = delta.propose(proposal, limit);
    if (compare || !makespan) {
      const Nanoseconds judged = evaluator.evaluate(proposed).makespan;
      if (makespan && *makespan != judged)
        fail("makespan: delta " + std::to_string(*makespan) + ", full " + std::to_string(judged));
      if (!makespan && judged <= limit)
        fail("rejected at the limit " + std::to_string(limit) + ", full takes " + std::to_string(judged) + " " +
             delta.rejected_by());
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
