// What delta simulation knows of a strategy, kept per operator, edge and parameter group so that a change of one
// operator replaces little; and how to take the change back.
#pragma once

#include <memory>
#include <utility>

#include "common/task_graph/edge_copies.h"
#include "common/task_graph/shards.h"
#include "common/task_graph/wiring.h"
#include "common/vector.h"
#include "search/cost/task_costs.h"
#include "search/simulator/delta/edge_plans.h"
#include "search/simulator/delta/network_structure.h"
#include "search/simulator/delta/reused_vector.h"

namespace ff::delta {

// The all-reduce of the statistics that some parts of an operator have in common.
struct ReductionState {
  Vector<int> parts;
  CommunicationCost collective;
};

// What an operator's own configuration says.
struct OperatorState {
  Vector<DeviceId> devices;
  Degrees degrees;
  PerDirection<Vector<Nanoseconds>> kernel;  // [direction][part]; with statistics: of both tasks
  // Of directions with statistics, else empty:
  PerDirection<Vector<Nanoseconds>> statistics_kernel;  // [direction][part]
  PerDirection<Vector<ReductionState>> reductions;      // [direction][statistics group]
  Vector<int32_t> reduction_of;                         // [part]: its statistics group
  bool has_statistics(Direction direction) const { return !reductions[direction].empty(); }
  int parts() const { return static_cast<int>(devices.size()); }
};

// A part's tasks among those around it: what the event loop needs together.
struct PartTasks {
  PerDirection<Nanoseconds> duration;  // with copies, without statistics tasks
  DeviceId device;
  // Predecessors of the first task of the direction. Backward: contributions to its gradients alone, after which the
  // part's own forward task lies anyway; without any it follows the forward task.
  PerDirection<int32_t> waits;
};

struct OperatorTasks {
  Vector<PartTasks> parts;
  PerDirection<Vector<Nanoseconds>> statistics;  // [direction][part]: durations; empty without statistics
  bool has_copies = false;                       // some take longer than their kernels
  // Of all tasks of a part in one direction.
  Nanoseconds duration(Direction direction, size_t part) const {
    return parts[part].duration[direction] + (statistics[direction].empty() ? 0 : statistics[direction][part]);
  }
};

struct EdgeState {
  std::shared_ptr<const EdgePlan> plan;  // where blocks move by transfers
  // Where they move by collectives: [exchange], what each costs.
  std::shared_ptr<const EdgeExchanges> exchanges;
  Vector<PerDirection<CommunicationCost>> collectives;
  EdgeCopyBytes copies;  // which depend on the devices too

  bool has_collectives() const { return !collectives.empty(); }
  // How many transfers, collectives or local blocks a consumer's part waits for.
  int32_t arrivals_at_consumer(size_t part) const {
    if (has_collectives()) return exchanges->of_consumer[part] >= 0 ? 1 : 0;
    return plan->consumer_begin[part + 1] - plan->consumer_begin[part];
  }
};

// The pieces of a group that the same devices hold.
struct UnitState {
  int64_t number;            // of the first piece: part of the key
  Vector<DeviceId> holders;  // ascending
  DeviceId owner;            // no_owner where an all-reduce synchronizes
  int64_t bytes = 0;
  Vector<Nanoseconds> update;    // [holder]
  Vector<int64_t> packed_bytes;  // [holder]: by the holder's barrier; empty without an owner
  CommunicationCost collective;  // of several holders without an owner
  Nanoseconds behind_owner = 0;  // with an owner: what follows its update at least
  int32_t waits = 0;             // for so many parts; with an owner: for its barrier and the other holders' gradients

  size_t holder_count() const { return holders.size(); }
};

struct GroupState {
  Vector<UnitState> units;
  Vector<std::shared_ptr<const ShardList>> lists;  // [position of the group]
  Vector<Vector<int32_t>> units_of_shard;          // [shard]: ascending; empty where not in use
  bool one_unit = false;                           // which waits for all parts
  bool each_part_has_a_unit = false;               // no part holds nothing of the parameters
};

class StrategyState : public NetworkStructure {
 public:
  // All must outlive the state.
  StrategyState(TaskGraphBuilder& builder, const Topology& topology, TaskCostModel& costs);

  void reset(const Strategy& strategy);
  // Replaces what depends on the configurations of these operators, each once. May be followed by undo().
  void change(const Vector<Change>& changes);
  void undo();

  // What the last change replaced: the changed operators, and the tasks, edges and trained groups that it touched.
  struct Replaced {
    struct Changed {
      OperatorId op;
      Configuration configuration;
      OperatorState state;
    };
    struct Tasks {
      OperatorId op;
      OperatorTasks tasks;
    };
    ReusedVector<Changed> operators;
    ReusedVector<Tasks> tasks;                        // by operator, ascending
    ReusedVector<std::pair<int, EdgeState>> edges;    // ascending
    ReusedVector<std::pair<int, GroupState>> groups;  // ascending
  };
  const Replaced& replaced() const { return replaced_; }

  // Of an edge under these degrees at its ends.
  const std::shared_ptr<const EdgePlan>& plan_of(int e, const Degrees& producer, const Degrees& consumer) {
    return plans_.plan(e, producer, consumer);
  }
  // Of the first of a part's tasks in this direction.
  TaskKind first_kind(Direction direction, OperatorId op) const {
    return tasks[op].statistics[direction].empty() ? compute_kind(direction) : statistics_kind(direction);
  }
  bool has_owners() const { return builder.synchronization() == Synchronization::parameter_server; }
  int model_of(DeviceId device) const { return topology.devices[device].model; }
  size_t resource_count() const { return topology.devices.size() + topology.channels.size(); }

  const Topology& topology;
  TaskCostModel& costs;
  Strategy strategy;
  Vector<OperatorState> operators;
  Vector<OperatorTasks> tasks;  // [operator]
  Vector<EdgeState> edges;
  Vector<GroupState> groups;
  Vector<int32_t> parts_on;  // [device]

 private:
  void set_operator(OperatorId op);
  void count_parts(const Vector<DeviceId>& devices, int32_t sign);
  void set_reductions(OperatorId op, Direction direction);
  void set_edge(int e);
  bool set_collectives(int e);
  void set_tasks(OperatorId op);
  void set_group(int g);
  void find_holders(int g, const ParameterPartition& partition);
  void set_behind_owner(UnitState& unit);
  void set_updates(int g, const ParameterPartition& partition, const Vector<int32_t>& unit_of_piece);

  EdgePlans plans_;
  Vector<GroupPartitions> partitions_;  // [group]
  Replaced replaced_;
  Vector<int> touched_, touched_edges_, touched_groups_;  // scratch

  struct HolderScratch {
    // [shard][word]: devices that hold it, and those where it has a gradient
    Vector<uint64_t> shard_devices, shard_gradients;
    Vector<int32_t> shard_parts;  // [shard]
    // [shard]: the first part that holds it, and where that is; operator -1: none
    Vector<std::pair<std::pair<OperatorId, int>, DeviceId>> shard_first;
    BitSet piece_devices;
    UnitNumbers units;
    Vector<int64_t> sums;    // [device]: bytes added up
    Vector<int32_t> blocks;  // [device]
  } scratch_;
};

}  // namespace ff::delta
