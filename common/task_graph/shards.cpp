#include "common/task_graph/shards.h"

#include <algorithm>

namespace ff {

Vector<Block> GroupPartitions::blocks(size_t position, const Degrees& degrees, int part) const {
  const OperatorId op = group_.operators[position];
  const OperatorDefinition& definition = *graph_.operators[op].definition;
  const Block block = definition.part(degrees, part);
  Vector<Block> result;
  for (ParameterId parameter : group_.parameters)
    for (const auto& [user, which] : graph_.parameters[parameter].uses)
      if (user == op) {
        result.push_back(definition.parameter_block(which, block));
        break;
      }
  return result;
}

std::shared_ptr<const ShardList> GroupPartitions::shards(size_t position, const Degrees& degrees) {
  const auto found = lists_[position].find(degrees);
  if (found != lists_[position].end()) return found->second;
  ShardList list{};
  for (int part = 0, parts = parts_of(degrees); part < parts; ++part) {
    Vector<Block> shard = blocks(position, degrees, part);
    uint64_t hash = hash_basis;
    for (const Block& block : shard)
      for (int axis = 0; axis < block.rank(); ++axis)
        for (int64_t edge : {block[axis].begin, block[axis].end}) hash = hash_step(hash, static_cast<uint64_t>(edge));
    int32_t number = -1;
    const auto [begin, end] = shard_numbers_.equal_range(hash);
    for (auto it = begin; it != end; ++it)
      if (shards_[it->second] == shard) number = it->second;
    if (number < 0) {
      number = static_cast<int32_t>(shards_.size());
      shards_.push_back(std::move(shard));
      shard_numbers_.emplace(hash, number);
    }
    list.shard_of_part.push_back(number);
  }
  list.shards = list.shard_of_part;
  sort_and_unique(list.shards);
  list.number = list_numbers_.try_emplace(list.shards, static_cast<int>(list_numbers_.size())).first->second;
  if (cached_parts_ > most_cached_parts) {
    for (auto& lists : lists_) lists.clear();
    cached_parts_ = 0;
  }
  cached_parts_ += list.shard_of_part.size();
  return lists_[position].emplace(degrees, std::make_shared<const ShardList>(std::move(list))).first->second;
}

const ParameterPartition& GroupPartitions::partition(const Vector<std::shared_ptr<const ShardList>>& lists) {
  Vector<int> key;
  for (const auto& list : lists)
    if (std::find(key.begin(), key.end(), list->number) == key.end()) key.push_back(list->number);
  std::sort(key.begin(), key.end());
  std::unique_ptr<ParameterPartition>& result = found_[key];
  if (result) return *result;
  result = std::make_unique<ParameterPartition>();
  Vector<int32_t> shards;
  for (const auto& list : lists) {
    if (std::find(key.begin(), key.end(), list->number) == key.end()) continue;  // equal to one before
    key.erase(std::find(key.begin(), key.end(), list->number));
    shards.insert(shards.end(), list->shards.begin(), list->shards.end());
  }
  sort_and_unique(shards);
  result->pieces_of_shard.resize(shards_.size());
  for (size_t parameter = 0; parameter < group_.parameters.size(); ++parameter) cut(parameter, shards, *result);
  return *result;
}

void GroupPartitions::cut(size_t parameter, const Vector<int32_t>& shards, ParameterPartition& partition) const {
  Vector<Block> distinct;
  Vector<Vector<int32_t>> classes;  // [distinct block]: shards
  const auto corners_before = [](const Block& a, const Block& b) {
    for (int axis = 0; axis < a.rank(); ++axis) {
      if (a[axis].begin != b[axis].begin) return a[axis].begin < b[axis].begin;
      if (a[axis].end != b[axis].end) return a[axis].end < b[axis].end;
    }
    return false;
  };
  Vector<int32_t> order = shards;
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return corners_before(shards_[a][parameter], shards_[b][parameter]); });
  for (int32_t shard : order) {
    const Block& block = shards_[shard][parameter];
    if (block.empty()) continue;
    if (distinct.empty() || !(distinct.back() == block)) {
      distinct.push_back(block);
      classes.emplace_back();
    }
    classes.back().push_back(shard);
  }
  for (const CutPiece& cut : cut_into_pieces(distinct)) {
    const int32_t piece = static_cast<int32_t>(partition.piece_bytes.size());
    partition.piece_bytes.push_back(cut.block.volume() * element_bytes);
    partition.classes_of_piece.emplace_back();
    for (int32_t number : cut.containing) {
      partition.classes_of_piece.back().push_back(classes[number]);
      for (int32_t shard : classes[number]) partition.pieces_of_shard[shard].push_back(piece);
    }
  }
}

}  // namespace ff
