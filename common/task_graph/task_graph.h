// The task graph of one training iteration: the only place that derives tasks from (graph, topology, strategy). The
// simulator times it and the executor runs it, so what is predicted is what happens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "common/graph.h"
#include "common/strategy.h"
#include "common/task_graph/collectives.h"
#include "common/task_graph/edges.h"
#include "common/task_graph/synchronization_units.h"
#include "common/task_graph/task.h"
#include "common/vector.h"

namespace ff {

// A collective of an edge, in both directions.
struct EdgeCollective {
  int edge;
  int number;  // of the exchange
  Collective collective;
  std::shared_ptr<const EdgeExchanges> exchanges;
  const Exchange& exchange() const { return exchanges->exchanges[number]; }
  CollectiveKind kind(Direction direction) const {
    return direction == Direction::forward ? collective.kind : reversed(collective.kind);
  }
};

// Of all devices, or of some: then their compute tasks and updates, the transfers that begin or end there, the
// collectives that they take part in, and the order among these. A task's key is the same in both.
struct TaskGraph {
  Vector<DeviceId> devices;                                       // ascending; empty: of all
  Synchronization synchronization = Synchronization::all_reduce;  // of all groups, the furthest
  Vector<Synchronization> synchronization_of_group;               // empty: `synchronization` is that of each
  bool overlaps_reductions = true;                                // StrategySettings::overlaps_reductions
  Vector<Vector<int32_t>> parts;                                  // [operator], ascending: those whose tasks are here
  // By edge: the pairs with one of these parts at an end, ascending; null where the edge has collectives.
  Vector<std::shared_ptr<const BlockPairs>> pairs;
  Vector<Task> tasks;
  Vector<SynchronizationUnit> units;
  Vector<int32_t> gathered_with;  // [unit]: the one that stands for those of its layer; empty: each for itself
  Vector<StatisticsReduction> reductions;
  Vector<EdgeCollective> collectives;
  // Successors of task t: successors[successor_begin[t] .. successor_begin[t + 1]).
  Vector<int32_t> successor_begin;
  Vector<int32_t> successors;
  Vector<int32_t> predecessor_count;
  Vector<std::shared_ptr<const void>> kept;  // what pairs and pieces point into

  Synchronization synchronization_of(int group) const {
    return synchronization_of_group.empty() ? synchronization : synchronization_of_group[group];
  }

  // Does this reduction of gradients wait for a device's last backward pass?
  bool reduces_after_backward(const Task& reduction) const {
    return !overlaps_reductions && !shards_gradients(synchronization_of(units[reduction.unit].group));
  }

  // The place of a part in parts[op]; -1: not there.
  int place_of(OperatorId op, int32_t part) const {
    const Vector<int32_t>& here = parts[op];
    if (part < here.count() && here[part] == part) return part;  // as in a graph of all devices
    const auto found = std::lower_bound(here.begin(), here.end(), part);
    return found == here.end() || *found != part ? -1 : static_cast<int>(found - here.begin());
  }

  // The devices, ascending, that take part in a collective.
  const Vector<DeviceId>& holders(const Task& task) const {
    if (task.collective >= 0) return collectives[task.collective].collective.holders;
    return task.reduction >= 0 ? reductions[task.reduction].holders : units[task.unit].holders;
  }
  CollectiveKind collective_kind(const Task& task) const {
    if (task.collective >= 0) return collectives[task.collective].kind(direction_of(task.kind));
    if (task.kind == TaskKind::parameter_all_gather) return CollectiveKind::all_gather;
    return task.kind == TaskKind::synchronization && is_sharded(synchronization_of(units[task.unit].group))
               ? CollectiveKind::reduce_scatter
               : CollectiveKind::all_reduce;
  }
  // What a transfer of an edge moves, or what the k devices of a collective receive from others, if they send alike; 0
  // for other tasks.
  int64_t transferred_bytes(const Task& task) const {
    if (is_edge_transfer(task.kind)) return task.bytes;
    return is_edge_collective(task.kind) ? received_bytes(task, holders(task).count()) : 0;
  }
  // Likewise of parameters: of a unit with k holders 2 (k-1) times its bytes, which is what a ring moves in all, and
  // what goes to an owner and back; (k-1) times them for each collective of shards.
  int64_t synchronized_bytes(const Task& task) const {
    if (is_parameter_transfer(task.kind)) return task.bytes;
    return is_parameter_collective(task.kind) ? received_bytes(task, units[task.unit].holder_count()) : 0;
  }
  int64_t transfer_bytes() const {  // of all tasks
    int64_t bytes = 0;
    for (const Task& task : tasks) bytes += transferred_bytes(task);
    return bytes;
  }

 private:
  int64_t received_bytes(const Task& task, int64_t holders) const {
    return (collective_kind(task) == CollectiveKind::all_reduce ? 2 : 1) * (holders - 1) * task.bytes;
  }
};

// Derives task graphs for one graph. Block intersections and parameter pieces depend on degrees alone and are cached,
// so building for a second strategy is cheap; caches forget all when they have grown large. Not thread-safe: one
// builder a thread.
class TaskGraphBuilder {
 public:
  // `graph` has the whole batch; strategies are expanded to the micro-batches of `settings` (micro_batches.h).
  // `replicas`: devices that each device of the strategies stands for, with which it synchronizes parameters
  // (search/cost/replicas.h). `sharded_layers`, by operator: sharded parameters and gradients of a layer are gathered
  // and reduced at once; empty: each unit by itself. Throws InputError for patterns in `settings` that do not fit the
  // graph.
  explicit TaskGraphBuilder(const Graph& graph, const StrategySettings& settings = {}, int replicas = 1,
                            Vector<int> sharded_layers = {});

  const Graph& graph() const { return graph_; }
  Synchronization synchronization() const { return synchronization_; }  // of all groups, the furthest
  Synchronization synchronization(int group) const { return by_group_.empty() ? synchronization_ : by_group_[group]; }
  const Vector<Synchronization>& synchronization_by_group() const { return by_group_; }  // empty: all alike
  int micro_batches() const { return micro_batches_; }
  int replicas() const { return replicas_; }
  bool shards_layers() const { return !sharded_layers_.empty(); }
  int sharded_layer(OperatorId op) const { return sharded_layers_[op]; }
  bool recomputes() const { return !recomputed_.empty(); }  // any operator
  bool recomputed(OperatorId op) const { return !recomputed_.empty() && recomputed_[op]; }
  // Of recomputed ones, those that backward has a use for (recomputation.h).
  bool computed_again(OperatorId op) const { return !recomputed_.empty() && computed_again_[op]; }
  const Vector<Edge>& edges() const { return edges_; }
  const Vector<ParameterGroup>& groups() const { return groups_; }
  // By operator: equal numbers for operators with equal blocks (part_blocks.h).
  const Vector<int>& alike() const { return alike_; }
  int least_collective_size() const { return least_collective_size_; }
  // The first edge with the same blocks whatever the degrees: it stands for all that are alike, as in layers that
  // repeat.
  int first_alike(int edge) const { return first_alike_[edge]; }

  TaskGraph build(const Strategy& strategy);
  // Of some devices, ascending (none: of all), in a time that grows with what they meet, not with how many devices
  // there are.
  TaskGraph build(const Strategy& strategy, const Vector<DeviceId>& devices);
  TaskGraph build(const Strategy& strategy, DeviceId device) { return build(strategy, Vector<DeviceId>{device}); }

  // The blocks of an edge under these degrees at its ends.
  std::shared_ptr<const BlockPairs> pairs(int edge, const Degrees& producer, const Degrees& consumer);
  std::shared_ptr<const BlockPairs> pairs(int edge, const Strategy& strategy);
  // Where the edge's blocks move by collectives under this strategy; none of them: by transfers, of `pairs`.
  std::shared_ptr<const EdgeExchanges> exchanges(int edge, const Degrees& producer, const Degrees& consumer);
  Vector<Collective> collectives(int edge, const Strategy& strategy);
  // The intersection itself.
  Block region(int edge, const BlockPair& pair, const Strategy& strategy) const;
  std::shared_ptr<const Vector<ParameterPiece>> pieces(int group, const Strategy& strategy);

 private:
  const Graph& graph_;
  const Synchronization synchronization_;
  const Vector<Synchronization> by_group_;  // empty: all alike
  const Vector<bool> recomputed_;           // by operator; empty: none
  const Vector<bool> computed_again_;       // likewise
  const int micro_batches_, replicas_;
  const Vector<int> sharded_layers_;  // by operator; empty: none
  const bool overlaps_reductions_;
  const int least_collective_size_;
  Vector<Edge> edges_;
  Vector<ParameterGroup> groups_;
  Vector<int> alike_, first_alike_;
  std::shared_ptr<const BlockPairs> shared(BlockPairs pairs);  // one copy of equal ones, as unrolled steps have
  void set_key(const Degrees& producer, const Degrees& consumer);
  // Of the edge under the degrees of the key: those that were asked for last are kept, as exchanges are looked for
  // before pairs.
  const EdgeBlocks& blocks(int edge, const Degrees& producer, const Degrees& consumer);

  static constexpr size_t most_cached_pairs = size_t{1} << 24;  // 384 MB
  static constexpr size_t most_cached_users = size_t{1} << 22;  // 64 MB

  // by edge, of those that are alike the first; key: both ends' degrees
  Vector<std::unordered_map<Vector<int>, std::shared_ptr<const BlockPairs>, NumbersHash>> pair_cache_;
  std::unordered_multimap<uint64_t, std::shared_ptr<const BlockPairs>> distinct_pairs_;  // by hash
  Vector<std::unordered_map<Vector<int>, std::shared_ptr<const EdgeExchanges>, NumbersHash>>
      exchange_cache_;  // likewise
  size_t cached_exchange_parts_ = 0;
  struct {
    int edge = -1;
    Vector<int> key;
    EdgeBlocks blocks;
  } last_blocks_;
  Vector<int> key_;  // scratch
  size_t cached_pairs_ = 0;
  // by group
  Vector<std::unordered_map<Vector<int>, std::shared_ptr<const Vector<ParameterPiece>>, NumbersHash>> piece_cache_;
  size_t cached_users_ = 0;
};

}  // namespace ff
