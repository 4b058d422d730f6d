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
#include "common/task_graph/edges.h"
#include "common/task_graph/synchronization_units.h"
#include "common/task_graph/task.h"
#include "common/vector.h"

namespace ff {

struct TaskGraph {
  Vector<Task> tasks;
  Vector<SynchronizationUnit> units;
  Vector<StatisticsReduction> reductions;
  // Successors of task t: successors[successor_begin[t] .. successor_begin[t + 1]).
  Vector<int32_t> successor_begin;
  Vector<int32_t> successors;
  Vector<int32_t> predecessor_count;
  Vector<std::shared_ptr<const void>> kept;  // what pairs and pieces point into
  int64_t transfer_bytes = 0;                // of all activation and gradient transfers
  // 2 (k-1) times the bytes of each synchronization among k holders: what a ring moves in all
  int64_t synchronization_bytes = 0;

  // The devices, ascending, that take part in a synchronization or reduction.
  const Vector<DeviceId>& holders(const Task& task) const {
    return task.reduction >= 0 ? reductions[task.reduction].holders : units[task.unit].holders;
  }
};

// Derives task graphs for one graph. Block intersections and parameter pieces depend on degrees alone and are cached,
// so building for a second strategy is cheap; caches forget all when they have grown large. Not thread-safe: one
// builder a thread.
class TaskGraphBuilder {
 public:
  explicit TaskGraphBuilder(const Graph& graph);

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

}  // namespace ff
