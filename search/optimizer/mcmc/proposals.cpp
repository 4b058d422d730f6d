#include "search/optimizer/mcmc/proposals.h"

#include <algorithm>

#include "search/optimizer/baselines/expert.h"

namespace ff {
ProposalSource::ProposalSource(ProposalKind kind, const Graph& graph, const Topology& topology,
                               const SearchSpace& space)
    : kind_(kind), graph_(graph), space_(space), device_count_(static_cast<uint32_t>(topology.devices.size())),
      neighbours_(graph.operators.size()), group_(graph.operators.size()) {
  for (OperatorId op = 0; op < static_cast<OperatorId>(graph.operators.size()); ++op)
    for (TensorId input : graph.operators[op].inputs)
      if (const OperatorId producer = graph.tensors[input].producer; producer >= 0) {
        neighbours_[op].push_back(producer);
        neighbours_[producer].push_back(op);
      }
  for (const Vector<OperatorId>& layer : parameter_sharing_layers(graph))
    for (size_t i = 0; i < layer.size(); ++i) {
      group_[layer[i]] = layer;
      if (i > 0) neighbours_[layer[i]].push_back(layer[i - 1]);
      if (i + 1 < layer.size()) neighbours_[layer[i]].push_back(layer[i + 1]);
    }
  for (Vector<OperatorId>& neighbours : neighbours_) {
    std::sort(neighbours.begin(), neighbours.end());
    neighbours.erase(std::unique(neighbours.begin(), neighbours.end()), neighbours.end());
  }
}

void ProposalSource::draw(const Strategy& current, RandomStream& random, Vector<Change>& changes) const {
  changes.clear();
  if (kind_ == ProposalKind::mixed) draw_mixed(current, random, changes);
  std::erase_if(changes, [&](const Change& change) { return current[change.op] == change.configuration; });
  if (!changes.empty()) return;
  const OperatorId op = static_cast<OperatorId>(random.below(static_cast<uint32_t>(graph_.operators.size())));
  changes.push_back({op, space_.random_configuration(op, random)});
}

void ProposalSource::draw_mixed(const Strategy& current, RandomStream& random, Vector<Change>& changes) const {
  const OperatorId op = static_cast<OperatorId>(random.below(static_cast<uint32_t>(graph_.operators.size())));
  const bool with_group = random.below(2) == 0 && group_[op].size() > 1;
  const uint32_t move = random.below(20);
  bool found = false;
  if (with_group) found = change_group(current, op, random, changes);
  else if (move < 4) found = copy_neighbour(current, op, random, changes);
  else if (move < 7) found = change_devices(current, op, random, changes);
  else if (move < 9) found = change_degrees(current, op, random, changes);
  else if (move < 10) found = permute_devices(current, op, random, changes);
  if (!found) changes.clear();
}

bool ProposalSource::translate(OperatorId from, const Configuration& configuration, OperatorId op, RandomStream& random,
                               Configuration& result) const {
  const auto& names = graph_.operators[from].definition->dimensions();
  const auto& dimensions = graph_.operators[op].definition->dimensions();
  const int parts = static_cast<int>(configuration.parts());
  Degrees degrees(dimensions.size(), 1);
  for (size_t d = 0; d < dimensions.size(); ++d)
    for (size_t n = 0; n < names.size(); ++n)
      if (names[n].name == dimensions[d].name) degrees[d] = configuration.degrees[n];
  const auto& allowed = space_.degrees(op);
  if (parts_of(degrees) != parts || std::find(allowed.begin(), allowed.end(), degrees) == allowed.end()) {
    Vector<size_t> equal;
    for (size_t i = 0; i < allowed.size(); ++i)
      if (parts_of(allowed[i]) == parts) equal.push_back(i);
    if (equal.empty()) return false;
    degrees = allowed[equal[random.below(static_cast<uint32_t>(equal.size()))]];
  }
  result = {degrees, configuration.devices};
  return true;
}

bool ProposalSource::copy_neighbour(const Strategy& current, OperatorId op, RandomStream& random,
                                    Vector<Change>& changes) const {
  if (neighbours_[op].empty()) return false;
  const OperatorId from = neighbours_[op][random.below(static_cast<uint32_t>(neighbours_[op].size()))];
  changes.push_back({op, {}});
  return translate(from, current[from], op, random, changes.back().configuration);
}

// The devices stay where there are as many; fewer are spread over those of before; more are consecutive from the first.
bool ProposalSource::change_degrees(const Strategy& current, OperatorId op, RandomStream& random,
                                    Vector<Change>& changes) const {
  const auto& allowed = space_.degrees(op);
  const Vector<DeviceId>& before = current[op].devices;
  Configuration configuration{allowed[random.below(static_cast<uint32_t>(allowed.size()))], {}};
  const size_t parts = static_cast<size_t>(parts_of(configuration.degrees));
  for (size_t part = 0; part < parts; ++part)
    configuration.devices.push_back(
        parts <= before.size() ? before[part * before.size() / parts]
                               : static_cast<DeviceId>((static_cast<size_t>(before[0]) + part) % device_count_));
  changes.push_back({op, std::move(configuration)});
  return true;
}

bool ProposalSource::change_devices(const Strategy& current, OperatorId op, RandomStream& random,
                                    Vector<Change>& changes) const {
  Configuration configuration = current[op];
  const uint32_t way = random.below(4);
  const uint32_t device = random.below(device_count_);
  if (way < 2) {  // consecutive
    for (size_t part = 0; part < configuration.devices.size(); ++part)
      configuration.devices[part] = static_cast<DeviceId>((device + part) % device_count_);
  } else if (way == 2) {  // each alone
    for (DeviceId& each : configuration.devices) each = static_cast<DeviceId>(random.below(device_count_));
  } else {  // one
    configuration.devices[random.below(static_cast<uint32_t>(configuration.devices.size()))] =
        static_cast<DeviceId>(device);
  }
  changes.push_back({op, std::move(configuration)});
  return true;
}

bool ProposalSource::permute_devices(const Strategy& current, OperatorId op, RandomStream& random,
                                     Vector<Change>& changes) const {
  Configuration configuration = current[op];
  const uint32_t parts = static_cast<uint32_t>(configuration.devices.size());
  if (random.below(2) == 0) {
    const uint32_t a = random.below(parts), b = random.below(parts);
    std::swap(configuration.devices[a], configuration.devices[b]);
  } else {
    const uint32_t by = random.below(device_count_);
    for (DeviceId& device : configuration.devices)
      device = static_cast<DeviceId>((static_cast<uint32_t>(device) + by) % device_count_);
  }
  changes.push_back({op, std::move(configuration)});
  return true;
}

// One configuration for all: a random one, as one of its neighbours has it, or its own with other devices or with other
// degrees.
bool ProposalSource::change_group(const Strategy& current, OperatorId op, RandomStream& random,
                                  Vector<Change>& changes) const {
  Configuration configuration;
  const uint32_t way = random.below(4);
  if (way < 2) {
    way == 0 ? change_devices(current, op, random, changes) : change_degrees(current, op, random, changes);
    configuration = std::move(changes.back().configuration);
    changes.pop_back();
  } else if (way == 2 || neighbours_[op].empty()) {
    configuration = space_.random_configuration(op, random);
  } else {
    const OperatorId from = neighbours_[op][random.below(static_cast<uint32_t>(neighbours_[op].size()))];
    if (!translate(from, current[from], op, random, configuration)) return false;
  }
  for (OperatorId member : group_[op]) {
    const auto& allowed = space_.degrees(member);
    if (std::find(allowed.begin(), allowed.end(), configuration.degrees) != allowed.end())
      changes.push_back({member, configuration});
  }
  return true;
}

}  // namespace ff
