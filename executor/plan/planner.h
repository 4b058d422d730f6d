// What the sections of planning share. Each plans one aspect of all steps, in this order: program_plan.cpp the steps
// and parts with their memory, edges.cpp what goes from part to part, synchronization.cpp gradients of parameters and
// statistics, owners.cpp parameters that one rank updates for others, recomputation.cpp what recomputed
// parts read and write the second time, transfers.cpp how messages are matched, when
// sends are waited for and in which order transfers start.
#pragma once

#include <unordered_map>

#include "executor/plan/program_plan.h"

namespace ff {

// Parameters are row-major while blocks of four axes are stored channels-last: they get a fifth axis.
inline Block parameter_storage(const Block& block) {
  Block storage = block;
  if (block.rank() == 4) storage.append({0, 1});
  return storage;
}

class Planner {
 public:
  Planner(TaskGraphBuilder& builder, const Strategy& strategy, const TaskGraph& tasks, const Vector<int>& order,
          const PlanSettings& settings);

  TaskGraphBuilder& builder;
  const Graph& graph;
  const Strategy& strategy;
  const TaskGraph& tasks;
  const Vector<int>& order;
  const PlanSettings settings;
  Vector<ShardRounds> rounds;  // by parameter group
  Vector<int> parameter_group;
  ProgramPlan plan;

  // Null on another rank.
  PartPlan* local(OperatorId op, int part);
  // A buffer of its own; nowhere for no elements.
  Place allocate(int64_t elements, bool zeroed = false, DataType type = DataType::f32);
  // The place that the memory plan gives it.
  Place in_arena(const BufferKey& key, int64_t elements, DataType type = DataType::f32) const;
  // The index of these ranks' group; -1 for a single one.
  int group_of(const Vector<DeviceId>& holders) const;

 private:
  void make_steps();
  void make_groups();
  void make_parts();
  void make_part(PartPlan& part);
  Place graph_input(TensorId tensor, const Block& block);
  const ShardRounds* rounds_of(ParameterId parameter, const Block& block) const;
  int parameter_buffer(ParameterId parameter, const Block& block);

  Vector<Vector<int>> part_index_;  // [operator][place in tasks.parts]: index into plan.parts; -1: on another rank
};

void plan_edges(Planner& planner);
void plan_collective_waits(Planner& planner);
void plan_synchronization(Planner& planner);
void plan_owners(Planner& planner);
void plan_statistics(Planner& planner);
void plan_state_updates(Planner& planner);
void plan_weight_copies(Planner& planner);
void plan_tags(Planner& planner);
void plan_posts(Planner& planner);
void plan_send_waits(Planner& planner);
void plan_transfer_groups(Planner& planner);
void plan_recomputation(Planner& planner);

}  // namespace ff
