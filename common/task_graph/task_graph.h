// The task graph of one training iteration: the only place that derives tasks from (graph, topology, strategy). The
// simulator times it and the executor runs it, so what is predicted is what happens.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "common/graph.h"
#include "common/strategy.h"
#include "common/task_graph/task.h"
#include "common/vector.h"

namespace ff {

// An input of an operator that another operator produces.
struct Edge {
  TensorId tensor;
  OperatorId producer;
  OperatorId consumer;
  int input;  // of the consumer
};

// A non-empty intersection of a producer's output block and a consumer's input block.
struct BlockPair {
  int32_t producer_part;
  int32_t consumer_part;
  int64_t bytes;
  bool whole_output;  // the intersection is the producer's whole block
  bool whole_input;   // the intersection is all that the consumer reads
  bool operator==(const BlockPair&) const = default;
};

// The pairs of one edge for given degrees at both ends, in order of (consumer part, producer part).
using BlockPairs = Vector<BlockPair>;

// A disjoint piece of a parameter and the parts (of all operators that share the parameter) that use it.
struct ParameterPiece {
  ParameterId parameter;
  Block block;
  Vector<std::pair<OperatorId, int>> users;  // (operator, part), ascending
  // by user: equal numbers for equal blocks of the parameter, whose gradients are one buffer on a device
  Vector<int> user_blocks;
};

// Parameters used by exactly the same operators, such as a layer's weight and bias: synchronized and updated together.
struct ParameterGroup {
  std::string name;
  Vector<ParameterId> parameters;
  Vector<OperatorId> operators;
  bool trained = false;  // some operator of it has a backward pass
};

// The pieces of one group that the same devices hold: one collective, and one update task a holder.
struct SynchronizationUnit {
  int group;
  Vector<DeviceId> holders;  // ascending; a single one needs no collective
  Vector<const ParameterPiece*> pieces;
  int64_t bytes = 0;
};

// Copy bytes of adding up, on each of the unit's holders, the gradients of its several parts there: different blocks
// are added up behind the kernels (3/2 of a copy); kernels with the same block add to one buffer, which is part of
// their own time. [holder]
Vector<int64_t> gradient_sum_bytes(const SynchronizationUnit& unit, const Graph& graph, const Strategy& strategy);

struct Task {
  TaskKey key;
  TaskKind kind;
  int32_t op = -1;            // compute, reductions: operator
  int32_t part = -1;          // compute: part; reductions: which group of parts (OperatorDefinition::statistics_group)
  int32_t edge = -1;          // transfers
  int32_t unit = -1;          // synchronization, update: index into TaskGraph::units
  DeviceId device = -1;       // compute and update: where; transfers: source
  DeviceId destination = -1;  // transfers
  const BlockPair* pair = nullptr;  // transfers
  int64_t bytes = 0;                // transfers, reductions, synchronization, update: bytes moved, reduced, updated
  // Bytes copied (or added: then 3/2 of them, as an addition moves 3 for a copy's 2) on the device as a part of the
  // task. Compute: to assemble inputs, gather contributions, and pack what is sent. Update: to add up the gradients of
  // several parts on one device.
  int64_t copy_bytes = 0;
};

struct TaskGraph {
  Vector<Task> tasks;
  Vector<SynchronizationUnit> units;
  // Successors of task t: successors[successor_begin[t] .. successor_begin[t + 1]).
  Vector<int32_t> successor_begin;
  Vector<int32_t> successors;
  Vector<int32_t> predecessor_count;
  Vector<std::shared_ptr<const void>> kept;  // what pairs and pieces point into
  int64_t transfer_bytes = 0;                // of all activation and gradient transfers
  // 2 (k-1) times the bytes of each collective of k holders: what a ring moves in all
  int64_t synchronization_bytes = 0;
};

// The devices, ascending, of the parts of statistics group `number`.
Vector<DeviceId> reduction_holders(const OperatorDefinition& definition, const Configuration& configuration,
                                   int number);

// Derives task graphs for one graph. Block intersections and parameter pieces depend on degrees alone and are cached,
// so building for a second strategy is cheap; caches forget all when they have grown large. Not thread-safe: one
// builder a thread.
class TaskGraphBuilder {
 public:
  explicit TaskGraphBuilder(const Graph& graph);
  ~TaskGraphBuilder();

  const Graph& graph() const { return graph_; }
  const Vector<Edge>& edges() const { return edges_; }
  const Vector<ParameterGroup>& groups() const { return groups_; }

  TaskGraph build(const Strategy& strategy);

  // The blocks of an edge under these degrees at its ends.
  std::shared_ptr<const BlockPairs> pairs(int edge, const Degrees& producer, const Degrees& consumer);
  std::shared_ptr<const BlockPairs> pairs(int edge, const Strategy& strategy);
  // The intersection itself.
  Block region(int edge, const BlockPair& pair, const Strategy& strategy) const;
  std::shared_ptr<const Vector<ParameterPiece>> pieces(int group, const Strategy& strategy);

 private:
  struct Assembly;
  void add_compute_tasks(Assembly& assembly);
  void add_reductions(Assembly& assembly, OperatorId op, bool forward);
  void add_transfers(Assembly& assembly);
  void add_synchronization(Assembly& assembly);

  const Graph& graph_;
  Vector<Edge> edges_;
  Vector<ParameterGroup> groups_;
  std::shared_ptr<const BlockPairs> shared(BlockPairs pairs);  // one copy of equal ones, as unrolled steps have

  static constexpr size_t most_cached_pairs = size_t{1} << 24;  // 384 MB
  static constexpr size_t most_cached_users = size_t{1} << 22;  // 64 MB

  // by edge; key: both ends' degrees
  Vector<std::unordered_map<Degrees, std::shared_ptr<const BlockPairs>, DegreesHash>> pair_cache_;
  std::unordered_multimap<uint64_t, std::shared_ptr<const BlockPairs>> distinct_pairs_;  // by hash
  size_t cached_pairs_ = 0;
  // by group
  Vector<std::unordered_map<Degrees, std::shared_ptr<const Vector<ParameterPiece>>, DegreesHash>> piece_cache_;
  size_t cached_users_ = 0;
};

// "conv1/forward/0", "conv1->pool1/activation/0-2", "conv1/synchronization/0", "conv1/update/0@3" (unit, device):
// unique in a task graph, and what a strategy file's issue order is written in.
std::string task_name(const TaskGraphBuilder& builder, const TaskGraph& tasks, int task);

// A total order of all tasks that respects the task graph, from the keys alone: forward in graph order, backward in
// reverse, each collective as early as its gradients allow. What ffexec follows when a strategy file has no (fitting)
// issue order.
Vector<int> default_issue_order(const TaskGraph& tasks);

// The file's names as an order of all tasks: compute and synchronization tasks as named, every transfer right behind
// the task that produces its data, updates behind their collective. Empty when the names are not exactly this task
// graph's or contradict it.
Vector<int> issue_order_from_names(const TaskGraphBuilder& builder, const TaskGraph& tasks,
                                   const Vector<std::string>& names);
// The names to be written for tasks in the given order.
Vector<std::string> issue_order_names(const TaskGraphBuilder& builder, const TaskGraph& tasks,
                                      const Vector<int>& order);

}  // namespace ff
