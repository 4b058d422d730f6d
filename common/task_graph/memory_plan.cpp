#include "common/task_graph/memory_plan.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "common/task_graph/edge_copies.h"
#include "common/task_graph/live_memory.h"
#include "common/task_graph/recomputed_edges.h"
#include "common/task_graph/sharded_units.h"

namespace ff {
namespace {

using Kind = BufferKey::Kind;

class MemoryPlanner {
 public:
  MemoryPlanner(TaskGraphBuilder& builder, const Strategy& strategy, const TaskGraph& tasks,
                const Vector<DeviceId>& devices, TransferBuffers buffers, InputsOfCollectives inputs)
      : builder_(builder), graph_(builder.graph()), strategy_(strategy), tasks_(tasks),
        on_demand_(buffers == TransferBuffers::on_demand),
        gathers_again_(inputs == InputsOfCollectives::gathered_again), plans_(devices.size()) {
    for (size_t i = 0; i < devices.size(); ++i) {
      if (devices[i] >= static_cast<DeviceId>(plan_of_device_.size())) plan_of_device_.resize(devices[i] + 1, -1);
      plan_of_device_[devices[i]] = static_cast<int>(i);
    }
  }

  Vector<MemoryPlan> plan(const Vector<int>& order) {
    make_steps(order);
    make_parts();
    int collective = 0;  // the next one: they are in order of edges
    for (int edge : builder_.edges().indices()) {
      int end = collective;
      while (end < tasks_.collectives.count() && tasks_.collectives[end].edge == edge) ++end;
      for (Direction direction : directions)
        for (int c = collective; c < end; ++c) plan_collective(c, direction);
      collective = end;
      if (!tasks_.pairs[edge]) continue;
      plan_forward(edge);
      plan_backward(edge);
    }
    for (OperatorId op : parts_.indices())
      for (int part : tasks_.parts[op]) plan_output_gradients(op, part);
    if (builder_.synchronization() == Synchronization::parameter_server)
      for (int i : plans_.indices()) plan_owners(i);
    if (shards_gradients(builder_.synchronization())) {
      Vector<ShardRounds> rounds;  // by group
      for (int group : builder_.groups().indices()) rounds.push_back(shard_rounds(builder_, group));
      plan_shards(rounds);
    }
    for (MemoryPlan& plan : plans_) complete(plan);
    return std::move(plans_);
  }

 private:
  // A contribution to the gradient of an output block, from a consumer.
  struct Contribution {
    int32_t edge, pair;
    int64_t bytes;
    BlockUse use;
    int gradient;   // local: the consumer's input gradient, a buffer; else -1
    int first;      // received: when its memory is first needed; -1: it is received together with others
    int next = -1;  // contribution to the same block
  };

  // How many steps of the devices at the ends of a transfer precede it in the issue order; -1: not asked for.
  struct StepsBefore {
    int sender, receiver;
  };

  // Indices into the plan's steps and buffers; buffers -1: none.
  struct Part {
    int plan = -1;                                // -1: on none of the devices asked for
    int forward = -1, backward = -1;              // backward -1 without one
    int recompute = -1;                           // -1: it is not recomputed
    bool computed_again = false;                  // by that task
    int forward_first = -1, backward_first = -1;  // the steps of the statistics tasks, else the same
    int first_input = -1, first_output = -1;      // in inputs_ and outputs_
    // The last step that reads what forward reads.
    int last(bool backward_reads) const {
      return backward >= 0 && backward_reads ? backward : computed_again ? recompute : forward;
    }
  };

  struct Input {
    int assembled = -1, gradient = -1;  // buffers
  };
  struct Output {
    int buffer = -1, recomputed = -1;  // buffers
    int first = -1, last = -1;         // of its contributions, in contributions_
  };
  Input& input(const Part& part, int number) { return inputs_[part.first_input + number]; }
  Output& output(const Part& part, int number) { return outputs_[part.first_output + number]; }
  void contribute(Output& output, const Contribution& contribution) {
    const int number = contributions_.count();
    (output.last < 0 ? output.first : contributions_[output.last].next) = number;
    output.last = number;
    contributions_.push_back(contribution);
  }

  // Elements of the blocks that a part reads and writes; few parts of an operator differ in them.
  struct Volumes {
    Vector<int64_t> inputs, outputs;
  };
  const Volumes& volumes(OperatorId id, int number) {
    const OperatorDefinition& definition = *graph_.operators[id].definition;
    auto& [kinds, of_kind] = volumes_[id];
    if (kinds.empty()) kinds = definition.kinds_of_parts(strategy_[id].degrees);
    const int kind = kinds[number];
    if (kind >= of_kind.count()) of_kind.resize(kind + 1);
    Volumes& result = of_kind[kind];
    if (!result.outputs.empty()) return result;
    const Block block = definition.part(strategy_[id].degrees, number);
    for (const int i : definition.inputs().indices())
      result.inputs.push_back(definition.input_block(i, block).volume());
    for (const int o : definition.outputs().indices())
      result.outputs.push_back(definition.output_block(o, block).volume());
    return result;
  }

  // Null where the task graph does not have it.
  Part* found(OperatorId op, int number) {
    const int place = tasks_.place_of(op, number);
    return place < 0 ? nullptr : &parts_[op][place];
  }
  // Null where it is on none of the devices asked for.
  Part* planned(OperatorId op, int number) {
    Part* part = found(op, number);
    return part && part->plan >= 0 ? part : nullptr;
  }

  int plan_of(DeviceId device) const {
    return device < static_cast<DeviceId>(plan_of_device_.size()) ? plan_of_device_[device] : -1;
  }

  void make_steps(const Vector<int>& order) {
    const auto add = [&](DeviceId device, int task) {
      if (const int plan = plan_of(device); plan >= 0) plans_[plan].steps.push_back(task);
    };
    const auto steps_of = [&](DeviceId device) {
      const int plan = plan_of(device);
      return plan < 0 ? -1 : plans_[plan].steps.count();
    };
    for (const int index : order) {
      const Task& task = tasks_.tasks[index];
      if (is_transfer(task.kind)) {
        if (on_demand_ && is_edge_transfer(task.kind))
          steps_before_[task.key] = {steps_of(task.device), steps_of(task.destination)};
        continue;
      }
      if (!is_collective(task.kind)) add(task.device, index);
      else
        for (DeviceId holder : tasks_.holders(task)) add(holder, index);
    }
  }

  // The step in front of which the receive of a transfer is posted, and the last one with the memory of its send.
  int posted(TaskKind kind, int edge, const BlockPair& pair) const {
    return on_demand_ ? std::max(0, steps_before(kind, edge, pair).receiver - 1) : 0;
  }
  int sent(TaskKind kind, int edge, const BlockPair& pair, const Part& sender) const {
    return on_demand_ ? std::min(steps_before(kind, edge, pair).sender + steps_to_send - 1, end(sender)) : end(sender);
  }
  const StepsBefore& steps_before(TaskKind kind, int edge, const BlockPair& pair) const {
    return steps_before_.at(make_task_key(kind, edge, pair.consumer_part, pair.producer_part));
  }

  // A plan, and a collective of an edge in a direction.
  int64_t step_key(int plan, int collective, Direction direction) const {
    return (int64_t{collective} * 2 + (direction == Direction::backward)) * plans_.count() + plan;
  }

  void make_parts() {
    parts_.resize(graph_.operators.size());
    volumes_.resize(graph_.operators.size());
    for (OperatorId op : parts_.indices()) parts_[op].resize(tasks_.parts[op].size());
    for (size_t i = 0; i < plans_.size(); ++i)
      for (size_t s = 0; s < plans_[i].steps.size(); ++s) {
        const Task& task = tasks_.tasks[plans_[i].steps[s]];
        if (is_edge_collective(task.kind))
          collective_steps_[step_key(static_cast<int>(i), task.collective, direction_of(task.kind))] =
              static_cast<int>(s);
        if (!is_compute(task.kind)) continue;
        Part& part = *found(task.op, task.part);
        part.plan = static_cast<int>(i);
        const int step = static_cast<int>(s);
        switch (task.kind) {
          case TaskKind::forward: part.forward = step; break;
          case TaskKind::backward: part.backward = step; break;
          case TaskKind::recompute: part.recompute = step, part.computed_again = task.computed; break;
          case TaskKind::forward_statistics: part.forward_first = step; break;
          default: part.backward_first = step;
        }
      }
    Vector<size_t> count(plans_.size(), 0);
    for (OperatorId op : parts_.indices())
      for (const Part& part : parts_[op])
        if (part.plan >= 0) count[part.plan] += part.recompute < 0 ? 3 : 4;
    for (const int i : plans_.indices()) plans_[i].buffers.reserve(count[i]);
    for (OperatorId op : parts_.indices())
      for (int number : tasks_.parts[op])
        if (planned(op, number)) make_part(op, number);
  }

  void make_part(OperatorId id, int number) {
    const Operator& op = graph_.operators[id];
    const OperatorDefinition& definition = *op.definition;
    const Volumes& volume = volumes(id, number);
    Part& part = *planned(id, number);
    if (part.forward_first < 0) part.forward_first = part.forward;
    if (part.backward_first < 0) part.backward_first = part.backward;
    part.first_input = inputs_.count();
    part.first_output = outputs_.count();
    for (const int i : op.inputs.indices()) {
      Input& own = inputs_.emplace_back();
      if (graph_.input_has_gradient(id, i))
        own.gradient = add(part.plan, {Kind::input_gradient, id, number, i},
                           bytes_of(definition.inputs()[i].type, volume.inputs[i]), part.backward_first, part.backward);
    }
    for (const int o : op.outputs.indices()) {
      Output& own = outputs_.emplace_back();
      const int64_t bytes = bytes_of(definition.outputs()[o].type, volume.outputs[o]);
      const int last = part.last(definition.backward_reads_output());
      if (!definition.is_loss())
        own.buffer = add(part.plan, {Kind::output, id, number, o}, bytes, part.forward_first,
                         part.recompute < 0 ? last : part.forward);
      if (part.computed_again)
        own.recomputed = add(part.plan, {Kind::recomputed_output, id, number, o}, bytes, part.recompute, last);
    }
  }

  int add(int plan, const BufferKey& key, int64_t bytes, int first, int last) {
    Vector<PlannedBuffer>& buffers = plans_[plan].buffers;
    buffers.push_back({key, bytes, first, last});
    return static_cast<int>(buffers.size()) - 1;
  }
  PlannedBuffer& buffer(const Part& part, int index) { return plans_[part.plan].buffers[index]; }
  void extend(const Part& part, int index, int last) {
    if (index >= 0) buffer(part, index).last = std::max(buffer(part, index).last, last);
  }
  int end(const Part& part) const { return static_cast<int>(plans_[part.plan].steps.size()); }

  PlannedBuffer& assembled_input(const Edge& edge, int number) {
    Part& part = *planned(edge.consumer, number);
    int& assembled = input(part, edge.input).assembled;
    if (assembled < 0) {
      const OperatorDefinition& definition = *graph_.operators[edge.consumer].definition;
      assembled = add(part.plan, {Kind::input, edge.consumer, number, edge.input},
                      bytes_of(graph_.tensors[edge.tensor].type, volumes(edge.consumer, number).inputs[edge.input]),
                      part.forward_first, part.last(definition.backward_reads_input(edge.input)));
    }
    return buffer(part, assembled);
  }

  bool is_local(const Edge& edge, const BlockPair& pair) const {
    return strategy_[edge.producer].devices[pair.producer_part] == strategy_[edge.consumer].devices[pair.consumer_part];
  }

  void plan_forward(int index) {
    const Edge& edge = builder_.edges()[index];
    const int output = graph_.tensors[edge.tensor].output;
    const bool kept = graph_.operators[edge.consumer].definition->backward_reads_input(edge.input);
    const BlockPairs& pairs = *tasks_.pairs[index];
    for (const int number : pairs.indices()) {
      const BlockPair& pair = pairs[number];
      Part *producer = planned(edge.producer, pair.producer_part),
           *consumer = planned(edge.consumer, pair.consumer_part);
      const bool local = is_local(edge, pair);
      const EdgeCopy copy = edge_copy(pair, local, Direction::forward);
      if (producer) {
        const int buffer = this->output(*producer, output).buffer;
        if (copy.source == BlockUse::packed)
          add(producer->plan, {Kind::packed_activation, index, number}, pair.bytes, producer->forward,
              sent(TaskKind::activation, index, pair, *producer));
        else if (copy.source == BlockUse::whole)
          extend(*producer, buffer, sent(TaskKind::activation, index, pair, *producer));
        else if (copy.destination != BlockUse::in_place) extend(*producer, buffer, consumer->forward_first);
        else if (!reads_recomputed(builder_, strategy_, index, pair)) extend(*producer, buffer, consumer->last(kept));
        else {
          extend(*producer, buffer, consumer->forward);
          extend(*producer, this->output(*producer, output).recomputed, consumer->last(kept));
        }
      }
      if (!consumer || copy.destination == BlockUse::in_place) continue;
      PlannedBuffer& input = assembled_input(edge, pair.consumer_part);
      if (copy.destination == BlockUse::whole) input.first = posted(TaskKind::activation, index, pair);
      else if (!local)
        add(consumer->plan, {Kind::received_activation, index, number}, pair.bytes,
            posted(TaskKind::activation, index, pair), consumer->forward_first);
    }
  }

  void plan_backward(int index) {
    const Edge& edge = builder_.edges()[index];
    if (!has_gradient(graph_, edge)) return;
    const BlockPairs& pairs = *tasks_.pairs[index];
    for (const int number : pairs.indices()) {
      const BlockPair& pair = pairs[number];
      Part *producer = planned(edge.producer, pair.producer_part),
           *consumer = planned(edge.consumer, pair.consumer_part);
      const bool local = is_local(edge, pair);
      const EdgeCopy copy = edge_copy(pair, local, Direction::backward);
      if (consumer && copy.source == BlockUse::whole)
        extend(*consumer, input(*consumer, edge.input).gradient, sent(TaskKind::gradient, index, pair, *consumer));
      if (consumer && copy.source == BlockUse::packed)
        add(consumer->plan, {Kind::packed_gradient, index, number}, pair.bytes, consumer->backward,
            sent(TaskKind::gradient, index, pair, *consumer));
      if (!producer) continue;
      const int gradient = local ? input(*consumer, edge.input).gradient : -1;
      contribute(
          output(*producer, graph_.tensors[edge.tensor].output),
          {index, number, pair.bytes, copy.destination, gradient, local ? 0 : posted(TaskKind::gradient, index, pair)});
    }
  }

  // A device's parts at the ends of a collective: what they send is read until the first receiver on the device waits,
  // else until the end; what they receive is written from the collective's step on.
  struct CollectiveEnd {
    int step = 0, first_receiver = -1, last_receiver = -1;
    int first_sender = -1;
    int again = -1;                  // the step in front of which the input is gathered again
    int64_t sent = 0, received = 0;  // bytes
  };

  // The step in front of which the part gathers an input again that it reads after forward; -1: it does not.
  int gathered_again(const Edge& edge, CollectiveKind kind, const Part& part) const {
    const bool kept = graph_.operators[edge.consumer].definition->backward_reads_input(edge.input);
    if (!gathers_again_ || kind != CollectiveKind::all_gather || part.last(kept) == part.forward) return -1;
    return part.recompute >= 0 ? part.recompute : part.backward_first;
  }

  void gather_again(const Edge& edge, int32_t number, const Part& part, PlannedBuffer& input, int step) {
    const int last = std::exchange(input.last, part.forward);
    add(part.plan, {Kind::input_gathered_again, edge.consumer, number, edge.input}, input.bytes, step, last);
  }

  // A part at one of the ends.
  struct PlannedPart {
    int32_t number;
    Part* part;
    int64_t bytes;  // that move
  };
  Vector<PlannedPart> planned_parts(const EdgeCollective& moved, bool producers) {
    const Edge& edge = builder_.edges()[moved.edge];
    const Exchange& exchange = moved.exchange();
    Vector<PlannedPart> result;
    for (int32_t number : producers ? exchange.producers : exchange.consumers)
      if (Part* part = planned(producers ? edge.producer : edge.consumer, number))
        result.push_back({number, part,
                          producers ? moved.exchanges->moved_bytes(exchange, moved.collective.kind, number)
                                    : moved.exchanges->consumer_bytes[number]});
    return result;
  }

  void plan_collective(int index, Direction direction) {
    const EdgeCollective& moved = tasks_.collectives[index];
    const Edge& edge = builder_.edges()[moved.edge];
    const bool forward = direction == Direction::forward;
    if (!forward && !has_gradient(graph_, edge)) return;
    const CollectiveKind kind = moved.kind(direction);
    const Vector<PlannedPart> senders = planned_parts(moved, forward), receivers = planned_parts(moved, !forward);
    const int output = graph_.tensors[edge.tensor].output;
    std::map<int, CollectiveEnd> ends;  // by plan
    for (const auto& [number, receiver, bytes] : receivers) {
      CollectiveEnd& end = ends[receiver->plan];
      const int first = forward ? receiver->forward_first : receiver->backward_first;
      end.first_receiver = end.first_receiver < 0 ? first : std::min(end.first_receiver, first);
      end.last_receiver = std::max(end.last_receiver, first);
      end.received += bytes;
      if (forward) end.again = gathered_again(edge, kind, *receiver);  // a device has one receiver
    }
    for (const auto& [number, sender, bytes] : senders) {
      CollectiveEnd& end = ends[sender->plan];
      const int last = forward ? sender->forward : sender->backward;
      end.first_sender = end.first_sender < 0 ? last : std::min(end.first_sender, last);
      end.sent += bytes;
      const int read_until = end.first_receiver < 0 ? this->end(*sender) : end.first_receiver;
      if (!sends_packed(kind))
        extend(*sender, forward ? this->output(*sender, output).buffer : input(*sender, edge.input).gradient,
               read_until);
      if (end.again >= 0)
        extend(*sender,
               sender->recompute >= 0 ? this->output(*sender, output).recomputed : this->output(*sender, output).buffer,
               end.again);
    }
    for (auto& [plan, end] : ends) {
      end.step = collective_steps_.at(step_key(plan, index, direction));
      const int steps = static_cast<int>(plans_[plan].steps.size());
      if (sends_packed(kind) && end.sent > 0)
        add(plan, {packed_kind(direction), moved.edge, moved.number}, end.sent, end.first_sender,
            end.first_receiver < 0 ? steps : end.first_receiver);
      if (receives_packed(kind) && end.received > 0)
        add(plan, {received_kind(direction), moved.edge, moved.number}, end.received, end.step, end.last_receiver);
    }
    for (const auto& [number, receiver, bytes] : receivers) {
      const CollectiveEnd& end = ends[receiver->plan];
      if (forward) {
        PlannedBuffer& input = assembled_input(edge, number);
        if (!receives_packed(kind)) input.first = std::min(input.first, end.step);
        if (end.again >= 0) gather_again(edge, number, *receiver, input, end.again);
      } else {
        contribute(this->output(*receiver, output),
                   {moved.edge, moved.number, bytes, receives_packed(kind) ? BlockUse::packed : BlockUse::whole, -1,
                    receives_packed(kind) ? -1 : end.step});
      }
    }
  }

  void plan_output_gradients(OperatorId id, int number) {
    const Operator& op = graph_.operators[id];
    if (!planned(id, number) || !op.has_backward || op.definition->is_loss()) return;
    Part& part = *planned(id, number);
    for (const int o : op.outputs.indices()) {
      const Output& own = output(part, o);
      const bool single = own.first >= 0 && own.first == own.last;
      const BlockUse use = single ? contributions_[own.first].use : BlockUse::packed;
      if (use == BlockUse::in_place) {
        extend(part, contributions_[own.first].gradient, part.backward);
        continue;
      }
      const bool received = use == BlockUse::whole;
      add(part.plan, {Kind::output_gradient, id, number, o},
          bytes_of(op.definition->outputs()[o].type, volumes(id, number).outputs[o]),
          received ? contributions_[own.first].first : part.backward_first, part.backward);
      if (received) continue;
      for (int c = own.first; c >= 0; c = contributions_[c].next) {
        const Contribution& contribution = contributions_[c];
        if (contribution.gradient >= 0) extend(part, contribution.gradient, part.backward_first);
        else if (contribution.first >= 0)
          add(part.plan, {Kind::received_gradient, contribution.edge, contribution.pair}, contribution.bytes,
              contribution.first, part.backward_first);
      }
    }
  }

  // Where parameters have owners: what a device receives and sends after its barrier.
  void plan_owners(int index) {
    MemoryPlan& plan = plans_[index];
    const int end = plan.steps.count();
    int barrier = 0;
    for (int s : plan.steps.indices()) {
      const Task& task = tasks_.tasks[plan.steps[s]];
      if (task.kind == TaskKind::barrier) barrier = s;
      if (task.kind != TaskKind::update) continue;
      const SynchronizationUnit& unit = tasks_.units[task.unit];
      if (unit.holders.size() < 2) continue;
      const int64_t bytes = packed(unit).elements * element_bytes;
      if (task.device != unit.owner) {
        add(index, {Kind::received_parameter_values, unit.group, unit.number}, bytes, barrier, s);
        continue;
      }
      for (const DeviceId holder : unit.holders)
        if (holder != unit.owner)
          add(index, {Kind::received_parameter_gradient, unit.group, unit.number, holder}, bytes, barrier, s);
      add(index, {Kind::packed_parameter_values, unit.group, unit.number}, bytes, s, end);
    }
  }

  // Where a collective of parameters runs, and the steps of that plan that need its packed buffer.
  struct ShardUse {
    int plan, step;
    int first_user, last_user = -1;  // parts that contribute to the gradient or read the parameters
    int waits;                       // the first step that waits for the collective
  };
  // In the order of plans; null: it does not run there.
  static ShardUse* use_on(Vector<ShardUse>& uses, int plan) {
    const auto found =
        std::lower_bound(uses.begin(), uses.end(), plan, [](const ShardUse& use, int of) { return use.plan < of; });
    return found == uses.end() || found->plan != plan ? nullptr : &*found;
  }

  void plan_shards(const Vector<ShardRounds>& rounds) {
    Vector<int> step_of(tasks_.tasks.count(), -1);          // of the tasks of one device
    std::unordered_map<int, Vector<ShardUse>> collectives;  // of several, by task
    for (int i : plans_.indices())
      for (int s : plans_[i].steps.indices()) {
        const int task = plans_[i].steps[s];
        if (is_collective(tasks_.tasks[task].kind))
          collectives[task].push_back({.plan = i, .step = s, .first_user = s, .waits = plans_[i].steps.count()});
        else step_of[task] = s;
      }
    for (auto& [index, uses] : collectives) {
      if (!is_parameter_collective(tasks_.tasks[index].kind)) continue;
      const auto wait = [&waiting = uses](int plan, int step) {
        if (ShardUse* use = use_on(waiting, plan)) use->waits = std::min(use->waits, step);
      };
      for (int32_t next = tasks_.successor_begin[index]; next < tasks_.successor_begin[index + 1]; ++next) {
        const int task = tasks_.successors[next];
        if (step_of[task] >= 0) wait(plan_of(tasks_.tasks[task].device), step_of[task]);
        else if (const auto found = collectives.find(task); found != collectives.end())
          for (const ShardUse& later : found->second) wait(later.plan, later.step);
      }
      plan_shard(tasks_.tasks[index], uses, rounds[tasks_.units[tasks_.tasks[index].unit].group]);
    }
  }

  void plan_shard(const Task& task, Vector<ShardUse>& uses, const ShardRounds& rounds) {
    const SynchronizationUnit& unit = tasks_.units[task.unit];
    const bool gathers = task.kind == TaskKind::parameter_all_gather;
    if (!rounds.gradients || (gathers && !rounds.parameters)) return;
    const Direction direction = gathers && task.round % 2 == 0 ? Direction::forward : Direction::backward;
    const int round = gathers ? task.round / 2 : task.round;
    for (const auto& [op, number] : contributors_of(unit)) {
      const Part* part = planned(op, number);
      ShardUse* use = part ? use_on(uses, part->plan) : nullptr;
      if (!use || rounds.round_of(micro_batch_of_part(builder_, strategy_, op, number)) != round) continue;
      const int step = direction == Direction::forward ? part->forward : part->backward;
      if (step < 0) continue;
      use->first_user = std::min(use->first_user, step);
      use->last_user = std::max(use->last_user, step);
    }
    const int64_t bytes = element_bytes * packed_elements(packed(unit).elements, unit.holder_count(),
                                                          builder_.synchronization(unit.group));
    for (const auto& [plan, step, first_user, last_user, waits] : uses)
      if (gathers)
        add(plan, {Kind::gathered_parameters, unit.group, unit.number, task.round}, bytes, step,
            last_user < 0 ? waits : last_user);
      else add(plan, {Kind::packed_parameter_gradient, unit.group, unit.number, task.round}, bytes, first_user, waits);
  }

  static void complete(MemoryPlan& plan) {
    std::erase_if(plan.buffers, [](const PlannedBuffer& one) { return one.bytes == 0; });
    std::sort(plan.buffers.begin(), plan.buffers.end(),
              [](const PlannedBuffer& a, const PlannedBuffer& b) { return a.key < b.key; });
    count_bytes(plan);
  }

  TaskGraphBuilder& builder_;
  const Graph& graph_;
  const Strategy& strategy_;
  const TaskGraph& tasks_;
  const bool on_demand_, gathers_again_;
  Vector<MemoryPlan> plans_;
  // On-demand buffers, by transfer.
  std::unordered_map<TaskKey, StepsBefore> steps_before_;
  Vector<int> plan_of_device_;  // by device; -1: not asked for
  Vector<Vector<Part>> parts_;  // [operator][place of the part in the task graph]
  Vector<Input> inputs_;        // of the parts, one after the other
  Vector<Output> outputs_;      // likewise
  Vector<Contribution> contributions_;
  // [operator]: the kind of each part, and what parts of each kind have; empty: not asked for.
  Vector<std::pair<Vector<int>, Vector<Volumes>>> volumes_;
  std::unordered_map<int64_t, int> collective_steps_;  // by step_key
};

}  // namespace

const PlannedBuffer* MemoryPlan::find(const BufferKey& key) const {
  const auto it = std::lower_bound(buffers.begin(), buffers.end(), key,
                                   [](const PlannedBuffer& one, const BufferKey& sought) { return one.key < sought; });
  return it == buffers.end() || it->key != key ? nullptr : &*it;
}

void count_bytes(MemoryPlan& plan) {
  plan.separate_bytes = 0;
  for (const PlannedBuffer& one : plan.buffers) plan.separate_bytes += aligned(one.bytes);
  const Vector<int64_t> live = live_bytes(plan);
  plan.live_bytes = *std::max_element(live.begin(), live.end());
}

Vector<MemoryPlan> plan_lives(TaskGraphBuilder& builder, const Strategy& strategy, const TaskGraph& tasks,
                              const Vector<int>& order, const Vector<DeviceId>& devices, TransferBuffers buffers,
                              InputsOfCollectives inputs) {
  return MemoryPlanner(builder, strategy, tasks, devices, buffers, inputs).plan(order);
}

Vector<MemoryPlan> plan_memory(TaskGraphBuilder& builder, const Strategy& strategy, const TaskGraph& tasks,
                               const Vector<int>& order, const Vector<DeviceId>& devices, TransferBuffers buffers) {
  Vector<MemoryPlan> plans = plan_lives(builder, strategy, tasks, order, devices, buffers);
  lay_out(plans);
  return plans;
}

}  // namespace ff
