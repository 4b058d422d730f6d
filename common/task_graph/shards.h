// Which parts of which operators hold which pieces of a parameter group, found once for all parts that hold the same
// blocks: unrolled steps have hundreds of parts but few different ones. What parameter_pieces and synchronization_units
// say part by part, for delta simulation, which asks for it at every proposal.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>

#include "common/task_graph/parameter_pieces.h"
#include "common/vector.h"

namespace ff {

// A shard is what a part holds of a group's parameters: one block of each. Equal shards of a group have equal numbers.
struct ShardList {
  int number;                     // equal for the same set of shards
  Vector<int32_t> shard_of_part;  // [part]
  Vector<int32_t> shards;         // the distinct ones, ascending
};

// The pieces of a group where these shards are in use.
struct ParameterPartition {
  Vector<int64_t> piece_bytes;  // [piece], in the order of parameter_pieces
  // Of a piece: its shards, in classes that have the same block of the piece's parameter. Gradients of one class add up
  // in one buffer.
  Vector<Vector<Vector<int32_t>>> classes_of_piece;  // [piece][class]: shards
  Vector<Vector<int32_t>> pieces_of_shard;           // [shard of the group]; empty where not in use
};

// The shards and partitions of one group, found once.
class GroupPartitions {
 public:
  GroupPartitions(const Graph& graph, const ParameterGroup& group)
      : graph_(graph), group_(group), lists_(group.operators.size()) {}

  // Of the group's operator at `position`.
  std::shared_ptr<const ShardList> shards(size_t position, const Degrees& degrees);
  // Where these lists are in use; each is of a position of the group.
  const ParameterPartition& partition(const Vector<std::shared_ptr<const ShardList>>& lists);

 private:
  Vector<Block> blocks(size_t position, const Degrees& degrees, int part) const;
  void cut(size_t parameter, const Vector<int32_t>& shards, ParameterPartition& partition) const;

  const Graph& graph_;
  const ParameterGroup& group_;
  // [shard][parameter of the group]
  Vector<Vector<Block>> shards_;
  std::unordered_multimap<uint64_t, int32_t> shard_numbers_;                                  // by hash
  std::map<Vector<int32_t>, int> list_numbers_;                                               // by distinct shards
  static constexpr size_t most_cached_parts = size_t{1} << 18;                                // 1 MB
  Vector<std::unordered_map<Degrees, std::shared_ptr<const ShardList>, DegreesHash>> lists_;  // [position]
  size_t cached_parts_ = 0;
  // by the lists' numbers, ascending
  std::unordered_map<Vector<int>, std::unique_ptr<ParameterPartition>, NumbersHash> found_;
};

}  // namespace ff
