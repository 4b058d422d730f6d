#include "search/optimizer/mcmc/structured_proposals.h"

#include <algorithm>
#include <numeric>

#include "search/optimizer/mcmc/regular_devices.h"
#include "search/optimizer/operator_groups.h"

namespace ff {
namespace {

// A choice, each as often as its weight says.
int weighted(std::initializer_list<int> weights, RandomStream& random) {
  int rest = random.below(std::accumulate(weights.begin(), weights.end(), 0)), choice = 0;
  for (const int weight : weights) {
    if (rest < weight) break;
    rest -= weight;
    ++choice;
  }
  return choice;
}

}  // namespace

std::optional<Configuration> translated(const Graph& graph, const SearchSpace& space, OperatorId from, OperatorId to,
                                        const Configuration& configuration) {
  if (space.fixed_devices(to)) return std::nullopt;
  const auto& names = graph.operators[from].definition->dimensions();
  const auto& dimensions = graph.operators[to].definition->dimensions();
  Configuration result{Degrees(dimensions.size(), 1), configuration.devices};
  for (const int d : dimensions.indices())
    for (const int n : names.indices())
      if (names[n].name == dimensions[d].name) result.degrees[d] = configuration.degrees[n];
  const Vector<Degrees>& allowed = space.degrees(to);
  if (parts_of(result.degrees) != configuration.parts() ||
      std::find(allowed.begin(), allowed.end(), result.degrees) == allowed.end())
    return std::nullopt;
  return result;
}

StructuredProposals::StructuredProposals(const Graph& graph, const SearchSpace& space, int device_count)
    : graph_(graph), space_(space), device_count_(device_count), neighbours_(graph.operators.size()),
      layer_(graph.operators.size()), block_(graph.operators.size()) {
  for (const OperatorId op : graph.operator_ids())
    for (const TensorId input : graph.operators[op].inputs)
      if (const OperatorId producer = graph.tensors[input].producer; producer >= 0) {
        neighbours_[op].push_back(producer);
        neighbours_[producer].push_back(op);
      }
  for (Vector<OperatorId>& neighbours : neighbours_) sort_and_unique(neighbours);
  for (const Vector<OperatorId>& layer : parameter_sharing_layers(graph))
    for (const OperatorId op : layer) layer_[op] = layer;
  const Vector<int> block_of = colocation_groups(graph);
  Vector<Vector<OperatorId>> blocks(graph.operators.size());
  for (const OperatorId op : graph.operator_ids()) blocks[block_of[op]].push_back(op);
  for (const OperatorId op : graph.operator_ids()) block_[op] = blocks[block_of[op]];
}

// Of the layer, consecutive ones with `op` among them.
Vector<OperatorId> StructuredProposals::steps_around(OperatorId op, RandomStream& random) const {
  const Vector<OperatorId>& layer = layer_[op];
  const auto place = static_cast<int>(std::find(layer.begin(), layer.end(), op) - layer.begin());
  const int first = place - random.below(place + 1), last = place + random.below(layer.count() - place);
  return {layer.begin() + first, layer.begin() + last + 1};
}

// Up to some hops away.
Vector<OperatorId> StructuredProposals::on_the_same_devices(const Strategy& current, OperatorId op,
                                                            RandomStream& random) const {
  Vector<OperatorId> found = {op};
  Vector<bool> seen(graph_.operators.size(), false);
  seen[op] = true;
  const int reach = random.below(6), hops = reach == 5 ? graph_.operators.count() : 1 << reach;
  int begin = 0;
  for (int hop = 0; hop < hops; ++hop) {
    const int end = found.count();
    for (int i = begin; i < end; ++i)
      for (const OperatorId next : neighbours_[found[i]]) {
        if (seen[next] || current[next].devices != current[op].devices) continue;
        seen[next] = true;
        found.push_back(next);
      }
    begin = end;
  }
  return found;
}

Vector<OperatorId> StructuredProposals::operators_with(const Strategy& current, OperatorId op,
                                                       RandomStream& random) const {
  // The layer most often: the best strategies of most networks split the whole of a layer alike.
  switch (weighted({1, 3, 1, 2, 1}, random)) {
    case 1: return layer_[op];
    case 2: return steps_around(op, random);
    case 3: return block_[op];
    case 4: return on_the_same_devices(current, op, random);
    default: return {op};
  }
}

Vector<Change> StructuredProposals::like(const Configuration& configuration, OperatorId from,
                                         const Vector<OperatorId>& operators) const {
  Vector<Change> changes;
  for (const OperatorId op : operators)
    if (std::optional<Configuration> own = translated(graph_, space_, from, op, configuration))
      changes.push_back({op, std::move(*own)});
  return changes;
}

Vector<Change> StructuredProposals::like_a_neighbour(const Strategy& current, const Vector<OperatorId>& operators,
                                                     OperatorId op, RandomStream& random) const {
  if (neighbours_[op].empty()) return {};
  const OperatorId from = random.one_of(neighbours_[op]);
  return like(current[from], from, operators);
}

Vector<Change> StructuredProposals::other_devices(const Strategy& current, const Vector<OperatorId>& operators,
                                                  OperatorId op, RandomStream& random) const {
  const int parts = current[op].parts();
  const Vector<DeviceId> devices = random_regular_devices(parts, device_count_, random).of(parts, device_count_);
  Vector<Change> changes;
  for (const OperatorId other : operators)
    if (current[other].parts() == parts) changes.push_back({other, {current[other].degrees, devices}});
  return changes;
}

Vector<Change> StructuredProposals::rotation(const Strategy& current, const Vector<OperatorId>& operators,
                                             RandomStream& random) const {
  int by = random.below(2) == 0 ? random.below(device_count_) : random_divisor(device_count_, random);
  if (random.below(2) == 0) by = device_count_ - by;
  Vector<Change> changes;
  for (const OperatorId op : operators) {
    changes.push_back({op, current[op]});
    for (DeviceId& device : changes.back().configuration.devices) device = (device + by) % device_count_;
  }
  return changes;
}

// With devices in a pattern, or on the earlier ones: fewer parts are spread over them, more are consecutive from the
// first.
Configuration StructuredProposals::other_degrees(const Strategy& current, OperatorId op, RandomStream& random) const {
  Configuration configuration{space_.random_degrees(op, random, true), {}};
  const int parts = parts_of(configuration.degrees);
  if (random.below(2) == 0) {
    configuration.devices = random_regular_devices(parts, device_count_, random).of(parts, device_count_);
    return configuration;
  }
  const Vector<DeviceId>& before = current[op].devices;
  for (int part = 0; part < parts; ++part)
    configuration.devices.push_back(parts <= before.count() ? before[part * before.count() / parts]
                                                            : (before[0] + part) % device_count_);
  return configuration;
}

Vector<Change> StructuredProposals::draw(const Strategy& current, OperatorId op, RandomStream& random) const {
  const Vector<OperatorId> operators = operators_with(current, op, random);
  switch (weighted({3, 3, 2, 1, 1}, random)) {
    case 0: return other_devices(current, operators, op, random);
    case 1: return like(other_degrees(current, op, random), op, operators);
    case 2: return rotation(current, operators, random);
    case 3: return like_a_neighbour(current, operators, op, random);
    default: return like(space_.random_configuration(op, random, true), op, operators);
  }
}

}  // namespace ff
