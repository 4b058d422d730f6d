#include "search/optimizer/mcmc/proposals.h"

#include <algorithm>
#include <cmath>

#include "search/optimizer/operator_groups.h"

namespace ff {
namespace {

// Whatever the shares.
bool contains(const Vector<Degrees>& allowed, const Degrees& degrees) {
  return std::any_of(allowed.begin(), allowed.end(), [&](const Degrees& one) { return one.same_degrees(degrees); });
}

// Relative to the fastest device; empty where all are alike.
Vector<double> relative_speeds(const Topology& topology) {
  Vector<double> speeds;
  double fastest = 0;
  bool alike = true;
  for (const DeviceId device : topology.devices.indices()) {
    const DeviceModel &model = topology.model_of(device), &first = topology.model_of(0);
    speeds.push_back(model.peak_tflops);
    fastest = std::max(fastest, speeds.back());
    alike = alike && model.peak_tflops == first.peak_tflops && model.memory_bytes == first.memory_bytes;
  }
  if (alike) return {};
  for (double& speed : speeds) speed /= fastest;
  return speeds;
}

Vector<Change> one_change(OperatorId op, Configuration configuration) {
  Vector<Change> changes;
  changes.push_back({op, std::move(configuration)});
  return changes;
}

}  // namespace

ProposalSource::ProposalSource(ProposalKind kind, const Graph& graph, const Topology& topology,
                               const SearchSpace& space)
    : kind_(kind), graph_(graph), space_(space), structured_(graph, space, topology.devices.count()),
      device_count_(topology.devices.count()),
      speed_(space.unequal_shares() ? relative_speeds(topology) : Vector<double>()),
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
  if (kind_ != ProposalKind::paper) {
    const bool slices = short_of_memory && random.below(3) == 0;
    const bool shares = !slices && !speed_.empty() && random.below(4) == 0;
    Vector<Change> changes = slices   ? cut_into_slices(current, random)
                             : shares ? change_shares(current, random)
                             : kind_ == ProposalKind::mixed || random.below(4) > 0
                                 ? draw_mixed(current, random)
                                 : structured_.draw(current, random_operator(random), random);
    std::erase_if(changes, [&](const Change& change) {
      return current[change.op] == change.configuration ||
             (space_.annotations() && !space_.annotations()->allow(change.op, change.configuration));
    });
    if (!changes.empty()) return changes;
  }
  const OperatorId op = random_operator(random);
  return one_change(op, space_.random_configuration(op, random, kind_ != ProposalKind::paper));
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

// Parts whose number in dimension d is halved lie where the part lay before the change. Row-major.
Configuration with_twice(const Configuration& configuration, int d) {
  Configuration result{configuration.degrees, {}};
  Vector<int> shares;  // both halves have that of the whole
  for (const int share : configuration.degrees.shares(d)) shares.insert(shares.end(), 2, share);
  result.degrees.set_shares(d, {});
  result.degrees[d] *= 2;
  result.degrees.set_shares(d, std::move(shares));
  int inner = 1;  // parts after one step in dimension d
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
      if (space_.allows_slices(one, sliced.degrees) && sliced.degrees.leave_none_empty(d, its[d].size))
        changes.push_back({one, std::move(sliced)});
    }
  }
  return changes;
}

std::optional<Vector<int>> ProposalSource::other_shares(const Configuration& configuration, int dimension,
                                                        RandomStream& random) const {
  constexpr int fine = 16;  // the mean share
  const Degrees& degrees = configuration.degrees;
  const int degree = degrees[dimension], way = random.below(4);
  if (way == 0) return Vector<int>(degree, 1);
  Vector<int> shares(degree, fine);
  if (way == 1) {  // as fast as the slowest of the devices that have such a part
    Vector<double> slowest(degree, 1);
    int behind = 1;
    for (int d = dimension + 1; d < degrees.count(); ++d) behind *= degrees[d];
    for (const int part : configuration.devices.indices()) {
      double& speed = slowest[part / behind % degree];
      speed = std::min(speed, speed_[configuration.devices[part]]);
    }
    double sum = 0;
    for (const double speed : slowest) sum += speed;
    for (const int i : shares.indices())
      shares[i] = std::clamp(static_cast<int>(std::lround(fine * degree * slowest[i] / sum)), 1, Degrees::most_share);
    return shares;
  }
  const Vector<int>& before = degrees.shares(dimension);
  int sum = 0;
  for (const int share : before) sum += share;
  for (const int i : before.indices()) shares[i] = std::max(1, (before[i] * fine * degree + sum / 2) / sum);
  const int more = random.below(degree), less = random.below(degree), by = 1 << random.below(3);
  if (more == less || shares[less] <= by || shares[more] + by > Degrees::most_share) return std::nullopt;
  shares[more] += by;
  shares[less] -= by;
  return shares;
}

Vector<Change> ProposalSource::change_shares(const Strategy& current, RandomStream& random) const {
  const OperatorId op = random_operator(random);
  const Configuration& own = current[op];
  const auto& dimensions = graph_.operators[op].definition->dimensions();
  Vector<int> split;
  for (const int d : own.degrees.indices())
    if (own.degrees[d] > 1) split.push_back(d);
  if (split.empty()) return {};
  const int dimension = random.one_of(split);
  const bool together = random.below(2) == 0;
  const std::optional<Vector<int>> shares = other_shares(own, dimension, random);
  Vector<Change> changes;
  if (!shares) return changes;
  for (const OperatorId other : graph_.operator_ids()) {
    if (other != op && (!together || current[other].devices != own.devices)) continue;
    const auto& its = graph_.operators[other].definition->dimensions();
    for (const int d : its.indices()) {
      if (its[d].name != dimensions[dimension].name || current[other].degrees[d] != own.degrees[dimension]) continue;
      if (space_.annotations() && space_.annotations()->find(other)) continue;
      Configuration changed = current[other];
      changed.degrees.set_shares(d, *shares);
      if (changed.degrees.leave_none_empty(d, its[d].size)) changes.push_back({other, std::move(changed)});
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
  for (const int d : degrees.indices())
    for (const int n : names.indices()) {
      if (names[n].name != dimensions[d].name || degrees[d] > dimensions[d].size) continue;
      Degrees with_shares = degrees;
      with_shares.set_shares(d, theirs.degrees.shares(n));
      if (with_shares.leave_none_empty(d, dimensions[d].size)) degrees = std::move(with_shares);
    }
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

// As many devices stay the same; fewer are spread over the earlier ones; more are consecutive from the first.
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
