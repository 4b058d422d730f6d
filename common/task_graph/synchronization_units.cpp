#include "common/task_graph/synchronization_units.h"

#include <algorithm>
#include <map>

#include "common/hash.h"
#include "common/task_graph/parameter_buffers.h"

namespace ff {

void UnitNumbers::clear() {
  by_hash_.clear();
  holders_.clear();
  owners_.clear();
}

int32_t UnitNumbers::number_of(const BitSet& holders, DeviceId owner) {
  uint64_t hash = static_cast<uint64_t>(owner - no_owner);
  for (uint64_t word : holders) hash = hash_step(hash, word);
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto it = begin; it != end; ++it)
    if (holders_[it->second] == holders && owners_[it->second] == owner) return it->second;
  const int32_t number = count();
  by_hash_.emplace(hash, number);
  holders_.push_back(holders);
  owners_.push_back(owner);
  return number;
}

DeviceId owner_of(const Vector<std::pair<OperatorId, int>>& users, const Strategy& strategy) {
  const auto& [op, part] = users.front();
  return strategy[op].devices[part];
}

Vector<SynchronizationUnit> synchronization_units(int group, const Vector<ParameterPiece>& pieces,
                                                  const Strategy& strategy, Synchronization synchronization,
                                                  int replicas) {
  DeviceId devices = 0;
  for (const ParameterPiece& piece : pieces)
    for (const auto& [op, part] : piece.users) devices = std::max(devices, strategy[op].devices[part] + 1);
  UnitNumbers numbers;
  BitSet holders;
  Vector<SynchronizationUnit> units;
  for (size_t p = 0; p < pieces.size(); ++p) {
    holders.assign(words_for(static_cast<size_t>(devices)), 0);
    for (const auto& [op, part] : pieces[p].users) insert(holders, strategy[op].devices[part]);
    const DeviceId owner =
        synchronization == Synchronization::parameter_server ? owner_of(pieces[p].users, strategy) : no_owner;
    const int32_t number = numbers.number_of(holders, owner);
    if (number == std::ssize(units))
      units.push_back({group, static_cast<int>(p), members(holders), owner, {}, 0, replicas});
    units[number].pieces.push_back(&pieces[p]);
    units[number].bytes += pieces[p].block.volume() * element_bytes;
  }
  return units;
}

PackedUnit packed(const SynchronizationUnit& unit) {
  PackedUnit result;
  for (const ParameterPiece* piece : unit.pieces) {
    result.offsets.push_back(result.elements);
    result.elements += gradient_sum_elements(piece->block.volume());
  }
  return result;
}

Vector<std::pair<OperatorId, int>> contributors_of(const SynchronizationUnit& unit) {
  Vector<std::pair<OperatorId, int>> contributors;
  for (const ParameterPiece* piece : unit.pieces)
    contributors.insert(contributors.end(), piece->users.begin(), piece->users.end());
  sort_and_unique(contributors);
  return contributors;
}

Vector<int64_t> gradient_sum_bytes(const SynchronizationUnit& unit, const Graph& graph, const Strategy& strategy) {
  Vector<int64_t> sums(unit.holders.size(), 0);
  Vector<Vector<int>> blocks(unit.holders.size());  // numbers of the different ones
  for (const ParameterPiece* piece : unit.pieces) {
    for (Vector<int>& numbers : blocks) numbers.clear();
    for (size_t u = 0; u < piece->users.size(); ++u) {
      const auto& [op, part] = piece->users[u];
      if (!graph.operators[op].has_backward) continue;
      const auto holder = std::lower_bound(unit.holders.begin(), unit.holders.end(), strategy[op].devices[part]);
      Vector<int>& numbers = blocks[holder - unit.holders.begin()];
      if (std::find(numbers.begin(), numbers.end(), piece->user_blocks[u]) == numbers.end())
        numbers.push_back(piece->user_blocks[u]);
    }
    for (size_t h = 0; h < sums.size(); ++h)
      sums[h] += gradient_sum_bytes(std::ssize(blocks[h]), piece->block.volume() * element_bytes);
  }
  return sums;
}

int64_t gradient_sum_bytes(const SynchronizationUnit& unit, const Graph& graph, const Strategy& strategy,
                           DeviceId holder) {
  int64_t sum = 0;
  Vector<int> blocks;  // numbers of the different ones
  for (const ParameterPiece* piece : unit.pieces) {
    blocks.clear();
    for (size_t u = 0; u < piece->users.size(); ++u)
      if (const auto& [op, part] = piece->users[u];
          graph.operators[op].has_backward && strategy[op].devices[part] == holder)
        blocks.push_back(piece->user_blocks[u]);
    sort_and_unique(blocks);
    sum += gradient_sum_bytes(std::ssize(blocks), piece->block.volume() * element_bytes);
  }
  return sum;
}

Vector<StatisticsReduction> statistics_reductions(const OperatorDefinition& definition,
                                                  const Configuration& configuration, Direction direction) {
  const bool backward = direction == Direction::backward, gathers = definition.gathers_statistics();
  if (!definition.has_statistics(configuration.degrees, backward)) return {};
  Vector<StatisticsReduction> reductions(definition.statistics_groups(configuration.degrees));
  for (int part = 0; part < configuration.parts(); ++part) {
    StatisticsReduction& reduction = reductions[definition.statistics_group(configuration.degrees, part)];
    reduction.parts.push_back(part);
    reduction.holders.push_back(configuration.devices[part]);
    const int64_t own = definition.statistics_bytes(definition.part(configuration.degrees, part), backward);
    reduction.bytes = gathers ? reduction.bytes + own : own;
  }
  for (StatisticsReduction& reduction : reductions) sort_and_unique(reduction.holders);
  return reductions;
}

Vector<OwnReduction> statistics_reductions(const OperatorDefinition& definition, const Configuration& configuration,
                                           const Vector<int32_t>& parts, Direction direction) {
  const Degrees& degrees = configuration.degrees;
  const bool backward = direction == Direction::backward, gathers = definition.gathers_statistics();
  if (!definition.has_statistics(degrees, backward)) return {};
  std::map<int, Vector<int>> own;  // by number
  for (const int32_t part : parts) own[definition.statistics_group(degrees, part)].push_back(part);
  Vector<OwnReduction> reductions;
  for (auto& [number, members] : own) {
    OwnReduction& one = reductions.emplace_back();
    one.number = number;
    Vector<int> group = definition.statistics_members(degrees, members[0]);
    const int64_t bytes = definition.statistics_bytes(definition.part(degrees, members[0]), backward);
    one.reduction.bytes = gathers ? bytes * group.count() : bytes;
    for (const int member : group) one.reduction.holders.push_back(configuration.devices[member]);
    sort_and_unique(one.reduction.holders);
    one.reduction.parts = gathers ? std::move(group) : std::move(members);
  }
  return reductions;
}

}  // namespace ff
