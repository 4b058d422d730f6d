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
#include <string>
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

// Which way through the graph. Backward is forward with producers and consumers in each other's place.
enum class Direction : uint8_t { forward, backward };
constexpr Direction directions[] = {Direction::forward, Direction::backward};
template <typename T>
struct PerDirection {  // one of something for each
  T values[2]{};
  T& operator[](Direction direction) { return values[static_cast<size_t>(direction)]; }
  const T& operator[](Direction direction) const { return values[static_cast<size_t>(direction)]; }
};

// What a task occupies while it runs: its device and no link; the route from its device to another; collectives: the
// routes among several devices.
enum class Occupies : uint8_t { device, route, routes };
// What it belongs to, which is the subject of its key: an operator, an edge, a unit of parameters (by its group), or a
// device alone.
enum class TaskSubject : uint8_t { op, edge, unit, device };

struct TaskKindInfo {
  TaskKind kind;
  std::string_view name;
  Occupies occupies;
  TaskSubject subject;
  Direction direction = Direction::forward;  // of compute tasks, reductions, transfers and collectives of edges
  bool in_evaluation = false;
};
constexpr TaskKindInfo task_kinds[task_kind_count] = {
    {TaskKind::forward, "forward", Occupies::device, TaskSubject::op, Direction::forward, true},
    {TaskKind::activation, "activation", Occupies::route, TaskSubject::edge, Direction::forward, true},
    {TaskKind::backward, "backward", Occupies::device, TaskSubject::op, Direction::backward},
    {TaskKind::gradient, "gradient", Occupies::route, TaskSubject::edge, Direction::backward},
    {TaskKind::synchronization, "synchronization", Occupies::routes, TaskSubject::unit},
    {TaskKind::update, "update", Occupies::device, TaskSubject::unit},
    {TaskKind::forward_statistics, "forward_statistics", Occupies::device, TaskSubject::op, Direction::forward, true},
    {TaskKind::forward_reduction, "forward_reduction", Occupies::routes, TaskSubject::op},
    {TaskKind::backward_statistics, "backward_statistics", Occupies::device, TaskSubject::op, Direction::backward},
    {TaskKind::backward_reduction, "backward_reduction", Occupies::routes, TaskSubject::op, Direction::backward},
    {TaskKind::activation_collective, "activation_collective", Occupies::routes, TaskSubject::edge, Direction::forward,
     true},
    {TaskKind::gradient_collective, "gradient_collective", Occupies::routes, TaskSubject::edge, Direction::backward},
    {TaskKind::barrier, "barrier", Occupies::device, TaskSubject::device},
    {TaskKind::parameter_gradient, "parameter_gradient", Occupies::route, TaskSubject::unit},
    {TaskKind::parameter_values, "parameter_values", Occupies::route, TaskSubject::unit},
    {TaskKind::recompute, "recompute", Occupies::device, TaskSubject::op},
    {TaskKind::parameter_all_gather, "parameter_all_gather", Occupies::routes, TaskSubject::unit},
    {TaskKind::parameter_copy, "parameter_copy", Occupies::device, TaskSubject::unit},
};
constexpr std::string_view to_string(TaskKind kind) { return task_kinds[static_cast<size_t>(kind)].name; }

// A set of kinds, one bit each: where the search spends its time a kind is looked up in a word, not in the table.
template <typename Condition>
constexpr uint32_t kinds_where(const Condition& condition) {
  uint32_t kinds = 0;
  for (const TaskKindInfo& info : task_kinds)
    if (condition(info)) kinds |= uint32_t{1} << static_cast<unsigned>(info.kind);
  return kinds;
}
constexpr uint32_t kinds_of(Occupies occupies) {
  return kinds_where([=](const TaskKindInfo& info) { return info.occupies == occupies; });
}
constexpr uint32_t kinds_of(TaskSubject subject) {
  return kinds_where([=](const TaskKindInfo& info) { return info.subject == subject; });
}
template <uint32_t kinds>
constexpr bool is_one_of(TaskKind kind) {
  return (kinds >> static_cast<unsigned>(kind) & 1) != 0;
}

constexpr uint32_t device_kinds = kinds_of(Occupies::device), transfer_kinds = kinds_of(Occupies::route),
                   collective_kinds = kinds_of(Occupies::routes), operator_kinds = kinds_of(TaskSubject::op),
                   edge_kinds = kinds_of(TaskSubject::edge), unit_kinds = kinds_of(TaskSubject::unit);
constexpr bool occupies_device(TaskKind kind) { return is_one_of<device_kinds>(kind); }
constexpr bool is_compute(TaskKind kind) { return is_one_of<device_kinds & operator_kinds>(kind); }
constexpr bool is_transfer(TaskKind kind) { return is_one_of<transfer_kinds>(kind); }
constexpr bool is_edge_transfer(TaskKind kind) { return is_one_of<transfer_kinds & edge_kinds>(kind); }
constexpr bool is_parameter_transfer(TaskKind kind) { return is_one_of<transfer_kinds & unit_kinds>(kind); }
constexpr bool is_collective(TaskKind kind) { return is_one_of<collective_kinds>(kind); }
constexpr bool is_reduction(TaskKind kind) { return is_one_of<collective_kinds & operator_kinds>(kind); }
constexpr bool is_edge_collective(TaskKind kind) { return is_one_of<collective_kinds & edge_kinds>(kind); }
constexpr bool is_parameter_collective(TaskKind kind) { return is_one_of<collective_kinds & unit_kinds>(kind); }
constexpr bool is_statistics(TaskKind kind) {
  return kind == TaskKind::forward_statistics || kind == TaskKind::backward_statistics;
}
constexpr bool is_forward(TaskKind kind) {  // runs in evaluation too
  return is_one_of<kinds_where([](const TaskKindInfo& info) { return info.in_evaluation; })>(kind);
}
constexpr Direction direction_of(TaskKind kind) {
  constexpr uint32_t backward =
      kinds_where([](const TaskKindInfo& info) { return info.direction == Direction::backward; });
  return is_one_of<backward>(kind) ? Direction::backward : Direction::forward;
}

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
// Says which task it is and breaks ties of ready times: a fixed function of what the task is, never of the order in
// which tasks were created. From the highest bit: kind (5 bits), subject (17), part (21), other (21).
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
// Events of delta simulation are 24 bytes with a key of 64 bits, so the key does not grow. Parts have two fields, as
// those of a consumer and of a producer, each with twice the parts that a strategy file may have; operators, edges and
// parameter groups have the rest. A task graph that has no room in the keys is refused where it is built, and where
// delta simulation gets the strategy (check_room_in_keys).
using TaskKey = uint64_t;
constexpr int key_kind_bits = 5, key_subject_bits = 17, key_part_bits = 21;
static_assert(key_kind_bits + key_subject_bits + 2 * key_part_bits == 64);
static_assert(task_kind_count <= size_t{1} << key_kind_bits);
constexpr int64_t most_key_subjects = int64_t{1} << key_subject_bits;  // operators, edges, groups
constexpr int64_t most_key_parts = int64_t{1} << key_part_bits;        // parts, devices, pieces
constexpr TaskKey make_task_key(TaskKind kind, int64_t subject, int64_t part, int64_t other) {
  assert(subject < most_key_subjects && part < most_key_parts && other < most_key_parts);
  return ((static_cast<uint64_t>(kind) << key_subject_bits | static_cast<uint64_t>(subject)) << key_part_bits |
          static_cast<uint64_t>(part))
             << key_part_bits |
         static_cast<uint64_t>(other);
}
constexpr TaskKind kind_of(TaskKey key) { return static_cast<TaskKind>(key >> (key_subject_bits + 2 * key_part_bits)); }
// Kind and subject: equal for the tasks of an operator, an edge or a group.
constexpr uint64_t prefix_of(TaskKey key) { return key >> (2 * key_part_bits); }
constexpr int subject_of(TaskKey key) { return static_cast<int>(prefix_of(key) & (most_key_subjects - 1)); }
constexpr int part_of(TaskKey key) { return static_cast<int>(key >> key_part_bits & (most_key_parts - 1)); }
constexpr int other_of(TaskKey key) { return static_cast<int>(key & (most_key_parts - 1)); }

// Throws InputError where there are more, naming what they are of: "operator \"fc1\": 3000000 parts, ...".
void check_room_in_keys(const std::string& of, const std::string& what, int64_t count, int64_t most);
inline void check_parts_in_keys(const std::string& op, int64_t parts) {
  if (parts > most_key_parts) check_room_in_keys("operator \"" + op + '"', "parts", parts, most_key_parts);
}

struct BlockPair;

struct Task {
  TaskKey key;
  TaskKind kind;
  bool computed = true;       // recompute: does it compute anything (TaskGraphBuilder::computed_again)?
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
  int64_t exchange_copy_bytes = 0;  // of these: to pack for all-to-alls, and assemble from them
};

}  // namespace ff
