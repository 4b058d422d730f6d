// The construction of a program: parts, edges forward and backward, and synchronization units, in this order.
#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <unordered_map>

#include "common/task_graph/issue_order.h"
#include "executor/program.h"
#include "executor/runs.h"
#include "executor/transfer_order.h"

namespace ff {

class ProgramPlanner {
 public:
  using Kind = BufferKey::Kind;

  explicit ProgramPlanner(Program& program)
      : program_(program), graph_(program.graph), strategy_(program.strategy), rank_(program.transport.rank()) {}

  void plan(const Vector<std::string>& issue_order) {
    make_steps(issue_order);
    make_groups();
    make_parts();
    for (size_t edge = 0; edge < program_.builder.edges().size(); ++edge) plan_forward(static_cast<int>(edge));
    for (size_t edge = 0; edge < program_.builder.edges().size(); ++edge) collect_contributions(static_cast<int>(edge));
    for (LocalPart& part : parts_)
      if (graph_.operators[part.op].has_backward)
        for (size_t output = 0; output < part.outputs.size(); ++output) plan_output_gradient(part, output);
    make_units();
    allocate_parameter_gradients();
    for (int unit : pending_pack_) plan_pack(unit);
    for (LocalPart& part : parts_) finish_part(part);
    plan_reductions();
    find_state_updates();
    plan_send_waits();
    plan_connections();
  }

 private:
  // A contribution to the gradient of an output block: from a consumer here, or received.
  struct Contribution {
    const BlockPair* pair;
    BufferKey received;  // where it is received, unless in place
    Block region;
    bool local;
    const float* gradient;  // local: of the consumer's input block
    Block gradient_block;
    int task;  // remote: the transfer
    int source;
  };

  // An operator's part on this rank and its memory.
  struct LocalPart {
    OperatorId op;
    int part;
    Block block;
    Kernel* kernel;
    int forward_step, backward_step;    // backward -1 without one
    int forward_first, backward_first;  // the steps of the statistics tasks, else the same
    Vector<Block> input_blocks, output_blocks, parameter_blocks;
    Vector<const void*> inputs;
    Vector<float*> outputs, output_gradients, input_gradients, parameter_gradients;
    Vector<uint8_t> accumulate;                  // by parameter: its gradient is added to
    Vector<int> parameters;                      // indices into Program::parameters
    Vector<Vector<Contribution>> contributions;  // by output
  };

  LocalPart* local(OperatorId op, int part) {
    const int index = part_index_[op][part];
    return index < 0 ? nullptr : &parts_[index];
  }

  void make_steps(const Vector<std::string>& issue_order) {
    const TaskGraph& tasks = program_.tasks;
    Vector<int> order = issue_order_from_names(program_.builder, tasks, issue_order);
    program_.own_issue_order = order.empty();
    if (order.empty()) order = default_issue_order(tasks);
    order_ = order;
    step_of_task_.assign(tasks.tasks.size(), -1);
    for (int index : order)
      if (const Task& task = tasks.tasks[index]; is_transfer(task.kind))
        (task.kind == TaskKind::activation ? activations_ : gradients_)[{task.edge, task.pair}] = index;
    program_.memory = std::move(plan_memory(program_.builder, strategy_, tasks, order, {rank_})[0]);
    program_.arena = program_.buffers.allocate(program_.memory.arena_bytes / element_bytes);
    for (int index : program_.memory.steps) {
      step_of_task_[index] = static_cast<int>(program_.steps.size());
      Step step{};
      step.kind = tasks.tasks[index].kind;
      step.task = index;
      step.unit = tasks.tasks[index].unit;
      program_.steps.push_back(std::move(step));
    }
  }

  // A buffer's place in the arena; null for an empty one.
  float* place(const BufferKey& key, int64_t elements) const {
    if (elements == 0) return nullptr;
    const PlannedBuffer* buffer = program_.memory.find(key);
    if (!buffer || buffer->bytes != elements * element_bytes)
      throw std::logic_error("the memory plan does not fit the program");
    return program_.arena + buffer->offset / element_bytes;
  }

  void make_parts() {
    std::map<std::pair<OperatorId, int>, std::map<TaskKind, int>> steps;  // (op, part) -> steps
    for (const Step& step : program_.steps) {
      if (!is_compute(step.kind)) continue;
      const Task& task = program_.tasks.tasks[step.task];
      steps[{task.op, task.part}][step.kind] = step_of_task_[step.task];
    }
    part_index_.resize(graph_.operators.size());
    for (size_t op = 0; op < graph_.operators.size(); ++op) part_index_[op].assign(strategy_[op].devices.size(), -1);
    for (const auto& [where, by_kind] : steps) {
      part_index_[where.first][where.second] = static_cast<int>(parts_.size());
      parts_.push_back(make_part(where.first, where.second, by_kind));
    }
  }

  LocalPart make_part(OperatorId id, int number, const std::map<TaskKind, int>& steps) {
    const Operator& op = graph_.operators[id];
    const OperatorDefinition& definition = *op.definition;
    LocalPart part{};
    part.op = id;
    part.part = number;
    part.block = definition.part(strategy_[id].degrees, number);
    const auto step = [&](TaskKind kind, int otherwise) {
      const auto found = steps.find(kind);
      return found == steps.end() ? otherwise : found->second;
    };
    part.forward_step = step(TaskKind::forward, -1);
    part.backward_step = step(TaskKind::backward, -1);
    part.forward_first = step(TaskKind::forward_statistics, part.forward_step);
    part.backward_first = step(TaskKind::backward_statistics, part.backward_step);
    Vector<bool> wanted;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const int input = static_cast<int>(i);
      part.input_blocks.push_back(definition.input_block(input, part.block));
      wanted.push_back(op.has_backward && graph_.input_has_gradient(id, input));
      part.input_gradients.push_back(
          wanted[i] ? place({Kind::input_gradient, id, number, input}, part.input_blocks[i].volume()) : nullptr);
      part.inputs.push_back(graph_.tensors[op.inputs[i]].producer < 0 ? graph_input(op.inputs[i], part.input_blocks[i])
                                                                      : nullptr);
    }
    for (size_t o = 0; o < op.outputs.size(); ++o) {
      const int output = static_cast<int>(o);
      part.output_blocks.push_back(definition.output_block(output, part.block));
      const int64_t elements = part.output_blocks[o].volume();
      part.outputs.push_back(definition.is_loss() ? program_.buffers.allocate(elements)
                                                  : place({Kind::output, id, number, output}, elements));
    }
    part.output_gradients.resize(definition.is_loss() ? 0 : op.outputs.size());
    part.contributions.resize(op.outputs.size());
    for (size_t p = 0; p < op.parameters.size(); ++p) {
      part.parameter_blocks.push_back(definition.parameter_block(static_cast<int>(p), part.block));
      part.parameters.push_back(parameter_buffer(op.parameters[p], part.parameter_blocks[p]));
    }
    if (definition.is_loss()) program_.losses.push_back({id, part.output_blocks[0], part.outputs[0], part.outputs[1]});
    program_.kernels.push_back(
        program_.backend.make_kernel({definition, part.block, wanted, op.name, program_.settings.seed}));
    part.kernel = program_.kernels.back().get();
    return part;
  }

  const void* graph_input(TensorId tensor, const Block& block) {
    for (const InputBuffer& input : program_.inputs)
      if (input.tensor == tensor && input.block == block) return input.memory;
    program_.inputs.push_back({tensor, block, program_.buffers.allocate(block.volume())});
    return program_.inputs.back().memory;
  }

  int parameter_buffer(ParameterId parameter, const Block& block) {
    for (size_t i = 0; i < program_.parameters.size(); ++i)
      if (program_.parameters[i].parameter == parameter && program_.parameters[i].block == block)
        return static_cast<int>(i);
    bool trained = false;
    for (const auto& [op, which] : graph_.parameters[parameter].uses)
      trained = trained || (graph_.parameters[parameter].spec.trained && graph_.operators[op].has_backward);
    float* weight = program_.buffers.allocate(block.volume());
    float* velocity = nullptr;
    if (trained && program_.settings.sgd.momentum != 0) {
      velocity = program_.buffers.allocate(block.volume());
      program_.backend.fill_zero(velocity, block.volume() * element_bytes);
    }
    program_.parameters.push_back({parameter, block, weight, velocity});
    return static_cast<int>(program_.parameters.size()) - 1;
  }

  int add_receive(int task, int source, void* memory, int64_t bytes) {
    program_.receives.push_back({task, source, memory, bytes, {}});
    return static_cast<int>(program_.receives.size()) - 1;
  }

  // Starts a send behind `step` of a region of `memory`, which holds `block`: packed first unless the region is all of
  // it.
  void add_send(int step_index, int task, int destination, float* memory, const Block& block, const Block& region,
                bool whole, const BufferKey& packed) {
    Step& step = program_.steps[step_index];
    float* sent = memory;
    if (!whole) {
      sent = place(packed, region.volume());
      step.pack.push_back({memory, block, sent, region, region});
    }
    step.sends.push_back(static_cast<int>(program_.sends.size()));
    program_.sends.push_back({task, destination, sent, region.volume() * element_bytes, {}});
  }

  void plan_forward(int edge_index) {
    const Edge& edge = program_.builder.edges()[edge_index];
    const int output = graph_.tensors[edge.tensor].output;
    const auto pairs = program_.builder.pairs(edge_index, strategy_);
    for (const BlockPair& pair : *pairs) {
      const int number = static_cast<int>(&pair - pairs->data());
      LocalPart* producer = local(edge.producer, pair.producer_part);
      LocalPart* consumer = local(edge.consumer, pair.consumer_part);
      if (!producer && !consumer) continue;
      const Block region = program_.builder.region(edge_index, pair, strategy_);
      const auto it = activations_.find({edge_index, &pair});
      if (producer && !consumer)
        add_send(producer->forward_step, it->second, strategy_[edge.consumer].devices[pair.consumer_part],
                 producer->outputs[output], producer->output_blocks[output], region, pair.whole_output,
                 {Kind::packed_activation, edge_index, number});
      if (!consumer) continue;
      const void*& input = consumer->inputs[edge.input];
      if (producer && pair.whole_input && pair.whole_output) {
        input = producer->outputs[output];
        continue;
      }
      const Block& block = consumer->input_blocks[edge.input];
      if (!input) input = place({Kind::input, edge.consumer, pair.consumer_part, edge.input}, block.volume());
      void* assembled = const_cast<void*>(input);  // this planner allocated it
      Step& step = program_.steps[consumer->forward_first];
      if (producer) {
        step.gather.push_back({producer->outputs[output], producer->output_blocks[output], assembled, block, region});
        continue;
      }
      const int source = strategy_[edge.producer].devices[pair.producer_part];
      void* received =
          pair.whole_input ? assembled : place({Kind::received_activation, edge_index, number}, region.volume());
      step.receives.push_back(add_receive(it->second, source, received, pair.bytes));
      if (!pair.whole_input) step.gather.push_back({received, region, assembled, block, region});
    }
  }

  void collect_contributions(int edge_index) {
    const Edge& edge = program_.builder.edges()[edge_index];
    if (!graph_.operators[edge.consumer].has_backward || !graph_.input_has_gradient(edge.consumer, edge.input)) return;
    const int output = graph_.tensors[edge.tensor].output;
    const auto pairs = program_.builder.pairs(edge_index, strategy_);
    for (const BlockPair& pair : *pairs) {
      const int number = static_cast<int>(&pair - pairs->data());
      LocalPart* producer = local(edge.producer, pair.producer_part);
      LocalPart* consumer = local(edge.consumer, pair.consumer_part);
      if (!producer && !consumer) continue;
      const Block region = program_.builder.region(edge_index, pair, strategy_);
      const int task = producer && consumer ? -1 : gradients_.at({edge_index, &pair});
      if (consumer && !producer)
        add_send(consumer->backward_step, task, strategy_[edge.producer].devices[pair.producer_part],
                 consumer->input_gradients[edge.input], consumer->input_blocks[edge.input], region, pair.whole_input,
                 {Kind::packed_gradient, edge_index, number});
      if (!producer) continue;
      Contribution contribution{
          &pair, {Kind::received_gradient, edge_index, number},       region, consumer != nullptr, nullptr, region,
          task,  strategy_[edge.consumer].devices[pair.consumer_part]};
      if (consumer) {
        contribution.gradient = consumer->input_gradients[edge.input];
        contribution.gradient_block = consumer->input_blocks[edge.input];
      }
      producer->contributions[output].push_back(contribution);
    }
  }

  void plan_output_gradient(LocalPart& part, size_t output) {
    if (part.output_gradients.empty()) return;  // a loss
    Vector<Contribution>& contributions = part.contributions[output];
    Step& step = program_.steps[part.backward_first];
    const Block& block = part.output_blocks[output];
    float*& gradient = part.output_gradients[output];
    const BufferKey key{Kind::output_gradient, part.op, part.part, static_cast<int>(output)};
    if (contributions.size() == 1 && contributions[0].pair->whole_output) {
      const Contribution& only = contributions[0];
      if (only.local && only.pair->whole_input) {
        gradient = const_cast<float*>(only.gradient);
        return;
      }
      if (!only.local) {
        gradient = place(key, block.volume());
        step.receives.push_back(add_receive(only.task, only.source, gradient, only.pair->bytes));
        return;
      }
    }
    gradient = place(key, block.volume());
    // One that covers everything goes first: it overwrites, and the others are added.
    std::stable_partition(contributions.begin(), contributions.end(),
                          [](const Contribution& c) { return c.pair->whole_output; });
    bool disjoint = true;
    int64_t covered = 0;
    for (size_t i = 0; i < contributions.size(); ++i) {
      covered += contributions[i].region.volume();
      for (size_t j = 0; j < i && disjoint; ++j)
        disjoint = intersect(contributions[i].region, contributions[j].region).empty();
    }
    const bool first_covers = !contributions.empty() && contributions[0].pair->whole_output;
    if (!first_covers && (!disjoint || covered < block.volume()))
      step.zeros.push_back({gradient, block.volume() * element_bytes});
    for (size_t i = 0; i < contributions.size(); ++i) {
      const Contribution& contribution = contributions[i];
      const float* source = contribution.gradient;
      if (!contribution.local) {
        float* received = place(contribution.received, contribution.region.volume());
        step.receives.push_back(
            add_receive(contribution.task, contribution.source, received, contribution.pair->bytes));
        source = received;
      }
      const bool overwrites = disjoint || (first_covers && i == 0);
      step.gather.push_back({source, contribution.gradient_block, gradient, block, contribution.region, !overwrites});
    }
  }

  // Packed gradient buffers, in which backward writes directly where a part's whole parameter block is one piece.
  // Groups of ranks are shared by the units with the same holders.
  void make_units() {
    constexpr int64_t alignment = 16;  // elements: 64 bytes, for the kernels that write here
    program_.units.resize(program_.tasks.units.size());
    for (size_t u = 0; u < program_.units.size(); ++u) {
      const SynchronizationUnit& unit = program_.tasks.units[u];
      if (std::find(unit.holders.begin(), unit.holders.end(), rank_) == unit.holders.end()) continue;
      UnitPlan& plan = program_.units[u];
      if (unit.holders.size() > 1) plan.group = group_of(unit.holders);
      Vector<int64_t> offsets;
      for (const ParameterPiece* piece : unit.pieces) {
        offsets.push_back(plan.elements);
        plan.elements += (piece->block.volume() + alignment - 1) / alignment * alignment;
      }
      plan.packed = program_.buffers.allocate(plan.elements);
      program_.backend.fill_zero(plan.packed, plan.elements * element_bytes);  // the gaps stay zero
      for (size_t p = 0; p < unit.pieces.size(); ++p) {
        plan.gradients.push_back({unit.pieces[p], plan.packed + offsets[p]});
        plan_update(plan, plan.gradients.back());
      }
      pending_pack_.push_back(static_cast<int>(u));
    }
  }

  // SGD on the first local buffer that contains the piece; the others copy the result.
  void plan_update(UnitPlan& plan, const PieceGradient& gradient) {
    const ParameterPiece& piece = *gradient.piece;
    const ParameterBuffer* first = nullptr;
    for (const ParameterBuffer& buffer : program_.parameters) {
      if (buffer.parameter != piece.parameter || !buffer.block.contains(piece.block)) continue;
      if (first) {
        plan.spread.push_back({first->weight, parameter_storage(first->block), buffer.weight,
                               parameter_storage(buffer.block), parameter_storage(piece.block)});
        continue;
      }
      first = &buffer;
      int64_t done = 0;
      for_each_run(buffer.block, piece.block, [&](int64_t offset, int64_t length) {
        plan.updates.push_back({buffer.weight + offset, gradient.gradient + done,
                                buffer.velocity ? buffer.velocity + offset : nullptr, length});
        done += length;
      });
    }
  }

  // Parts with the same block of a parameter share its gradient: the first backward task writes, the others add.
  void allocate_parameter_gradients() {
    Vector<LocalPart*> in_order;
    for (LocalPart& part : parts_)
      if (part.backward_step >= 0) in_order.push_back(&part);
    std::sort(in_order.begin(), in_order.end(),
              [](const LocalPart* a, const LocalPart* b) { return a->backward_step < b->backward_step; });
    Vector<float*> gradients(program_.parameters.size(), nullptr);  // by parameter buffer
    for (LocalPart* part : in_order)
      for (size_t p = 0; p < part->parameters.size(); ++p) {
        if (!graph_.parameters[graph_.operators[part->op].parameters[p]].spec.trained) {
          part->accumulate.push_back(false);
          part->parameter_gradients.push_back(nullptr);
          continue;
        }
        float*& gradient = gradients[part->parameters[p]];
        part->accumulate.push_back(gradient != nullptr);
        if (!gradient) gradient = parameter_gradient(program_.parameters[part->parameters[p]]);
        part->parameter_gradients.push_back(gradient);
      }
  }

  // Within the packed buffer of its unit if the block is one piece.
  float* parameter_gradient(const ParameterBuffer& buffer) {
    for (int unit : pending_pack_)
      for (const PieceGradient& piece : program_.units[unit].gradients)
        if (piece.piece->parameter == buffer.parameter && piece.piece->block == buffer.block) return piece.gradient;
    return program_.buffers.allocate(buffer.block.volume());
  }

  void plan_pack(int index) {
    UnitPlan& plan = program_.units[index];
    for (const PieceGradient& packed : plan.gradients) {
      const ParameterPiece& piece = *packed.piece;
      const Block storage = parameter_storage(piece.block);
      Vector<float*> added;  // gradients that contain the piece: in place first
      for (bool in_place : {true, false})
        for (const auto& user : piece.users) {
          const LocalPart* part = local(user.first, user.second);
          if (!part || part->backward_step < 0) continue;
          for (size_t p = 0; p < part->parameters.size(); ++p) {
            float* gradient = part->parameter_gradients[p];
            if (graph_.operators[part->op].parameters[p] != piece.parameter ||
                (gradient == packed.gradient) != in_place)
              continue;
            if (std::find(added.begin(), added.end(), gradient) != added.end()) continue;
            if (!in_place)
              plan.pack.push_back({gradient, parameter_storage(part->parameter_blocks[p]), packed.gradient, storage,
                                   storage, !added.empty()});
            added.push_back(gradient);
          }
        }
      const bool first = added.empty();
      // Holders whose users have no backward pass contribute nothing.
      if (first) plan.zeros.push_back({packed.gradient, piece.block.volume() * element_bytes});
    }
  }

  void finish_part(LocalPart& part) {
    const Operator& op = graph_.operators[part.op];
    KernelArguments arguments;
    arguments.inputs = part.inputs;
    for (int parameter : part.parameters) arguments.parameters.push_back(program_.parameters[parameter].weight);
    arguments.outputs = part.outputs;
    for (int first : {part.forward_first, part.forward_step}) {
      program_.steps[first].kernel = part.kernel;
      program_.steps[first].arguments = arguments;
    }
    if (!op.has_backward) return;
    for (size_t output = 0; output < part.output_gradients.size(); ++output)
      arguments.output_gradients.push_back(part.output_gradients[output]);
    arguments.input_gradients = part.input_gradients;
    arguments.parameter_gradients = part.parameter_gradients;
    arguments.accumulate = part.accumulate;
    for (int first : {part.backward_first, part.backward_step}) {
      program_.steps[first].kernel = part.kernel;
      program_.steps[first].arguments = arguments;
    }
  }

  // Each part writes its own sums; a single one on this rank writes where they are reduced.
  void plan_reductions() {
    for (Step& step : program_.steps) {
      if (!is_reduction(step.kind)) continue;
      const Task& task = program_.tasks.tasks[step.task];
      const OperatorDefinition& definition = *graph_.operators[task.op].definition;
      const Configuration& configuration = strategy_[task.op];
      step.reduction = static_cast<int>(program_.reductions.size());
      ReductionPlan plan;
      plan.elements = task.bytes / element_bytes;
      const Vector<DeviceId>& holders = program_.tasks.holders(task);
      if (holders.size() > 1) plan.group = group_of(holders);
      Vector<LocalPart*> members;
      for (int part = 0; part < configuration.parts(); ++part)
        if (LocalPart* member = local(task.op, part);
            member && definition.statistics_group(configuration.degrees, part) == task.part)
          members.push_back(member);
      plan.sums = program_.buffers.allocate(plan.elements);
      for (LocalPart* member : members) {
        const bool forward = step.kind == TaskKind::forward_reduction;
        Step& first = program_.steps[forward ? member->forward_first : member->backward_first];
        Step& last = program_.steps[forward ? member->forward_step : member->backward_step];
        first.arguments.statistics = members.size() == 1 ? plan.sums : program_.buffers.allocate(plan.elements);
        if (members.size() > 1) plan.parts.push_back(first.arguments.statistics);
        last.arguments.statistics = plan.sums;
        last.reduction = step.reduction;
      }
      program_.reductions.push_back(std::move(plan));
    }
  }

  // Of all parts with the same states, the first forward task updates them.
  void find_state_updates() {
    std::set<std::pair<OperatorId, int>> updated;  // (operator, parameter buffer)
    for (size_t s = 0; s < program_.steps.size(); ++s)
      for (const LocalPart& part : parts_) {
        if (part.forward_step != static_cast<int>(s)) continue;
        const Operator& op = graph_.operators[part.op];
        Vector<float*> states(part.parameters.size(), nullptr);
        for (size_t p = 0; p < part.parameters.size(); ++p) {
          if (graph_.parameters[op.parameters[p]].spec.trained) continue;
          states[p] = program_.parameters[part.parameters[p]].weight;
          if (updated.emplace(part.op, part.parameters[p]).second) program_.steps[s].updates_state = true;
        }
        program_.steps[s].arguments.states = std::move(states);
      }
  }

  // What a step writes first may lie where an earlier iteration's send is still read.
  void plan_send_waits() {
    if (program_.transport.follows_backend()) return;  // an iteration ends behind its sends
    std::set<const void*> received;
    for (const Transfer& receive : program_.receives) received.insert(receive.memory);
    for (size_t i = 0; i < program_.sends.size(); ++i) {
      const Transfer& send = program_.sends[i];
      const int64_t begin = (static_cast<const float*>(send.memory) - program_.arena) * element_bytes,
                    end = begin + send.bytes;
      for (const PlannedBuffer& buffer : program_.memory.buffers) {
        if (buffer.offset >= end || begin >= buffer.offset + buffer.bytes) continue;
        const bool by_receive = buffer.first == 0 && received.count(program_.arena + buffer.offset / element_bytes) > 0;
        Vector<int>& waits = by_receive ? program_.waits_before_receives : program_.steps[buffer.first].waits;
        if (waits.empty() || waits.back() != static_cast<int>(i)) waits.push_back(static_cast<int>(i));
      }
    }
  }

  // All groups of ranks that add something up, on every rank in the same order.
  void make_groups() {
    std::set<Vector<DeviceId>> found;
    for (const SynchronizationUnit& unit : program_.tasks.units) found.insert(unit.holders);
    for (const Task& task : program_.tasks.tasks)
      if (is_reduction(task.kind)) found.insert(program_.tasks.holders(task));
    Vector<Vector<int>> groups;
    for (const Vector<DeviceId>& holders : found)
      if (holders.size() > 1) groups.emplace_back(holders.begin(), holders.end());
    const Vector<GroupId> made = program_.transport.make_groups(groups);
    for (size_t g = 0; g < groups.size(); ++g)
      groups_.emplace(Vector<DeviceId>(groups[g].begin(), groups[g].end()), made[g]);
  }

  GroupId group_of(const Vector<DeviceId>& holders) const { return groups_.at(holders); }

  // Whom this rank exchanges data with, and, for an ordered transport, in which order.
  void plan_connections() {
    std::set<int> destinations, sources;
    std::unordered_map<int, int> send_of, receive_of;  // by task
    for (size_t i = 0; i < program_.sends.size(); ++i) {
      destinations.insert(program_.sends[i].peer);
      send_of[program_.sends[i].task] = static_cast<int>(i);
    }
    for (size_t i = 0; i < program_.receives.size(); ++i) {
      sources.insert(program_.receives[i].peer);
      receive_of[program_.receives[i].task] = static_cast<int>(i);
    }
    program_.transport.connect({destinations.begin(), destinations.end()}, {sources.begin(), sources.end()});
    if (!program_.transport.ordered()) return;
    Vector<bool> steps_here(step_of_task_.size());
    for (size_t t = 0; t < steps_here.size(); ++t) steps_here[t] = step_of_task_[t] >= 0;
    for (const TransferRun& run : order_transfers(program_.tasks, order_, steps_here, rank_)) {
      TransferGroup group{{}, {}, static_cast<size_t>(run.steps_before)};
      for (const int task : run.tasks) {
        if (program_.tasks.tasks[task].device == rank_) group.sends.push_back(send_of.at(task));
        else group.receives.push_back(receive_of.at(task));
      }
      program_.transfer_groups.push_back(std::move(group));
    }
  }

  Program& program_;
  const Graph& graph_;
  const Strategy& strategy_;
  const int rank_;
  Vector<int> order_;         // all tasks, as every rank has them
  Vector<int> step_of_task_;  // -1: on another rank
  Vector<LocalPart> parts_;   // by (operator, part)
  Vector<Vector<int>> part_index_;
  std::map<std::pair<int, const BlockPair*>, int> activations_, gradients_;  // transfer tasks, by edge and pair
  Vector<int> pending_pack_;                                                 // units that this rank holds
  std::map<Vector<DeviceId>, GroupId> groups_;
};

Program::Program(const Graph& graph, const Strategy& strategy, const Vector<std::string>& issue_order, Backend& backend,
                 Transport& transport, const ProgramSettings& settings)
    : graph(graph), strategy(strategy), backend(backend), transport(transport), settings(settings), builder(graph),
      tasks(builder.build(strategy)), buffers(backend) {
  ProgramPlanner(*this).plan(issue_order);
}

}  // namespace ff
