#include "executor/plan/program_plan.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "common/operators/conversion.h"
#include "common/task_graph/parameter_buffers.h"
#include "common/task_graph/shared_kernels.h"
#include "executor/plan/planner.h"

namespace ff {

Planner::Planner(TaskGraphBuilder& builder, const Strategy& strategy, const TaskGraph& tasks, const Vector<int>& order,
                 const PlanSettings& settings)
    : builder(builder), graph(builder.graph()), strategy(strategy), tasks(tasks), order(order), settings(settings) {
  parameter_group.resize(graph.parameters.size());
  for (int group : builder.groups().indices()) {
    rounds.push_back(shard_rounds(builder, group));
    for (const ParameterId parameter : builder.groups()[group].parameters) parameter_group[parameter] = group;
  }
  make_steps();
  make_groups();
  make_parts();
}

PartPlan* Planner::local(OperatorId op, int part) {
  const int place = tasks.place_of(op, part);
  const int index = place < 0 ? -1 : part_index_[op][place];
  return index < 0 ? nullptr : &plan.parts[index];
}

Place Planner::allocate(int64_t elements, bool zeroed, DataType type) {
  if (elements == 0) return {};
  plan.buffers.push_back({elements, zeroed, type});
  return {static_cast<int>(plan.buffers.size()) - 1, 0, type};
}

Place Planner::in_arena(const BufferKey& key, int64_t elements, DataType type) const {
  if (elements == 0) return {};
  const PlannedBuffer* buffer = plan.memory.find(key);
  if (!buffer || buffer->bytes != bytes_of(type, elements))
    throw std::logic_error("the memory plan does not fit the program");
  return {arena_buffer, buffer->offset / size_of(type), type};
}

void Planner::make_steps() {
  plan.memory = std::move(plan_memory(builder, strategy, tasks, order, {settings.rank}, settings.transfer_buffers)[0]);
  plan.buffers.push_back({plan.memory.arena_bytes / element_bytes});
  for (const int index : plan.memory.steps) {
    StepPlan step{};
    step.kind = tasks.tasks[index].kind;
    step.task = index;
    step.unit = tasks.tasks[index].unit;
    plan.steps.push_back(std::move(step));
  }
}

void Planner::make_groups() {
  std::set<Vector<DeviceId>> found;
  for (const StepPlan& step : plan.steps)
    if (is_collective(step.kind)) found.insert(tasks.holders(tasks.tasks[step.task]));
  for (const Vector<DeviceId>& holders : found)
    if (holders.size() > 1) plan.groups.push_back(holders);
}

int Planner::group_of(const Vector<DeviceId>& holders) const {
  if (holders.size() < 2) return -1;
  return static_cast<int>(std::lower_bound(plan.groups.begin(), plan.groups.end(), holders) - plan.groups.begin());
}

void Planner::make_parts() {
  part_index_.resize(graph.operators.size());
  for (OperatorId op : graph.operator_ids()) part_index_[op].assign(tasks.parts[op].size(), -1);
  for (const StepPlan& step : plan.steps)
    if (const Task& task = tasks.tasks[step.task]; is_compute(step.kind))
      part_index_[task.op][tasks.place_of(task.op, task.part)] = 0;
  for (OperatorId op : graph.operator_ids())
    for (int place : tasks.parts[op].indices()) {
      if (part_index_[op][place] < 0) continue;
      part_index_[op][place] = static_cast<int>(plan.parts.size());
      PartPlan part{};
      part.op = op;
      part.part = tasks.parts[op][place];
      make_part(part);
      plan.parts.push_back(std::move(part));
    }
  const SharedKernels shared = shared_kernels(graph, strategy, tasks, plan.memory.steps);
  plan.kernels = shared.kernels.count();
  for (const auto& [op, part, kernel] : shared.uses)
    plan.parts[part_index_[op][tasks.place_of(op, part)]].kernel = kernel;
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    StepPlan& step = plan.steps[s];
    if (!is_compute(step.kind)) continue;
    const Task& task = tasks.tasks[step.task];
    step.part = part_index_[task.op][tasks.place_of(task.op, task.part)];
    if (step.kind == TaskKind::recompute) continue;
    PartPlan& part = plan.parts[step.part];
    PartSteps& steps = direction_of(step.kind) == Direction::forward ? part.forward : part.backward;
    if (steps.first < 0) steps.first = static_cast<int>(s);
    steps.last = static_cast<int>(s);
  }
  int64_t conversions = 0;
  for (const PartPlan& part : plan.parts)
    conversions = std::max(
        conversions, conversion_bytes(*graph.operators[part.op].definition, part.block,
                                      graph.operators[part.op].has_backward, graph.inputs_with_gradient(part.op)));
  plan.conversions = allocate(conversions / element_bytes);
}

void Planner::make_part(PartPlan& part) {
  using Kind = BufferKey::Kind;
  const Operator& op = graph.operators[part.op];
  const OperatorDefinition& definition = *op.definition;
  part.block = definition.part(strategy[part.op].degrees, part.part);
  for (int i = 0; i < static_cast<int>(op.inputs.size()); ++i) {
    const Block block = definition.input_block(i, part.block);
    part.input_blocks.push_back(block);
    const DataType type = definition.inputs()[i].type;
    part.input_gradients.push_back(graph.input_has_gradient(part.op, i)
                                       ? in_arena({Kind::input_gradient, part.op, part.part, i}, block.volume(), type)
                                       : Place{});
    part.inputs.push_back(graph.tensors[op.inputs[i]].producer < 0 ? graph_input(op.inputs[i], block) : Place{});
  }
  for (int o = 0; o < static_cast<int>(op.outputs.size()); ++o) {
    const Block block = definition.output_block(o, part.block);
    part.output_blocks.push_back(block);
    const DataType type = definition.outputs()[o].type;
    part.outputs.push_back(definition.is_loss()
                               ? allocate(block.volume())
                               : in_arena({Kind::output, part.op, part.part, o}, block.volume(), type));
  }
  if (!definition.is_loss()) part.output_gradients.resize(op.outputs.size());
  else if (!part.output_blocks[0].empty())
    plan.losses.push_back(
        {part.op, part.output_blocks[0], part.outputs[0], definition.counts_correct() ? part.outputs[1] : Place{}});
  for (size_t p = 0; p < op.parameters.size(); ++p)
    part.parameters.push_back(
        parameter_buffer(op.parameters[p], definition.parameter_block(static_cast<int>(p), part.block)));
}

Place Planner::graph_input(TensorId tensor, const Block& block) {
  for (const InputBuffer& input : plan.inputs)
    if (input.tensor == tensor && input.block == block) return input.memory;
  plan.inputs.push_back({tensor, block, allocate(block.volume())});
  return plan.inputs.back().memory;
}

// Of a piece of a unit that is sharded in rounds, which has its weights; else null.
const ShardRounds* Planner::rounds_of(ParameterId parameter, const Block& block) const {
  for (const SynchronizationUnit& unit : tasks.units) {
    if (unit.holders.size() < 2 || !rounds[unit.group].gradients) continue;
    for (const ParameterPiece* piece : unit.pieces)
      if (piece->parameter == parameter && piece->block == block) return &rounds[unit.group];
  }
  return nullptr;
}

int Planner::parameter_buffer(ParameterId parameter, const Block& block) {
  for (size_t i = 0; i < plan.parameters.size(); ++i)
    if (plan.parameters[i].parameter == parameter && plan.parameters[i].block == block) return static_cast<int>(i);
  // The gradient is placed when the pieces are known (synchronization.cpp).
  const int state_buffers =
      is_sharded(builder.synchronization(parameter_group[parameter])) ? 0 : settings.state_buffers;
  const ParameterBufferSizes sizes =
      parameter_buffer_sizes(graph, parameter, block.volume(), state_buffers, {false, false});
  const ShardRounds* const in_rounds = rounds_of(parameter, block);
  const Place weight = in_rounds ? Place() : allocate(sizes.weight);
  Vector<Place> states;
  for (int state = 0; sizes.states > 0 && state < state_buffers; ++state)
    states.push_back(allocate(block.volume(), true));
  const DataType read = type_read(graph, parameter);
  const bool copied = read != DataType::f32 && !(in_rounds && in_rounds->parameters);  // else kernels round them
  plan.parameters.push_back(
      {parameter, block, weight, copied ? allocate(block.volume(), false, read) : Place{}, std::move(states)});
  return static_cast<int>(plan.parameters.size()) - 1;
}

ProgramPlan plan_program(TaskGraphBuilder& builder, const Strategy& strategy, const TaskGraph& tasks,
                         const Vector<int>& order, const PlanSettings& settings) {
  Planner planner(builder, strategy, tasks, order, settings);
  plan_edges(planner);
  plan_collective_waits(planner);
  plan_synchronization(planner);
  if (builder.synchronization() == Synchronization::parameter_server) plan_owners(planner);
  plan_statistics(planner);
  plan_state_updates(planner);
  plan_weight_copies(planner);
  plan_tags(planner);
  if (!settings.ordered) plan_posts(planner);
  // else an iteration ends after its sends
  if (!settings.follows_backend || settings.transfer_buffers == TransferBuffers::on_demand) plan_send_waits(planner);
  if (settings.ordered) plan_transfer_groups(planner);
  if (builder.recomputes()) plan_recomputation(planner);
  return std::move(planner.plan);
}

}  // namespace ff
