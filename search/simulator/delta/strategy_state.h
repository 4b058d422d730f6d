// What delta simulation knows of a strategy, kept per operator, edge and parameter group so that a change of one
// operator replaces little; and how to take the change back.
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>

#include "common/vector.h"
#include "search/cost/task_costs.h"
#include "search/simulator/delta/bounds/synchronization_tail.h"
#include "search/simulator/parameter_partition.h"
#include "search/simulator/delta/bounds/synchronization_order.h"

namespace ff::delta {

// The all-reduce of the statistics that some parts of an operator have in common.
struct ReductionState {
  Vector<int> parts;
  CommunicationCost collective;
};

// What an operator's own configuration says. Of operators with statistics the kernels' times include both tasks of a
// direction.
struct OperatorState {
  Vector<DeviceId> devices;
  Degrees degrees;
  Vector<Nanoseconds> forward_kernel, backward_kernel;  // [part]
  // Of operators with statistics, else empty:
  Vector<Nanoseconds> forward_statistics_kernel, backward_statistics_kernel;  // [part]
  // [statistics group], alike in both directions
  Vector<ReductionState> reductions;
  Vector<int32_t> reduction_of;  // [part]: its statistics group
  int parts() const { return static_cast<int>(devices.size()); }
};

// A part's tasks among those around it: what the event loop needs together.
struct PartTasks {
  Nanoseconds forward, backward;  // durations with copies
  DeviceId device;
  // Predecessors of the first task of the direction. Backward: contributions to its gradients alone, behind which the
  // part's own forward task lies anyway; without any it follows the forward task.
  int32_t forward_waits, backward_waits;
};

struct OperatorTasks {
  Vector<PartTasks> parts;
  Vector<Nanoseconds> forward_statistics, backward_statistics;  // [part], of operators with statistics
  // Of all tasks of a part in one direction.
  Nanoseconds duration(size_t part, bool backward) const {
    const Vector<Nanoseconds>& statistics = backward ? backward_statistics : forward_statistics;
    return (backward ? parts[part].backward : parts[part].forward) + (statistics.empty() ? 0 : statistics[part]);
  }
};

// One edge under given degrees at both ends: who exchanges blocks with whom.
struct EdgePlan {
  std::shared_ptr<const BlockPairs> pairs;  // in order of (consumer part, producer part)
  Vector<int32_t> consumer_begin;           // [consumer part + 1]: its pairs
  Vector<int32_t> producer_begin;           // [producer part + 1]: into by_producer
  Vector<int32_t> by_producer;              // indices of pairs
  bool one_to_one = false;                  // part i exchanges blocks with part i, in pair i, and with no other
};

// Copies that an edge causes, which depend on the devices too.
struct EdgeState {
  std::shared_ptr<const EdgePlan> plan;
  Vector<int64_t> assembled;      // [consumer part]: bytes copied to assemble its input
  Vector<int64_t> packed;         // [producer part]: bytes packed to send activations
  Vector<int64_t> packed_back;    // [consumer part]: bytes packed to send gradients
  Vector<int64_t> contributed;    // [producer part]: bytes of the contributions to its output's gradient
  Vector<int32_t> contributions;  // [producer part]: how many
  Vector<uint8_t> in_place;       // [producer part]: the (only) contribution needs no copy
};

// The pieces of a group that the same devices hold.
struct UnitState {
  int64_t number;            // of the first piece: part of the key
  Vector<DeviceId> holders;  // ascending
  int64_t bytes = 0;
  Vector<Nanoseconds> update;    // [holder]
  CommunicationCost collective;  // of several holders
  int32_t waits = 0;             // for so many parts
};

struct GroupState {
  Vector<UnitState> units;
  Vector<std::shared_ptr<const ShardList>> lists;  // [position of the group]
  Vector<Vector<int32_t>> units_of_shard;          // [shard]: ascending; empty where not in use
  bool one_unit = false;                           // which all parts wait for
};

// How long the synchronization occupies the resource.
Nanoseconds occupancy(const UnitState& unit, size_t resource);
Nanoseconds occupancy(const GroupState& group, size_t resource);

// Longest paths through the operators, when each takes the time of its fastest part's kernel (and reduction) and copies
// and transfers take none:
//   head            from the start to the operator's forward tasks
//   middle          from an operator's forward to its backward task, through its consumers
//   tail_producers  behind a backward task, through its producers
//   tail_backward   the same, or its own synchronization where no other operator shares its parameters
//   tail_forward    behind a forward task
// Only edges count over which every part of both ends exchanges data, whatever the degrees. Then head, middle and
// tail_producers of an operator do not depend on its own configuration.
struct OperatorPaths {
  Vector<Nanoseconds> head, middle, tail_forward, tail_producers, tail_backward;  // [operator]
  Vector<Nanoseconds> least_forward, least_backward, least_synchronization;       // [operator]: of its own
};

class StrategyState {
 public:
  // All must outlive the state.
  StrategyState(TaskGraphBuilder& builder, const Topology& topology, TaskCostModel& costs);

  void reset(const Strategy& strategy);
  // Replaces what depends on the configurations of these operators, each once. To be followed by keep() or undo().
  void change(const Vector<Change>& changes);
  // True if late groups are other ones than before.
  bool keep();
  void undo();

  // Of a change that has not been kept or undone: the operators whose tasks it touched, with their tasks before it, and
  // the trained groups.
  struct Before {
    OperatorId op;
    const OperatorTasks& tasks;
  };
  size_t touched() const { return undo_.touched; }
  Before before(size_t i) const { return {undo_.tasks[i].first, undo_.tasks[i].second}; }

  // Has the group of the operator at this position (see groups_of) one block of parameters alone, under these degrees?
  bool has_one_shard(int group, size_t position, const Degrees& degrees) {
    return partitions_[group].shards(position, degrees)->shards.size() == 1;
  }

  // Of an edge under these degrees at its ends.
  const std::shared_ptr<const EdgePlan>& plan_of(int e, const Degrees& producer, const Degrees& consumer);

  OperatorId count() const { return static_cast<OperatorId>(graph.operators.size()); }
  int model_of(DeviceId device) const { return topology.devices[device].model; }
  bool has_backward(OperatorId op) const { return graph.operators[op].has_backward; }
  const Edge& edge(int e) const { return builder.edges()[e]; }

  TaskGraphBuilder& builder;
  const Graph& graph;
  const Topology& topology;
  TaskCostModel& costs;

  // What the graph says whatever the strategy.
  Vector<Vector<int>> in_edges, out_edges;               // [operator]; out_edges tensor by tensor
  Vector<Vector<std::pair<int, size_t>>> groups_of;      // [operator]: (trained group, position in it)
  Vector<uint8_t> has_statistics;                        // [operator]
  Vector<uint8_t> edge_has_gradient;                     // [edge]
  Vector<uint8_t> every_part_reads, every_part_is_read;  // [edge]

  Strategy strategy;
  Vector<OperatorState> operators;
  Vector<OperatorTasks> tasks;  // [operator]
  Vector<EdgeState> edges;
  Vector<GroupState> groups;
  Vector<Nanoseconds> work, kernel_work;  // [device]: all compute and update work; kernels alone
  OperatorPaths paths;
  static constexpr size_t late_count = 2;
  Vector<LateGroups> late;                      // [late_count]
  Vector<uint8_t> late_forward, late_backward;  // [operator]: bit i: its tasks come before the groups late[i]

 private:
  // What a change replaced. Buffers are used again.
  struct Undo {
    struct Changed {
      OperatorId op;
      Configuration configuration;
      OperatorState state;
    };
    size_t changed_count = 0, touched = 0, edge_count = 0;
    Vector<Changed> changed;
    Vector<std::pair<OperatorId, OperatorTasks>> tasks;
    Vector<std::pair<int, EdgeState>> edges;
    Vector<std::pair<int, GroupState>> groups;
    Vector<Nanoseconds> work, kernel_work;
    OperatorPaths paths;
    Vector<LateLoad> late;
    void clear() {
      changed_count = touched = edge_count = 0;
      groups.clear();
    }
  };

  void find_touched(const Vector<Change>& changes);
  void set_operator(OperatorId op);
  void set_reductions(OperatorId op);
  void set_edge(int e);
  void set_tasks(OperatorId op);
  void set_group(int g);
  void find_holders(int g, const ParameterPartition& partition);
  void set_updates(int g, const ParameterPartition& partition, const Vector<int32_t>& unit_of_piece);
  void add_work(OperatorId op, Nanoseconds sign);
  void add_kernel_work(OperatorId op, Nanoseconds sign);
  void add_group_work(int g, Nanoseconds sign);
  void set_paths();
  bool choose_late();
  void finish_late(int changed_group);

  const SynchronizationOrder order_;
  Vector<Vector<OperatorId>> around_;                           // [operator]: itself and its neighbours
  static constexpr size_t most_cached_pairs = size_t{1} << 26;  // 256 MB
  // by edge; key: both ends' degrees
  Vector<std::unordered_map<Degrees, std::shared_ptr<const EdgePlan>, DegreesHash>> plans_;
  // by pairs, producer parts, consumer parts
  std::map<std::tuple<const BlockPairs*, size_t, size_t>, std::shared_ptr<const EdgePlan>> distinct_plans_;
  size_t cached_pairs_ = 0;
  Degrees plan_key_;                    // scratch
  Vector<GroupPartitions> partitions_;  // [group]
  Undo undo_;
  // Of the last change, ascending: operators whose tasks it touches, its edges, its trained groups.
  Vector<OperatorId> touched_;
  Vector<int> touched_edges_, touched_groups_;

  struct HolderScratch {
    // [shard][word]: devices that hold it, and those where it has a gradient
    Vector<uint64_t> shard_devices, shard_gradients;
    Vector<int32_t> shard_parts;                         // [shard]
    Vector<uint64_t> piece_devices;                      // [word]
    std::unordered_multimap<uint64_t, int32_t> unit_of;  // by hash of devices
    Vector<Vector<uint64_t>> unit_devices;               // [unit]
    Vector<int64_t> sums;                                // [device]: bytes added up
    Vector<int32_t> blocks;                              // [device]
  } scratch_;
};

}  // namespace ff::delta
