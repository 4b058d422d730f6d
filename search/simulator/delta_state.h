// What delta simulation knows of a strategy, kept per operator, edge and parameter group so that a change of one operator replaces little; and how
// to take the change back.
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "search/cost/task_costs.h"

namespace ff::delta {

// The all-reduce of the statistics that some parts of an operator have in common.
struct ReductionState {
  std::vector<int> parts;
  CommunicationCost collective;
};

// What an operator's own configuration says. Of operators with statistics the kernels' times include both tasks of a direction.
struct OperatorState {
  std::vector<DeviceId> devices;
  std::vector<int> degrees;
  std::vector<Nanoseconds> forward_kernel, backward_kernel;  // [part]
  // Of operators with statistics, else empty:
  std::vector<Nanoseconds> forward_statistics_kernel, backward_statistics_kernel;  // [part]
  std::vector<ReductionState> reductions;                                          // [statistics group], alike in both directions
  std::vector<int32_t> reduction_of;                                               // [part]: its statistics group
  int parts() const { return static_cast<int>(devices.size()); }
};

// A part's tasks among those around it: what the event loop needs together.
struct PartTasks {
  Nanoseconds forward, backward;  // durations with copies
  DeviceId device;
  // Predecessors of the first task of the direction. Backward: contributions to its gradients alone, behind which the part's own forward task lies
  // anyway; without any it follows the forward task.
  int32_t forward_waits, backward_waits;
};

struct OperatorTasks {
  std::vector<PartTasks> parts;
  std::vector<Nanoseconds> forward_statistics, backward_statistics;  // [part], of operators with statistics
};

// One edge under given degrees at both ends: who exchanges blocks with whom.
struct EdgePlan {
  const BlockPairs* pairs = nullptr;    // in order of (consumer part, producer part)
  std::vector<int32_t> consumer_begin;  // [consumer part + 1]: its pairs
  std::vector<int32_t> producer_begin;  // [producer part + 1]: into by_producer
  std::vector<int32_t> by_producer;     // indices of pairs
  bool one_to_one = false;              // part i exchanges blocks with part i, in pair i, and with no other
};

// Copies that an edge causes, which depend on the devices too.
struct EdgeState {
  const EdgePlan* plan = nullptr;
  std::vector<int64_t> assembled;      // [consumer part]: bytes copied to assemble its input
  std::vector<int64_t> packed;         // [producer part]: bytes packed to send activations
  std::vector<int64_t> packed_back;    // [consumer part]: bytes packed to send gradients
  std::vector<int64_t> contributed;    // [producer part]: bytes of the contributions to its output's gradient
  std::vector<int32_t> contributions;  // [producer part]: how many
  std::vector<uint8_t> in_place;       // [producer part]: the (only) contribution needs no copy
};

struct UnitState {
  int64_t number;  // of the first piece: part of the key
  SynchronizationUnit unit;
  std::vector<Nanoseconds> update;  // [holder]
  CommunicationCost collective;     // of several holders
  int32_t waits = 0;
};

struct GroupState {
  std::vector<UnitState> units;
  // Units that wait for a part of the operator at a position of the group: units_of[position][begin[position][part] ..].
  std::vector<std::vector<int32_t>> begin, units_of;
  bool one_unit = false;  // which all parts wait for
};

// Longest paths through the operators, when each takes the time of its fastest part's kernel (and reduction) and copies and transfers take none:
//   head            from the start to the operator's forward tasks
//   middle          from an operator's forward to its backward task, through its consumers
//   tail_producers  behind a backward task, through its producers
//   tail_backward   the same, or its own synchronization where no other operator shares its parameters
//   tail_forward    behind a forward task
// Only edges count over which every part of both ends exchanges data, whatever the degrees. Then head, middle and tail_producers of an
// operator do not depend on its own configuration.
struct OperatorPaths {
  std::vector<Nanoseconds> head, middle, tail_forward, tail_producers, tail_backward;  // [operator]
  std::vector<Nanoseconds> least_forward, least_backward, least_synchronization;       // [operator]: of its own
};

class StrategyState {
 public:
  // All must outlive the state.
  StrategyState(TaskGraphBuilder& builder, const Topology& topology, TaskCostModel& costs);

  void reset(const Strategy& strategy);
  // Replaces what depends on the configuration of `op`. To be followed by keep() or undo().
  void change(OperatorId op, const Configuration& configuration);
  void keep() { undo_.clear(); }
  void undo();

  // Of a change that has not been kept or undone: the operators whose tasks it touched, with their tasks before it, and the trained groups.
  struct Before {
    OperatorId op;
    const OperatorTasks& tasks;
  };
  size_t touched() const { return undo_.touched; }
  Before before(size_t i) const { return {undo_.tasks[i].first, undo_.tasks[i].second}; }
  const OperatorState& changed_before() const { return undo_.changed; }

  // A lower bound on the makespan with this configuration from kernel times alone: the work of each device, and the path through the operator.
  Nanoseconds least_makespan(OperatorId op, const Configuration& configuration);

  OperatorId count() const { return static_cast<OperatorId>(graph.operators.size()); }
  int model_of(DeviceId device) const { return topology.devices[device].model; }
  bool has_backward(OperatorId op) const { return graph.operators[op].has_backward; }
  const Edge& edge(int e) const { return builder.edges()[e]; }

  TaskGraphBuilder& builder;
  const Graph& graph;
  const Topology& topology;
  TaskCostModel& costs;

  // What the graph says whatever the strategy.
  std::vector<std::vector<int>> in_edges, out_edges;        // [operator]; out_edges tensor by tensor
  std::vector<std::vector<std::pair<int, int>>> groups_of;  // [operator]: (trained group, position in it)
  std::vector<uint8_t> has_statistics;                      // [operator]
  std::vector<uint8_t> edge_has_gradient;                   // [edge]
  std::vector<uint8_t> every_part_reads, every_part_is_read;  // [edge]

  Strategy strategy;
  std::vector<OperatorState> operators;
  std::vector<OperatorTasks> tasks;  // [operator]
  std::vector<EdgeState> edges;
  std::vector<GroupState> groups;
  std::vector<Nanoseconds> work, kernel_work;  // [device]: all compute and update work; kernels alone
  OperatorPaths paths;

 private:
  // What a change replaced. Buffers are used again.
  struct Undo {
    OperatorId op = -1;
    Configuration configuration;
    OperatorState changed;
    size_t touched = 0, edge_count = 0;
    std::vector<std::pair<OperatorId, OperatorTasks>> tasks;
    std::vector<std::pair<int, EdgeState>> edges;
    std::vector<std::pair<int, GroupState>> groups;
    std::vector<Nanoseconds> work, kernel_work;
    OperatorPaths paths;
    void clear() {
      op = -1;
      touched = edge_count = 0;
      groups.clear();
    }
  };

  void set_operator(OperatorId op);
  void set_reductions(OperatorId op);
  const EdgePlan& plan_of(int e);
  void set_edge(int e);
  void set_tasks(OperatorId op);
  void set_group(int g);
  void add_work(OperatorId op, Nanoseconds sign);
  void add_kernel_work(OperatorId op, Nanoseconds sign);
  void add_group_work(int g, Nanoseconds sign);
  void set_paths();

  std::vector<std::vector<OperatorId>> around_;  // [operator]: itself and its neighbours
  std::map<std::tuple<const BlockPairs*, size_t, size_t>, EdgePlan> plans_;  // by pairs, producer parts, consumer parts
  Undo undo_;
  std::vector<int> position_of_;       // scratch: [operator], of a group
  std::vector<uint8_t> is_holder_;     // scratch: [device]
  std::vector<Nanoseconds> bound_work_;  // scratch: [device]
};

}  // namespace ff::delta
