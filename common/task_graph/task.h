// Tasks: what kinds there are, and the key that says which one a task is.
//
// Of an operator with p parts, in each direction (forward; backward where the operator has one):
//   forward, backward          p compute tasks, one a part
//   forward_statistics, backward_statistics
//                              where there are statistics, one a part: the part's own, in front of its compute task
//   forward_reduction, backward_reduction
//                              an all-reduce of those among the parts that have them in common, between the two
//   activation, gradient       a transfer of a block from one device to another: of a producer's output to a consumer,
//                              and of the consumer's contribution to that output's gradient back again
//   activation_collective, gradient_collective
//                              such blocks of several parts at once, where they form a collective (collectives.h)
// Of a recomputed operator (recomputation.h), between the two directions
//   recompute                  forward once more, one a part
// Of a parameter group:
//   synchronization            an all-reduce of gradients among the devices that hold the same pieces of the group
//   update                     SGD on those pieces, on every holder
// Where parameters have owners (Synchronization::parameter_server), of each device with parts
//   barrier                    after its forward and backward tasks: packs the gradients that have another owner
// and of a parameter group, instead of the all-reduce,
//   parameter_gradient         a transfer of a holder's gradients of the pieces to their owner
//   parameter_values           a transfer of the updated pieces from the owner to a holder
//   update                     on the owner SGD, on another holder taking over the values
// With shards (is_sharded), of a unit with several holders,
//   synchronization            a reduce-scatter: each holder receives the sum of the gradients of its shard; with
//                              sharded gradients one for each micro-batch
//   update                     on each holder, of its shard
//   parameter_all_gather       of the updated shards; of sharded parameters in front of forward and backward of each
//                              micro-batch
//   parameter_copy             on each holder: the updated values go to where kernels read them; where they are not
//                              gathered there
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/topology.h"

namespace ff {

enum class TaskKind : uint8_t {  // in the order in which ties are broken
  forward,
  activation,
  backward,
  gradient,
  synchronization,
  update,
  forward_statistics,
  forward_reduction,
  backward_statistics,
  backward_reduction,
  activation_collective,
  gradient_collective,
  barrier,
  parameter_gradient,
  parameter_values,
  recompute,
  parameter_all_gather,
  parameter_copy
};
constexpr size_t task_kind_count = 18;
std::string_view to_string(TaskKind kind);

inline bool is_edge_transfer(TaskKind kind) { return kind == TaskKind::activation || kind == TaskKind::gradient; }
inline bool is_parameter_transfer(TaskKind kind) {
  return kind == TaskKind::parameter_gradient || kind == TaskKind::parameter_values;
}
inline bool is_transfer(TaskKind kind) { return is_edge_transfer(kind) || is_parameter_transfer(kind); }
inline bool is_statistics(TaskKind kind) {
  return kind == TaskKind::forward_statistics || kind == TaskKind::backward_statistics;
}
inline bool is_compute(TaskKind kind) {
  return kind == TaskKind::forward || kind == TaskKind::backward || kind == TaskKind::recompute || is_statistics(kind);
}
inline bool occupies_device(TaskKind kind) {  // its own, and no link
  return is_compute(kind) || kind == TaskKind::update || kind == TaskKind::barrier || kind == TaskKind::parameter_copy;
}
inline bool is_reduction(TaskKind kind) {
  return kind == TaskKind::forward_reduction || kind == TaskKind::backward_reduction;
}
inline bool is_edge_collective(TaskKind kind) {
  return kind == TaskKind::activation_collective || kind == TaskKind::gradient_collective;
}
inline bool is_parameter_collective(TaskKind kind) {
  return kind == TaskKind::synchronization || kind == TaskKind::parameter_all_gather;
}
inline bool is_collective(TaskKind kind) {
  return is_reduction(kind) || is_parameter_collective(kind) || is_edge_collective(kind);
}
inline bool is_forward(TaskKind kind) {  // runs in evaluation too
  return kind == TaskKind::forward || kind == TaskKind::forward_statistics || kind == TaskKind::activation ||
         kind == TaskKind::activation_collective;
}

// Which way through the graph. Backward is forward with producers and consumers in each other's place.
enum class Direction : uint8_t { forward, backward };
constexpr Direction directions[] = {Direction::forward, Direction::backward};
template <typename T>
struct PerDirection {  // one of something for each
  T values[2]{};
  T& operator[](Direction direction) { return values[static_cast<size_t>(direction)]; }
  const T& operator[](Direction direction) const { return values[static_cast<size_t>(direction)]; }
};

constexpr TaskKind compute_kind(Direction direction) {
  return direction == Direction::forward ? TaskKind::forward : TaskKind::backward;
}
constexpr TaskKind statistics_kind(Direction direction) {
  return direction == Direction::forward ? TaskKind::forward_statistics : TaskKind::backward_statistics;
}
constexpr TaskKind reduction_kind(Direction direction) {
  return direction == Direction::forward ? TaskKind::forward_reduction : TaskKind::backward_reduction;
}
constexpr TaskKind transfer_kind(Direction direction) {
  return direction == Direction::forward ? TaskKind::activation : TaskKind::gradient;
}
constexpr TaskKind collective_kind(Direction direction) {
  return direction == Direction::forward ? TaskKind::activation_collective : TaskKind::gradient_collective;
}
// Of compute tasks, reductions, transfers and collectives of edges.
constexpr Direction direction_of(TaskKind kind) {
  return kind == TaskKind::backward || kind == TaskKind::backward_statistics || kind == TaskKind::backward_reduction ||
                 kind == TaskKind::gradient || kind == TaskKind::gradient_collective
             ? Direction::backward
             : Direction::forward;
}

// Says which task it is and breaks ties of ready times: a fixed function of what the task is, never of the order in
// which tasks were created. From the highest bit: kind (5 bits), subject (20), part (20), other (19).
//   compute tasks     subject: operator, part: part
//   reductions        subject: operator, part: statistics group (OperatorDefinition::statistics_group)
//   edges' transfers  subject: edge, part: the consumer's part, other: the producer's part
//   their collectives subject: edge, part: number of the exchange (collectives.h)
//   synchronization, parameter_all_gather
//                     subject: parameter group, part: number of the unit's first piece times the number of rounds, and
//                     the round (sharded_units.h; else one)
//   update, parameter_copy
//                     subject: parameter group, part: number of the unit's first piece, other: device
//   parameters' transfers
//                     as update, other: the device that is not the owner
//   barrier           part: device
using TaskKey = uint64_t;
constexpr TaskKey make_task_key(TaskKind kind, int64_t subject, int64_t part, int64_t other) {
  assert(subject < (1 << 20) && part < (1 << 20) && other < (1 << 19));
  return static_cast<uint64_t>(kind) << 59 | static_cast<uint64_t>(subject) << 39 | static_cast<uint64_t>(part) << 19 |
         static_cast<uint64_t>(other);
}
constexpr TaskKind kind_of(TaskKey key) { return static_cast<TaskKind>(key >> 59); }
constexpr int subject_of(TaskKey key) { return static_cast<int>(key >> 39 & 0xFFFFF); }
constexpr int part_of(TaskKey key) { return static_cast<int>(key >> 19 & 0xFFFFF); }
// Kind and subject.
constexpr uint64_t prefix_of(TaskKey key) { return key >> 39; }
constexpr int other_of(TaskKey key) { return static_cast<int>(key & 0x7FFFF); }

struct BlockPair;

struct Task {
  TaskKey key;
  TaskKind kind;
  int32_t op = -1;            // compute, reductions: operator
  int32_t part = -1;          // compute: part; reductions: which group of parts (OperatorDefinition::statistics_group)
  int32_t edge = -1;          // transfers and collectives of edges
  int32_t unit = -1;          // of parameters: index into TaskGraph::units
  int32_t round = 0;          // collectives of parameters: which (sharded_units.h)
  int32_t reduction = -1;     // reductions: index into TaskGraph::reductions
  int32_t collective = -1;    // collectives of edges: index into TaskGraph::collectives
  DeviceId device = -1;       // what occupies a device: where; transfers: source
  DeviceId destination = -1;  // transfers
  const BlockPair* pair = nullptr;  // transfers of edges
  // recompute: the operator and part whose backward task comes first of all in the segment. Gathering of sharded
  // parameters: of those that it is for, the first in this direction, on whatever device.
  int32_t before_op = -1, before_part = -1;
  // Transfers, reductions, synchronization, update: bytes moved, reduced, updated; collectives: Collective::bytes.
  int64_t bytes = 0;
  // Bytes copied (or added: then 3/2 of them, as an addition moves 3 for a copy's 2) on the device as a part of the
  // task. Compute: to assemble inputs, gather contributions, and pack what is sent. Update: to add up the gradients of
  // several parts on one device; and see HolderWork. parameter_copy: the unit's bytes.
  int64_t copy_bytes = 0;
};

}  // namespace ff
