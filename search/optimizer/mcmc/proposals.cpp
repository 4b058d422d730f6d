#include "search/optimizer/mcmc/proposals.h"

#include <algorithm>

#include "search/optimizer/operator_groups.h"

namespace ff {
namespace {

bool contains(const Vector<Degrees>& allowed, const Degrees& degrees) {
  return std::find(allowed.begin(), allowed.end(), degrees) != allowed.end();
}

Vector<Change> one_change(OperatorId op, Configuration configuration) {
  Vector<Change> changes;
  changes.push_back({op, std::move(configuration)});
  return changes;
}

}  // namespace

ProposalSource::ProposalSource(ProposalKind kind, const Graph& graph, const Topology& topology,
                               const SearchSpace& space)
    : kind_(kind), graph_(graph), space_(space), device_count_(topology.devices.count()),
      neighbours_(graph.operators.size()), group_(graph.operators.size()) {
  for (OperatorId op : graph.operator_ids())
    if (!space.fixed_devices(op)) drawn_.push_back(op);
  if (drawn_.empty())
    for (OperatorId op : graph.operator_ids()) drawn_.push_back(op);
  for (OperatorId op : graph.operator_ids())
    for (TensorId input : graph.operators[op].inputs)
      if (const OperatorId producer = graph.tensors[input].producer; producer >= 0) {
        neighbours_[op].push_back(producer);
        neighbours_[producer].push_back(op);
      }
  for (const Vector<OperatorId>& layer : parameter_sharing_layers(graph))
    for (int i : layer.indices()) {
      group_[layer[i]] = layer;
      if (i > 0) neighbours_[layer[i]].push_back(layer[i - 1]);
      if (i + 1 < layer.count()) neighbours_[layer[i]].push_back(layer[i + 1]);
    }
  for (Vector<OperatorId>& neighbours : neighbours_) sort_and_unique(neighbours);
}

Vector<Change> ProposalSource::draw(const Strategy& current, RandomStream& random, bool short_of_memory) const {
  if (kind_ == ProposalKind::mixed) {
    const bool slices = short_of_memory && random.below(3) == 0;
    Vector<Change> changes = slices ? cut_into_slices(current, random) : draw_mixed(current, random);
    std::erase_if(changes, [&](const Change& change) {
      return current[change.op] == change.configuration ||
             (space_.annotations() && !space_.annotations()->allow(change.op, change.configuration));
    });
    if (!changes.empty()) return changes;
  }
  const OperatorId op = random_operator(random);
  return one_change(op, space_.random_configuration(op, random, kind_ == ProposalKind::mixed));
}

Vector<Change> ProposalSource::draw_mixed(const Strategy& current, RandomStream& random) const {
  const OperatorId op = random_operator(random);
  const bool with_group = random.below(2) == 0 && group_[op].size() > 1;
  const int way = random.below(20);
  if (with_group) return change_group(current, op, random);
  if (way >= 10) return {};
  if (way >= 9) return one_change(op, permute_devices(current[op], random));
  if (way >= 7) return one_change(op, change_degrees(current[op], op, random));
  if (way >= 4) return one_change(op, change_devices(current[op], random));
  if (std::optional<Configuration> copied = copy_neighbour(current, op, random))
    return one_change(op, *std::move(copied));
  return {};
}

namespace {

// Parts whose number in dimension d is halved lie where the part of before lay. Row-major.
Configuration with_twice(const Configuration& configuration, int d) {
  Configuration result{configuration.degrees, {}};
  result.degrees[d] *= 2;
  int inner = 1;  // parts behind one step in dimension d
  for (int other = d + 1; other < result.degrees.count(); ++other) inner *= result.degrees[other];
  for (int part = 0, parts = parts_of(result.degrees); part < parts; ++part)
    result.devices.push_back(configuration.devices[part / inner / 2 * inner + part % inner]);
  return result;
}

}  // namespace

Vector<Change> ProposalSource::cut_into_slices(const Strategy& current, RandomStream& random) const {
  const OperatorId op = random_operator(random);
  const auto& dimensions = graph_.operators[op].definition->dimensions();
  const std::string& name = dimensions[random.below(dimensions.count())].name;
  Vector<OperatorId> operators = {op};
  if (random.below(2) == 0) operators.insert(operators.end(), neighbours_[op].begin(), neighbours_[op].end());
  Vector<Change> changes;
  for (const OperatorId one : operators) {
    const auto& its = graph_.operators[one].definition->dimensions();
    for (int d : its.indices()) {
      if (its[d].name != name) continue;
      Configuration sliced = with_twice(current[one], d);
      if (space_.allows_slices(one, sliced.degrees)) changes.push_back({one, std::move(sliced)});
    }
  }
  return changes;
}

// The degrees for `op` that mean the same as the neighbour's do there; others with as many parts where none do.
std::optional<Configuration> ProposalSource::copy_neighbour(const Strategy& current, OperatorId op,
                                                            RandomStream& random) const {
  if (neighbours_[op].empty()) return std::nullopt;
  const OperatorId from = random.one_of(neighbours_[op]);
  const Configuration& theirs = current[from];
  const auto& names = graph_.operators[from].definition->dimensions();
  const auto& dimensions = graph_.operators[op].definition->dimensions();
  Degrees degrees(dimensions.size(), 1);
  for (size_t d = 0; d < dimensions.size(); ++d)
    for (size_t n = 0; n < names.size(); ++n)
      if (names[n].name == dimensions[d].name) degrees[d] = theirs.degrees[n];
  const Vector<Degrees>& allowed = space_.degrees(op);
  if (parts_of(degrees) != theirs.parts() || !contains(allowed, degrees)) {
    Vector<int> equal;
    for (int i : allowed.indices())
      if (parts_of(allowed[i]) == theirs.parts()) equal.push_back(i);
    if (equal.empty()) return std::nullopt;
    degrees = allowed[random.one_of(equal)];
  }
  return Configuration{degrees, theirs.devices};
}

// The devices stay where there are as many; fewer are spread over those of before; more are consecutive from the first.
Configuration ProposalSource::change_degrees(const Configuration& current, OperatorId op, RandomStream& random) const {
  Configuration configuration{space_.random_degrees(op, random, true), {}};
  const Vector<DeviceId>& before = current.devices;
  const int parts = parts_of(configuration.degrees);
  for (int part = 0; part < parts; ++part)
    configuration.devices.push_back(parts <= before.count() ? before[part * before.count() / parts]
                                                            : (before[0] + part) % device_count_);
  return configuration;
}

Configuration ProposalSource::change_devices(Configuration configuration, RandomStream& random) const {
  Vector<DeviceId>& devices = configuration.devices;
  const int way = random.below(4);
  const DeviceId device = random.below(device_count_);
  if (way < 2) {  // consecutive
    for (int part : devices.indices()) devices[part] = (device + part) % device_count_;
  } else if (way == 2) {  // each alone
    for (DeviceId& each : devices) each = random.below(device_count_);
  } else {  // one
    devices[random.below(devices.count())] = device;
  }
  return configuration;
}

Configuration ProposalSource::permute_devices(Configuration configuration, RandomStream& random) const {
  Vector<DeviceId>& devices = configuration.devices;
  if (random.below(2) == 0) {
    const int a = random.below(devices.count()), b = random.below(devices.count());
    std::swap(devices[a], devices[b]);
  } else {
    const int by = random.below(device_count_);
    for (DeviceId& device : devices) device = (device + by) % device_count_;
  }
  return configuration;
}

// One configuration for all: the operator's own with other devices or with other degrees, a random one, or as one of
// its neighbours has it.
Vector<Change> ProposalSource::change_group(const Strategy& current, OperatorId op, RandomStream& random) const {
  std::optional<Configuration> configuration;
  const int way = random.below(4);
  if (way == 0) configuration = change_devices(current[op], random);
  else if (way == 1) configuration = change_degrees(current[op], op, random);
  else if (way == 2 || neighbours_[op].empty()) configuration = space_.random_configuration(op, random, true);
  else configuration = copy_neighbour(current, op, random);
  Vector<Change> changes;
  if (configuration)
    for (OperatorId member : group_[op])
      if (contains(space_.degrees(member), configuration->degrees)) changes.push_back({member, *configuration});
  return changes;
}

}  // namespace ff
