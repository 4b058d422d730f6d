#include "search/optimizer/baselines/pipeline.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "search/optimizer/device_nodes.h"
#include "search/optimizer/operator_groups.h"

namespace ff {
namespace {

constexpr Nanoseconds never = std::numeric_limits<Nanoseconds>::max();

// Numbers of devices that a stage may have: so many parts are in the search space of all devices.
Vector<int> stage_sizes(int devices) {
  constexpr int finest = 64;
  Vector<int> sizes;
  for (int size = 1; size < devices; ++size)
    if (devices % size == 0 && size * finest >= devices) sizes.push_back(size);
  return sizes;
}

// Devices in the order in which stages take them: as the topology's links have them, or the first of each node, then
// the second of each, and so on.
Vector<DeviceId> devices_in_order(const Topology& topology, bool across_nodes) {
  if (!across_nodes) return topology.by_links();
  Vector<DeviceId> order;
  const Vector<Vector<DeviceId>> nodes = devices_by_node(topology);
  for (int place = 0; order.count() < topology.devices.count(); ++place)
    for (const Vector<DeviceId>& node : nodes)
      if (place < node.count()) order.push_back(node[place]);
  return order;
}

// [place in sizes][depth]: on the slowest kind of device.
Vector<Vector<Nanoseconds>> times_by_depth(Evaluator& evaluator, const Vector<int>& depth_of,
                                           const Vector<int>& sizes) {
  const Problem& problem = evaluator.problem();
  const int depths = *std::max_element(depth_of.begin(), depth_of.end()) + 1;
  const Vector<DeviceId> all = devices_in_order(problem.topology, false);
  Vector<Vector<Nanoseconds>> times;
  for (const int size : sizes) {
    times.emplace_back(depths, 0);
    for (const OperatorId op : problem.graph.operator_ids()) {
      const Degrees degrees = problem.expanded_degrees(
          op, split_over(*problem.graph.operators[op].definition, 0, {all.begin(), all.begin() + size}).degrees);
      Nanoseconds slowest = 0;
      for (const int model : problem.topology.models.indices()) {
        const TaskCostModel::PartCost& cost = evaluator.cost_model().part_cost(op, degrees, 0, model);
        slowest = std::max(slowest, cost.all_forward() + cost.all_backward());
      }
      times.back()[depth_of[op]] += slowest;
    }
  }
  return times;
}

// With more stages than there are devices for, the first stage's devices have the next one, and so on.
Strategy strategy_of(const Graph& graph, const Vector<int>& depth_of, const StageCut& cut,
                     const Vector<DeviceId>& devices) {
  Vector<int> first_device(cut.devices.size(), 0);
  std::exclusive_scan(cut.devices.begin(), cut.devices.end(), first_device.begin(), 0);
  for (int& first : first_device) first %= devices.count();
  Strategy strategy;
  for (const OperatorId op : graph.operator_ids()) {
    const auto behind = std::upper_bound(cut.first_item.begin(), cut.first_item.end(), depth_of[op]);
    const int stage = static_cast<int>(behind - cut.first_item.begin()) - 1;
    const auto begin = devices.begin() + first_device[stage];
    strategy.push_back(split_over(*graph.operators[op].definition, 0, {begin, begin + cut.devices[stage]}));
  }
  return strategy;
}

// Stages of equally many devices, where these divide, with one chunk of layers or several; and of as many devices as
// their work asks for.
Vector<StageCut> cuts(const Vector<Vector<Nanoseconds>>& times, const Vector<int>& sizes, int stages, int devices,
                      bool interleaved) {
  Vector<StageCut> found;
  for (const int size : sizes.indices())
    if (sizes[size] * stages == devices)
      for (int chunks = 1; chunks <= (interleaved ? 4 : 1); chunks *= 2)
        if (std::optional<StageCut> equal =
                cut_into_stages({times[size]}, {sizes[size]}, stages * chunks, devices * chunks))
          found.push_back(*std::move(equal));
  if (std::optional<StageCut> any = cut_into_stages(times, sizes, stages, devices))
    if (found.empty() || any->devices != found[0].devices || any->first_item != found[0].first_item)
      found.push_back(*std::move(any));
  return found;
}

// As the baseline is predicted in the end: micro-batches by 1F1B.
Prediction in_its_order(Evaluator& evaluator, const Strategy& strategy) {
  if (evaluator.problem().settings.micro_batches == 1) return evaluator.evaluate(strategy);
  const Evaluator::Details details = evaluator.details(strategy, TaskOrder::one_forward_one_backward);
  return evaluator.prediction(details);
}

}  // namespace

std::optional<StageCut> cut_into_stages(const Vector<Vector<Nanoseconds>>& times_ns, const Vector<int>& sizes,
                                        int stages, int devices) {
  const int items = times_ns[0].count();
  if (stages < 1 || stages > items || stages > devices) return std::nullopt;
  const int unit = std::accumulate(sizes.begin(), sizes.end(), devices, [](int a, int b) { return std::gcd(a, b); });
  const int units = devices / unit;
  Vector<Vector<Nanoseconds>> until;  // [place in sizes][item]: of all items before
  for (const Vector<Nanoseconds>& times : times_ns) {
    until.emplace_back(1, 0);
    for (const Nanoseconds time : times) until.back().push_back(until.back().back() + time);
  }
  // Of the first `end` items in so many stages, on so many devices: the slowest stage, and where the last begins.
  struct Cell {
    Nanoseconds slowest = never;
    int first = 0, size = 0;
  };
  Vector<Vector<Vector<Cell>>> cells(stages + 1, Vector<Vector<Cell>>(items + 1, Vector<Cell>(units + 1)));
  cells[0][0][0].slowest = 0;
  for (int stage = 1; stage <= stages; ++stage)
    for (int end = stage; end <= items; ++end)
      for (const int place : sizes.indices()) {
        const int size = sizes[place] / unit;
        for (int used = size; used <= units; ++used) {
          Cell& cell = cells[stage][end][used];
          for (int first = end - 1; first >= stage - 1; --first) {
            const Nanoseconds time = until[place][end] - until[place][first];
            if (time >= cell.slowest) break;  // longer stages are no better
            const Nanoseconds slowest = std::max(time, cells[stage - 1][first][used - size].slowest);
            if (slowest < cell.slowest) cell = {slowest, first, place};
          }
        }
      }
  const Vector<Cell>& whole = cells[stages][items];
  int used = static_cast<int>(
      std::min_element(whole.begin(), whole.end(), [](const Cell& a, const Cell& b) { return a.slowest < b.slowest; }) -
      whole.begin());
  if (whole[used].slowest == never) return std::nullopt;
  StageCut cut{Vector<int>(stages, 0), Vector<int>(stages, 0)};
  for (int stage = stages, end = items; stage > 0; --stage) {
    const Cell& cell = cells[stage][end][used];
    cut.first_item[stage - 1] = end = cell.first;
    cut.devices[stage - 1] = sizes[cell.size];
    used -= sizes[cell.size] / unit;
  }
  return cut;
}

std::optional<Pipeline> pipeline(Evaluator& evaluator, const SearchControl& control) {
  const Graph& graph = evaluator.problem().graph;
  const Topology& topology = evaluator.problem().topology;
  const Vector<Vector<OperatorId>> layers = parameter_sharing_layers(graph);
  const Vector<int> sizes = stage_sizes(topology.devices.count());
  // Without steps that share a layer, or micro-batches, one stage would wait for the other.
  if (sizes.empty() || (evaluator.problem().settings.micro_batches == 1 &&
                        std::none_of(layers.begin(), layers.end(), [](const auto& layer) { return layer.size() > 1; })))
    return std::nullopt;
  const Vector<int> depth_of = layer_depths(graph);
  const Vector<Vector<Nanoseconds>> times = times_by_depth(evaluator, depth_of, sizes);
  const Vector<DeviceId> neighbouring = devices_in_order(topology, false), spread = devices_in_order(topology, true);
  std::optional<Pipeline> best;
  Prediction best_in_its_order{};
  constexpr int most_stages = 16, counts_without_better = 2;
  for (int stages = 2, last_better = 2; stages <= std::min(most_stages, last_better + counts_without_better); ++stages)
    for (const StageCut& cut :
         cuts(times, sizes, stages, topology.devices.count(), evaluator.problem().settings.micro_batches > 1))
      for (const bool across_nodes : {false, true}) {
        if ((across_nodes && spread == neighbouring) || (best && control.ended())) continue;
        Strategy strategy = evaluator.problem().keeping_annotations(
            strategy_of(graph, depth_of, cut, across_nodes ? spread : neighbouring));
        const Prediction compared = in_its_order(evaluator, strategy);
        if (best && !better(compared, best_in_its_order)) continue;
        best_in_its_order = compared;
        best = {std::move(strategy),
                {cut.devices.begin(), cut.devices.begin() + stages},
                cut.devices.count() / stages,
                across_nodes,
                {}};
        last_better = stages;
      }
  if (best) best->prediction = evaluator.evaluate(best->strategy);
  return best;
}

}  // namespace ff
