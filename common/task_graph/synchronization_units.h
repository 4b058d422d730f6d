// What is synchronized at once, and what a reduction of statistics is.
//
// The pieces of a group that the same devices hold are one unit: one collective among them and one update on each. A
// unit is numbered by its first piece, in task keys and names, so that its number depends on the strategy alone.
//
// Where parameters have owners (Synchronization::parameter_server), a unit's pieces have the same owner too: the device
// of the first part that uses them, as in FlexFlow's published simulator (src/runtime/simulator.cc, simulate_runtime,
// step 3b, built without NCCL: of parts with the same weights the first one's device gets an update task, with a
// transfer from each of the others and one back; all of it after a barrier on every device, which its backward tasks
// come before). So under data parallelism device 0 owns everything. Unlike there, holders are devices, not parts: a
// device first adds up what its own parts contribute. And updating takes its time, as does taking over the values.
//
// Where holders have shards (Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models,
// 2020, section 5, arXiv 1910.02054), the packed buffer of a unit is cut into as many shards of one length as it has
// holders. Holder h updates shard h alone, and has alone what is sharded of it:
//   sharded_optimizer     the optimizer's state (ZeRO stage 1)
//   sharded_gradients     and the sum of the gradients (stage 2): those of a micro-batch lie in a buffer of their own
//                         until a reduce-scatter has added them to the shards
//   sharded_parameters    and the weights (stage 3): an all-gather brings them in front of forward, and again in front
//                         of backward, of each micro-batch
// Parameters that several operators share have gradients and weights whole (sharded_units.h).
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>

#include "common/bit_set.h"
#include "common/strategy.h"
#include "common/task_graph/parameter_pieces.h"
#include "common/task_graph/task.h"
#include "common/vector.h"

namespace ff {

constexpr DeviceId no_owner = -1;
// Of a piece with these users.
DeviceId owner_of(const Vector<std::pair<OperatorId, int>>& users, const Strategy& strategy);

// Numbers the units of one group: the pieces' holders come in the order of the pieces.
class UnitNumbers {
 public:
  void clear();
  // The unit of a piece that these devices hold, and this one owns; a new one has the next number.
  int32_t number_of(const BitSet& holders, DeviceId owner);
  int32_t count() const { return static_cast<int32_t>(holders_.size()); }
  const BitSet& holders(int32_t unit) const { return holders_[unit]; }

 private:
  std::unordered_multimap<uint64_t, int32_t> by_hash_;
  Vector<BitSet> holders_;   // [unit]
  Vector<DeviceId> owners_;  // [unit]
};

struct SynchronizationUnit {
  int group;
  int number;                // of its first piece
  Vector<DeviceId> holders;  // ascending; a single one, without replicas, needs no collective
  DeviceId owner;            // of the holders; no_owner where an all-reduce synchronizes
  Vector<const ParameterPiece*> pieces;
  int64_t bytes = 0;
  int replicas = 1;  // devices that each holder stands for (search/cost/replicas.h)
  int64_t holder_count() const { return holders.count() * replicas; }
};
// The units of a group, ascending by number. The pieces must outlive them.
Vector<SynchronizationUnit> synchronization_units(int group, const Vector<ParameterPiece>& pieces,
                                                  const Strategy& strategy, Synchronization synchronization,
                                                  int replicas = 1);

// Where the pieces of a unit lie packed in one buffer, in elements, and how large it is (parameter_buffers.h).
struct PackedUnit {
  Vector<int64_t> offsets;  // [piece]
  int64_t elements = 0;
};
PackedUnit packed(const SynchronizationUnit& unit);
// Elements of a holder's shard, of a unit whose pieces take `elements` packed: 64-byte aligned. Shards lie one after
// the other; the last ones may go beyond the pieces, or have none of them.
constexpr int64_t shard_elements(int64_t elements, int64_t holders) {
  constexpr int64_t alignment = 16;
  return ((elements + holders - 1) / holders + alignment - 1) / alignment * alignment;
}
// Elements of the packed buffer: of the pieces; with shards, of these.
constexpr int64_t packed_elements(int64_t elements, int64_t holders, Synchronization synchronization) {
  return is_sharded(synchronization) && holders > 1 ? holders * shard_elements(elements, holders) : elements;
}

// (operator, part), ascending: the parts whose backward tasks (forward, where an operator has none) a unit waits for.
Vector<std::pair<OperatorId, int>> contributors_of(const SynchronizationUnit& unit);

// A holder of several parts adds up their gradients of a piece. Kernels with the same block of the parameter add to one
// buffer, which is part of their own time; buffers of different blocks are added up after the kernels, an addition
// counting 3/2 of a copy, as it moves three words for a copy's two. Bytes of copies that this amounts to:
constexpr int64_t gradient_sum_bytes(int64_t different_blocks, int64_t piece_bytes) {
  return different_blocks > 1 ? (different_blocks - 1) * piece_bytes * 3 / 2 : 0;
}
Vector<int64_t> gradient_sum_bytes(const SynchronizationUnit& unit, const Graph& graph,
                                   const Strategy& strategy);  // [holder]
int64_t gradient_sum_bytes(const SynchronizationUnit& unit, const Graph& graph, const Strategy& strategy,
                           DeviceId holder);

// A holder's work for a unit, without kernels and transfers, in bytes. With an owner it also adds the gradients that it
// receives to its own and copies the updated values to where they are sent from; the others pack what their own parts
// contribute at the barrier, and copy the values to where kernels read them. With shards each copies the updated values
// of its own to where they are sent from, if they are.
struct HolderWork {
  int64_t updated = 0, copied = 0;  // in the update task
  int64_t packed = 0;               // copied by the barrier
};
// Gradients of several rounds (sharded_units.h) are added up in the shard. Where it has the weights, nothing is sent.
constexpr HolderWork work_with_shards(int64_t shard_bytes, int64_t own_sum, int rounds, bool sends) {
  return {shard_bytes, own_sum + gradient_sum_bytes(rounds, shard_bytes) + (sends ? shard_bytes : 0), 0};
}
// `own_sum` is gradient_sum_bytes of the holder.
constexpr HolderWork work_of_holder(DeviceId holder, DeviceId owner, int64_t holders, int64_t unit_bytes,
                                    int64_t own_sum) {
  if (owner == no_owner || holders == 1) return {unit_bytes, own_sum, 0};
  if (holder != owner) return {0, unit_bytes, own_sum};
  return {unit_bytes, own_sum + gradient_sum_bytes(holders, unit_bytes) + unit_bytes, 0};
}

// The all-reduce of the statistics that some parts of an operator have in common. To gather them is an all-reduce too:
// of one buffer with a slot for each part, in which all slots but the holder's own are zero.
struct StatisticsReduction {
  Vector<int> parts;         // ascending; gathered: [slot]
  Vector<DeviceId> holders;  // ascending
  int64_t bytes = 0;         // of all slots
};
// By OperatorDefinition::statistics_group. Empty without statistics in this direction.
Vector<StatisticsReduction> statistics_reductions(const OperatorDefinition& definition,
                                                  const Configuration& configuration, Direction direction);
// Those that have some of these parts, by number. `parts` are ascending; of summed statistics, where a rank need not
// know the others, StatisticsReduction::parts are of these alone.
struct OwnReduction {
  int number;
  StatisticsReduction reduction;
};
Vector<OwnReduction> statistics_reductions(const OperatorDefinition& definition, const Configuration& configuration,
                                           const Vector<int32_t>& parts, Direction direction);

}  // namespace ff
