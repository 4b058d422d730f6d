#include "tests/support/delta_comparison.h"

#include <algorithm>
#include <cmath>

#include "search/optimizer/evaluator.h"
#include "tests/support/random_network.h"

namespace ff {
namespace {

// Empty when all tasks have the same times.
std::string difference_of(const DeltaSimulator& delta, Evaluator& evaluator) {
  const Evaluator::Details details = evaluator.details(delta.strategy());
  std::vector<DeltaSimulator::Record> records = delta.records();
  if (records.size() != details.tasks.tasks.size()) {
    return std::to_string(records.size()) + " records of " + std::to_string(details.tasks.tasks.size()) + " tasks";
  }
  std::sort(records.begin(), records.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
  std::vector<int> order(records.size());
  for (size_t t = 0; t < order.size(); ++t) order[t] = static_cast<int>(t);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return details.tasks.tasks[a].key < details.tasks.tasks[b].key; });
  for (size_t i = 0; i < order.size(); ++i) {
    const int t = order[i];
    const DeltaSimulator::Record& record = records[i];
    if (record.key == details.tasks.tasks[t].key && record.ready == details.timeline.ready[t] && record.start == details.timeline.start[t] &&
        record.end == details.timeline.end[t])
      continue;
    return task_name(evaluator.builder(), details.tasks, t) + ": delta " + std::to_string(record.ready) + " " + std::to_string(record.start) +
                 " " + std::to_string(record.end) + ", full " + std::to_string(details.timeline.ready[t]) + " " +
                 std::to_string(details.timeline.start[t]) + " " + std::to_string(details.timeline.end[t]);
  }
  if (delta.makespan() == details.timeline.makespan) return "";
  return "makespan: delta " + std::to_string(delta.makespan()) + ", full " + std::to_string(details.timeline.makespan);
}

}  // namespace

// Devices on one or two switches, or joined pairwise; few different rates, so that ready times tie often.
Topology random_topology(RandomSource& random, int devices) {
  Json json = {{"format", "fftopology/1"}, {"name", "random"}};
  // Either everything takes the launch time (all ties), or times follow work.
  const bool ties = random.between(0, 1) == 0;
  json["device_models"]["m"] = {{"peak_tflops", ties ? 1e9 : 1e-4}, {"memory_gb_per_s", ties ? 1e9 : 0.05}, {"launch_us", random.between(0, 3)}};
  json["device_models"]["n"] = {{"peak_tflops", ties ? 1e9 : 2e-4}, {"memory_gb_per_s", ties ? 1e9 : 0.1}, {"launch_us", random.between(0, 3)}};
  const auto link = [&](const std::string& a, const std::string& b) {
    Json result = {{"between", {a, b}}, {"bandwidth_gb_per_s", std::pow(2.0, random.between(-6, 0))}, {"latency_us", random.between(0, 2)}};
    if (random.between(0, 3) == 0) result["duplex"] = "half";
    if (random.between(0, 4) == 0) result["busy_endpoints"] = true;
    if (random.between(0, 4) == 0) result["all_reduce_gb_per_s"] = 0.25;
    return result;
  };
  for (int d = 0; d < devices; ++d)
    json["devices"].push_back({{"name", "d" + std::to_string(d)}, {"kind", "gpu"}, {"model", random.between(0, 3) ? "m" : "n"}});
  json["links"] = Json::array();
  if (random.between(0, 1)) {
    json["switches"] = {"s0", "s1"};
    json["links"].push_back(link("s0", "s1"));
    for (int d = 0; d < devices; ++d) json["links"].push_back(link("d" + std::to_string(d), random.between(0, 1) ? "s0" : "s1"));
  } else {
    for (int d = 0; d < devices; ++d)
      for (int other = 0; other < d; ++other) json["links"].push_back(link("d" + std::to_string(d), "d" + std::to_string(other)));
  }
  return parse_topology(parse_json(json.dump(), "topology"));
}

DeltaComparison compare_delta_with_full(RandomSource& random, int changes, int interval) {
  const Graph graph = parse_graph(parse_json(random_network(random).dump(), "graph"));
  const int devices = static_cast<int>(random.between(1, 5));
  const Topology topology = random_topology(random, devices);
  KernelCosts kernels(topology, CostMode::analytic, {});
  TaskCostModel costs(graph, topology, kernels);
  Evaluator evaluator(graph, topology, kernels);
  DeltaSimulator delta(evaluator.builder(), topology, costs);
  Strategy strategy = random_strategy(graph, devices, random);
  delta.reset(strategy);
  std::string difference = difference_of(delta, evaluator);
  for (int change = 0; change < changes && difference.empty(); ++change) {
    const auto fail = [&](const std::string& text) { difference = "change " + std::to_string(change) + ": " + text; };
    const OperatorId op = static_cast<OperatorId>(random.between(0, static_cast<int64_t>(graph.operators.size()) - 1));
    const Configuration proposal = random_strategy(graph, devices, random)[op];
    // Limits around the current makespan, and none.
    const Nanoseconds limit = random.between(0, 2) == 0 ? INT64_MAX : delta.makespan() * random.between(70, 150) / 100;
    const auto makespan = delta.propose(op, proposal, limit);
    const bool compare = change % interval == 0 || change + 1 == changes;
    Strategy proposed = delta.strategy();
    proposed[op] = proposal;
    if (compare || !makespan) {
      const Nanoseconds judged = evaluator.evaluate(proposed).makespan;
      if (makespan && *makespan != judged) fail("makespan: delta " + std::to_string(*makespan) + ", full " + std::to_string(judged));
      if (!makespan && judged <= limit) fail("rejected at the limit " + std::to_string(limit) + ", full takes " + std::to_string(judged));
    }
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
