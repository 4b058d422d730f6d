#include "executor/program/program.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "common/kernels/converted_kernel.h"
#include "common/micro_batches.h"
#include "executor/transport/control_data.h"

namespace ff {

Program::Program(const Graph& graph, Strategy strategy, const Vector<std::string>& issue_order, Backend& backend,
                 Transport& transport, const ProgramSettings& settings)
    : strategy_(std::move(strategy)), backend_(backend), transport_(transport), settings_(settings),
      builder_(graph, settings.of_strategy), tasks_(builder_.build(strategy_, transport.rank())),
      polls_(transport.size() > 1 && !transport.ordered()) {
  const Vector<int> order = order_of(issue_order);
  plan_ = plan_program(builder_, strategy_, tasks_, order,
                       {transport.rank(), state_buffers(settings.optimizer), transport.follows_backend(),
                        transport.ordered(), settings.transfer_buffers});
  bind();
}

Vector<int> Program::order_of(const Vector<std::string>& names) {
  const TransferBuffers buffers = settings_.transfer_buffers;
  if (settings_.of_strategy.schedule == Schedule::one_forward_one_backward) {
    const int micro_batches = builder_.micro_batches();
    const auto schedule = PipelineSchedule::of(graph(), of_one_micro_batch(graph(), strategy_, micro_batches),
                                               micro_batches, transport_.size());
    if (schedule) {
      Vector<int> order = pipeline_issue_order(builder_, tasks_, strategy_, *schedule, buffers);
      if (!is_allowed(tasks_, order)) throw InputError("the schedule 1f1b does not fit the tasks of this strategy");
      return order;
    }
  }
  NamedOrder named;
  if (!names.empty()) named = order_by_names(builder_, tasks_, names, buffers);
  default_issue_order_ = names.empty() || !all_ranks_fit(named);
  return default_issue_order_ ? ff::default_issue_order(builder_, tasks_, buffers) : std::move(named.order);
}

bool Program::all_ranks_fit(const NamedOrder& named) const {
  const bool found = named.order.size() == tasks_.tasks.size() && named.named >= 0;
  int64_t counted = 0;
  bool fit = true;
  for (const std::string& bytes : transport_.gather(to_bytes(Vector<int64_t>{found ? named.counted : -1}))) {
    const int64_t of_rank = from_bytes<int64_t>(bytes)[0];
    fit = fit && of_rank >= 0;
    counted += of_rank;
  }
  // What rank 0 says counts; the others have gathered nothing.
  return transport_.broadcast(fit && counted == named.named ? "fits" : "") == "fits";
}

void Program::bind() {
  for (const BufferPlan& buffer : plan_.buffers)
    buffers_.push_back(allocate_buffer(backend_, buffer.elements, buffer.zeroed, buffer.type));
  groups_ = transport_.make_groups(plan_.groups);
  kernels_.resize(plan_.kernels);
  Vector<int> users(plan_.kernels, 0);
  for (const PartPlan& part : plan_.parts) {
    if (part.again || users[part.kernel]++ > 0) continue;
    const Operator& op = graph().operators[part.op];
    kernels_[part.kernel] = make_typed_kernel(
        backend_, {*op.definition, part.block, graph().inputs_with_gradient(part.op), op.name, settings_.seed},
        address(plan_.conversions));
  }
  for (const StepPlan& step : plan_.steps)
    if (step.part < 0) calls_.emplace_back();
    else calls_.push_back({kernels_[plan_.parts[step.part].kernel].get(), arguments_of(step)});
  for (const int step : plan_.steps.indices())
    if (const int part = plan_.steps[step].part; part >= 0 && users[plan_.parts[part].kernel] > 1)
      calls_[step].part = &plan_.parts[part].block;
  sends_.resize(plan_.sends.size());
  receives_.resize(plan_.receives.size());
  reductions_.resize(plan_.reductions.size());
  collectives_.resize(plan_.collectives.size());
  for (const CollectivePlan& plan : plan_.collectives)
    collective_calls_.push_back({plan.kind, plan.root, address(plan.send), address(plan.receive), plan.elements,
                                 plan.send_elements, plan.receive_elements, plan.type});
  of_parameters_.resize(plan_.steps.size());
  std::set<int> destinations, sources;
  for (const TransferPlan& send : plan_.sends) destinations.insert(send.peer);
  for (const TransferPlan& receive : plan_.receives) sources.insert(receive.peer);
  check_tags();
  transport_.connect({destinations.begin(), destinations.end()}, {sources.begin(), sources.end()});
}

void Program::check_tags() const {
  for (const auto* transfers : {&plan_.sends, &plan_.receives})
    for (const TransferPlan& transfer : *transfers)
      if (transfer.tag > transport_.largest_tag())
        throw MachineError("ranks " + std::to_string(transport_.rank()) + " and " + std::to_string(transfer.peer) +
                           " have more than " + std::to_string(transfer.tag) +
                           " transfers in one direction, the transport " + transport_.name() + " has tags up to " +
                           std::to_string(transport_.largest_tag()));
}

KernelArguments Program::arguments_of(const StepPlan& step) const {
  const PartPlan& part = plan_.parts[step.part];
  KernelArguments arguments;
  const auto bind = [&](const Vector<Place>& places, auto& addresses) {
    for (const Place place : places) addresses.push_back(address(place));
  };
  bind(part.inputs, arguments.inputs);
  bind(part.outputs, arguments.outputs);
  for (const int i : part.parameters.indices()) {
    const bool gathered = i < step.gathered.count() && step.gathered[i].exists();
    arguments.parameters.push_back(address(gathered ? step.gathered[i] : plan_.parameters[part.parameters[i]].read()));
    arguments.masters.push_back(gathered);
  }
  arguments.statistics = address(step.statistics);
  arguments.statistics_slots = step.statistics_slots;
  if (step.updates_state)
    for (const int parameter : part.parameters) {
      const ParameterBuffer& buffer = plan_.parameters[parameter];
      const bool trained = graph().parameters[buffer.parameter].spec.trained;
      arguments.states.push_back(trained ? nullptr : address(buffer.weight));
    }
  if (direction_of(step.kind) == Direction::forward) return arguments;
  bind(part.output_gradients, arguments.output_gradients);
  bind(part.input_gradients, arguments.input_gradients);
  bind(part.parameter_gradients, arguments.parameter_gradients);
  arguments.accumulate = part.accumulate;
  return arguments;
}

Program::~Program() {
  try {
    finish_sends();
  } catch (...) {  // the transport has failed, which whoever destroys us already knows
  }
}

int64_t Program::memory_bytes() const {
  int64_t bytes = 0;
  for (const BufferPlan& buffer : plan_.buffers) bytes += buffer.bytes();
  for (const auto& kernel : kernels_) bytes += kernel->workspace_bytes();
  return bytes + backend_.shared_workspace_bytes();
}

std::string Program::task_name(int task) const { return ff::task_name(builder_, tasks_, task); }

std::string Program::running_task() const { return current_task_ < 0 ? "" : "task " + task_name(current_task_) + ": "; }

void Program::finish_sends() {
  for (Request& send : sends_) transport_.wait(send);
}

void Program::finish_sends_of(const PlannedBuffer& buffer) {
  for (int send : plan_.sends.indices()) {
    const int64_t begin = plan_.sends[send].memory.offset_bytes(), end = begin + plan_.sends[send].bytes;
    if (plan_.sends[send].memory.buffer == arena_buffer && begin < buffer.offset + buffer.bytes && buffer.offset < end)
      transport_.wait(sends_[send]);
  }
}

void Program::run(int64_t iteration, bool training) {
  current_task_ = -1;
  try {
    for (const auto& observer : observers_) observer->begin(training);
    bool launched = false;
    for (const auto& observer : observers_) launched = launched || (training && observer->launch(iteration));
    if (!launched) submit(iteration, training);
    transport_.finish_iteration();
    backend_.wait();
    if (training) ++updates_;
    for (const auto& observer : observers_) observer->end();
  } catch (const TransportError& error) {
    give_up();
    if (error.task < 0) throw;
    throw MachineError("task " + task_name(error.task) + ": " + error.what());
  } catch (const std::exception& error) {
    give_up();
    if (current_task_ < 0) throw;
    throw MachineError(running_task() + error.what());
  }
}

// A recording first: NCCL ends a communicator only when no graph holds its operations any more (a graph that runs is
// freed when it ends).
void Program::give_up() {
  for (const auto& observer : observers_) observer->give_up();
  transport_.give_up();
}

void Program::submit(int64_t iteration, bool training) {
  current_task_ = -1;
  postponed_.clear();  // of an iteration that could not be recorded
  forget_collected();
  optimizer_step_ = optimizer_step(settings_.optimizer, iteration, updates_);
  transport_.begin_iteration();
  size_t started = 0;
  const auto start_up_to = [&](int steps_before) {
    const Vector<TransferGroup>& groups = plan_.transfer_groups;
    for (; started < groups.size() && groups[started].steps_before <= steps_before; ++started)
      start_transfers(groups[started], training);
  };
  const int steps = static_cast<int>(plan_.steps.size());
  for (int s = 0; s < steps; ++s) {
    start_up_to(s);
    if (plan_.steps[s].receives_follow) transport_.receives_follow();
    start_receives(plan_.steps[s], training);
    const bool later = training && postpone(s);
    if (!later) run_step(s, iteration, training);
    for (const auto& observer : observers_) observer->step_ended(s);
    if (!later) run_postponed(false);
  }
  run_postponed(true);
  start_up_to(steps);
  if (settings_.optimizer.clip_norm > 0 && training) update_clipped();
  submit_updates();
  for (Request& collective : collectives_) transport_.wait(collective);  // of which this rank wanted nothing
  for (Request& collective : of_parameters_) transport_.wait(collective);
  if (transport_.follows_backend()) finish_sends();
  transport_.end_iteration();
  current_task_ = -1;
}

// An update that would wait for its all-reduce lets the steps after it go first, and so does the copy of what an
// all-gather brings. Nothing in the iteration reads what they write, and gradients have buffers of their own, so that
// the results are the same. With an ordered transport this rank is far ahead of the GPU and cannot tell: all of these
// go after the iteration's last step, where an all-reduce that is slow holds up no kernel but its own update. An
// owner's values lie in the arena, whose memory has its next use, as do gradients in rounds.
bool Program::postpone(int step) {
  const StepPlan& plan = plan_.steps[step];
  const bool gathers = plan.kind == TaskKind::parameter_all_gather;
  if (plan.kind != TaskKind::update && plan.kind != TaskKind::parameter_copy && !gathers) return false;
  const UnitPlan& unit = plan_.units[plan.unit];
  if (gathers && unit.has_sharded_weights()) return false;
  if (settings_.optimizer.clip_norm > 0) {
    if (unit.in_rounds()) wait_for_parameters(plan);
    postponed_.push_back(step);
    return true;
  }
  if (gathers || unit.in_rounds() || unit.group < 0) return false;
  current_task_ = plan.task;
  if (!transport_.ordered() && is_complete(plan)) return false;
  postponed_.push_back(step);
  return true;
}

void Program::run_postponed(bool all) {
  if (settings_.optimizer.clip_norm > 0) return;
  while (!postponed_.empty()) {
    const int step = postponed_.front();
    if (!all && (transport_.ordered() || !is_complete(plan_.steps[step]))) return;
    postponed_.pop_front();
    run_step(step, 0, true);
  }
}

// What the step waits for of parameters.
bool Program::is_complete(const StepPlan& step) {
  return std::all_of(step.parameter_waits.begin(), step.parameter_waits.end(),
                     [&](int collective) { return transport_.test(of_parameters_[collective]); });
}

void Program::wait_for_parameters(const StepPlan& step) {
  if (step.parameter_waits.empty()) return;
  for (const int collective : step.parameter_waits) transport_.wait(of_parameters_[collective]);
  did(Activity::all_reduce, step.task);
}

void Program::start_send(int index) {
  const TransferPlan& send = plan_.sends[index];
  sends_[index] = transport_.send(address(send.memory), send.bytes, send.peer, {send.tag, send.task});
}

void Program::start_receive(int index) {
  const TransferPlan& receive = plan_.receives[index];
  receives_[index] =
      transport_.receive(address(receive.memory), receive.bytes, receive.peer, {receive.tag, receive.task});
}

void Program::start_receives(const StepPlan& step, bool training) {
  if (step.posts.empty()) return;
  wait_for_sends(step.waits_before_posts);
  for (const int index : step.posts)
    if (training || is_forward(tasks_.tasks[plan_.receives[index].task].kind)) start_receive(index);
  did(Activity::receive, plan_.receives[step.posts[0]].task);
}

void Program::wait_for_sends(const Vector<int>& sends) {
  if (sends.empty()) return;
  for (const int send : sends) transport_.wait(sends_[send]);
  did(Activity::send, plan_.sends[sends[0]].task);
}

void Program::start_transfers(const TransferGroup& group, bool training) {
  const auto runs = [&](const TransferPlan& transfer) {
    current_task_ = transfer.task;
    return training || is_forward(tasks_.tasks[transfer.task].kind);
  };
  transport_.begin_group();
  for (const int index : group.sends)
    if (runs(plan_.sends[index])) start_send(index);
  for (const int index : group.receives)
    if (runs(plan_.receives[index])) start_receive(index);
  transport_.end_group();
}

// Is it there in evaluation too, or is this training?
bool Program::runs(const StepPlan& step, bool training) const {
  if (training || is_forward(step.kind)) return true;
  return step.kind == TaskKind::parameter_all_gather && plan_.units[step.unit].has_sharded_weights() &&
         step.gathers_for == Direction::forward;
}

void Program::run_step(int index, int64_t iteration, bool training) {
  const StepPlan& step = plan_.steps[index];
  current_task_ = step.task;
  if (is_reduction(step.kind)) {
    if (training || is_forward(step.kind)) wait_for_sends(step.waits);
    if (reduces(step, training)) run_reduction(step);
    return;
  }
  if (!runs(step, training)) return;
  wait_for_sends(step.waits);
  if (is_compute(step.kind)) {
    run_compute(index, iteration, training);
  } else if (is_edge_collective(step.kind)) {
    run_collective(step);
  } else {
    if (step.kind == TaskKind::synchronization) run_synchronization(index);
    else if (step.kind == TaskKind::parameter_all_gather) run_all_gather(index);
    else if (step.kind == TaskKind::parameter_copy) copy_gathered(step);
    else if (step.kind == TaskKind::barrier) run_barrier(step);
    else run_update(index);
  }
}

void Program::copy(const Vector<ZeroFill>& zeros, const Vector<BlockCopy>& copies) {
  for (const ZeroFill& zero : zeros)
    backend_.fill_zero(address(zero.memory), bytes_of(zero.memory.type, zero.elements));
  for (const BlockCopy& one : copies) {
    const float* source = address(one.source);
    float* destination = address(one.destination);
    const DataType type = one.destination.type;
    if (one.source.type != type) backend_.convert(source, one.source.type, destination, type, one.region.volume());
    else if (one.add)
      backend_.add_block(source, one.source_block, destination, one.destination_block, one.region, type);
    else backend_.copy_block(source, one.source_block, destination, one.destination_block, one.region, type);
  }
}

void Program::run_compute(int index, int64_t iteration, bool training) {
  const StepPlan& step = plan_.steps[index];
  Call& call = calls_[index];
  if (call.part) call.kernel->set_part(*call.part, graph().operators[plan_.parts[step.part].op].name);
  wait_for_parameters(step);
  wait_for_receives(step);
  for (const int collective : step.collectives) {
    transport_.wait(collectives_[collective]);
    did(Activity::wait, step.task);
  }
  if (!step.gather.empty() || !step.zeros.empty() || !step.weight_copies.empty()) {
    copy({}, step.weight_copies);
    copy(step.zeros, step.gather);
    did(Activity::copy, step.task);
  }
  call.arguments.iteration = iteration;
  call.arguments.training = training;
  run_kernel(step, call, training);
  did(Activity::compute, step.task);
  if (!step.pack.empty()) {
    copy({}, step.pack);
    did(Activity::copy, step.task);
  }
  if (!step.sends.empty()) {
    start_sends(step);
  } else if (polls_) {
    transport_.poll();
    did(Activity::send, step.task);
  }
}

void Program::wait_for_receives(const StepPlan& step) {
  for (const int receive : step.receives) {
    transport_.wait(receives_[receive]);
    did(Activity::wait, plan_.receives[receive].task);
  }
}

void Program::start_sends(const StepPlan& step) {
  if (step.sends.empty()) return;
  if (!transport_.follows_backend()) backend_.wait();
  for (const int send : step.sends) {
    start_send(send);
    did(Activity::send, plan_.sends[send].task);
  }
}

void Program::run_kernel(const StepPlan& step, Call& call, bool training) {
  if (step.reduction >= 0 && reduces(step, training) && plan_.reductions[step.reduction].group >= 0) {
    transport_.wait(reductions_[step.reduction]);
    did(Activity::all_reduce, step.task);
  }
  switch (step.kind) {
    case TaskKind::forward_statistics:
      if (training || graph().operators[plan_.parts[step.part].op].definition->statistics_in_evaluation())
        call.kernel->forward_statistics(call.arguments);
      break;
    case TaskKind::backward_statistics: call.kernel->backward_statistics(call.arguments); break;
    case TaskKind::recompute:
      if (plan_.parts[step.part].computed) call.kernel->forward(call.arguments);
      break;
    case TaskKind::forward:
      call.kernel->forward(call.arguments);
      if (step.updates_state && training) call.kernel->update_state(call.arguments);
      break;
    default: call.kernel->backward(call.arguments);
  }
}

bool Program::reduces(const StepPlan& step, bool training) const {
  return training || plan_.reductions[step.reduction].in_evaluation;
}

void Program::run_reduction(const StepPlan& step) {
  const ReductionPlan& reduction = plan_.reductions[step.reduction];
  float* common = address(reduction.common);
  if (!reduction.parts.empty()) {
    backend_.fill_zero(common, reduction.elements * element_bytes);
    for (const Place part : reduction.parts) backend_.add(address(part), common, reduction.elements);
  }
  copy(reduction.zeros, {});
  if (!reduction.parts.empty() || !reduction.zeros.empty()) did(Activity::copy, step.task);
  if (reduction.group < 0) return;
  if (!transport_.follows_backend()) backend_.wait();
  reductions_[step.reduction] =
      transport_.all_reduce(groups_[reduction.group], common, reduction.elements, {step.tag, step.task});
  did(Activity::all_reduce, step.task);
}

void Program::run_collective(const StepPlan& step) {
  const CollectivePlan& plan = plan_.collectives[step.collective];
  CollectiveCall& call = collective_calls_[step.collective];
  if (plan.kind == CollectiveKind::reduce && !plan.send.exists()) {  // a root that adds nothing of its own
    backend_.fill_zero(call.receive, bytes_of(plan.type, plan.elements[0]));
    call.send = call.receive;
  }
  if (!transport_.follows_backend()) backend_.wait();
  collectives_[step.collective] = transport_.collective(groups_[plan.group], call, {step.tag, step.task});
  did(Activity::all_reduce, step.task);
}

void Program::run_synchronization(int index) {
  const StepPlan& step = plan_.steps[index];
  const UnitPlan& unit = plan_.units[step.unit];
  const ShardPlan& shard = unit.shard;
  wait_for_parameters(step);
  const bool adds = unit.in_rounds() && tasks_.tasks[step.task].round > 0;
  if (adds || !step.zeros.empty() || !unit.zeros.empty() || !unit.pack.empty()) {
    copy(step.zeros, {});
    copy(unit.zeros, unit.pack);
    if (adds)  // what has been summed up so far
      backend_.add(address(shard.values), address(step.packed) + shard.begin, shard.elements);
    did(Activity::copy, step.task);
  }
  if (!transport_.follows_backend()) backend_.wait();
  of_parameters_[index] = unit.is_sharded() ? transport_.collective(groups_[unit.group],
                                                                    {CollectiveKind::reduce_scatter,
                                                                     -1,
                                                                     address(step.packed),
                                                                     address(shard.values),
                                                                     shards_of(unit),
                                                                     {},
                                                                     {}},
                                                                    {step.tag, step.task})
                                            : transport_.all_reduce(groups_[unit.group], address(step.packed),
                                                                    unit.elements, {step.tag, step.task});
  did(Activity::all_reduce, step.task);
}

// Elements, by holder.
Vector<int64_t> Program::shards_of(const UnitPlan& unit) const {
  return Vector<int64_t>(plan_.groups[unit.group].size(), unit.shard.elements);
}

// An update that was postponed comes first. All ranks start their collectives in the issue order.
void Program::run_all_gather(int index) {
  const StepPlan& step = plan_.steps[index];
  const UnitPlan& unit = plan_.units[step.unit];
  const auto is_update = [&](int other) {
    return plan_.steps[other].unit == step.unit && plan_.steps[other].kind == TaskKind::update;
  };
  if (const auto update = std::find_if(postponed_.begin(), postponed_.end(), is_update);
      update != postponed_.end() && !unit.has_sharded_weights()) {
    const int postponed = *update;
    postponed_.erase(update);
    run_step(postponed, 0, true);
  }
  if (std::any_of(collected_.begin(), collected_.end(), is_update)) submit_updates();
  current_task_ = step.task;
  const Place shard = unit.has_sharded_weights() ? unit.shard.weights : unit.shard.values;
  if (!transport_.follows_backend()) backend_.wait();
  of_parameters_[index] = transport_.collective(
      groups_[unit.group],
      {CollectiveKind::all_gather, -1, address(shard), address(step.packed), shards_of(unit), {}, {}},
      {step.tag, step.task});
  did(Activity::all_reduce, step.task);
}

void Program::copy_gathered(const StepPlan& step) {
  const UnitPlan& unit = plan_.units[step.unit];
  wait_for_parameters(step);
  copy({}, unit.shard.from_gathered);
  did(Activity::copy, step.task);
}

void Program::run_barrier(const StepPlan& step) {
  copy(step.zeros, step.gather);
  did(Activity::copy, step.task);
  start_sends(step);
}

// What the update reads is complete: the gradients of all devices are added up.
void Program::sum_gradients(const StepPlan& step) {
  const UnitPlan& unit = plan_.units[step.unit];
  wait_for_receives(step);
  wait_for_parameters(step);
  if (unit.group < 0) copy(unit.zeros, unit.pack);
}

void Program::run_update(int index) {
  sum_gradients(plan_.steps[index]);
  update(index);
}

// The optimizer's work is submitted now, or with that of later updates.
void Program::update(int index) {
  const StepPlan& step = plan_.steps[index];
  copy({}, step.gather);
  collected_.push_back(index);
  for (const UpdateRun& run : plan_.units[step.unit].updates) {
    const auto state = [&](int number) { return number < run.states.count() ? address(run.states[number]) : nullptr; };
    operands_.push_back({address(run.weight), address(run.gradient), {state(0), state(1)}, run.elements});
    collected_elements_ += run.elements;
  }
  if (collected_elements_ >= update_batch_elements(backend_) || is_read_in_iteration(step)) submit_updates();
}

// By something else than an all-gather, before which updates are submitted: what an owner updates is sent to others.
// Gradients in rounds lie in the arena, whose memory has its next use.
bool Program::is_read_in_iteration(const StepPlan& update) const {
  return tasks_.units[update.unit].owner != no_owner || plan_.units[update.unit].in_rounds();
}

// Observers see the time of all of them as the first one's.
void Program::submit_updates() {
  if (collected_.empty()) return;
  current_task_ = plan_.steps[collected_[0]].task;
  update_all(backend_, operands_, optimizer_step_);
  for (const int index : collected_) {
    const StepPlan& step = plan_.steps[index];
    const UnitPlan& unit = plan_.units[step.unit];
    copy({}, unit.spread);
    copy({}, unit.shard.updated);
    copy(step.zeros, step.pack);
    did(Activity::update, step.task);
    start_sends(step);
  }
  forget_collected();
}

void Program::forget_collected() {
  collected_.clear();
  operands_.clear();
  collected_elements_ = 0;
}

// All updates of the iteration, and what comes after them, after the norm of all gradients together.
void Program::update_clipped() {
  for (const int step : postponed_) {
    current_task_ = plan_.steps[step].task;
    if (plan_.steps[step].kind == TaskKind::update) sum_gradients(plan_.steps[step]);
  }
  transport_.finish_iteration();  // else another rank could wait for a transfer of this one, which waits for all ranks
  // The sums of all ranks in their order: the same bits everywhere.
  double squares = 0;
  for (const std::string& bytes : transport_.gather(to_bytes(Vector<double>{sum_of_squared_gradients()})))
    squares += from_bytes<double>(bytes)[0];
  squares = from_bytes<double>(transport_.broadcast(to_bytes(Vector<double>{squares})))[0];
  const double scale = clipping_scale(settings_.optimizer.clip_norm, std::sqrt(squares));
  const std::deque<int> steps = std::exchange(postponed_, {});
  if (scale < 1) {
    Vector<ElementRun> runs;
    for (const int step : steps)
      if (plan_.steps[step].kind == TaskKind::update) add_summed(plan_.steps[step].unit, runs);
    scale_all(backend_, runs, static_cast<float>(scale));
  }
  for (const int step : steps) {
    current_task_ = plan_.steps[step].task;
    if (plan_.steps[step].kind == TaskKind::update) update(step);
    else run_step(step, 0, true);
  }
}

// The sums of gradients that this rank has of a unit, from which it updates.
void Program::add_summed(int unit, Vector<ElementRun>& runs) const {
  const UnitPlan& plan = plan_.units[unit];
  if (plan.is_sharded()) {
    for (const UpdateRun& run : plan.updates) runs.push_back({address(run.gradient), run.elements});
    return;
  }
  for (const int piece : plan.gradients.indices())
    runs.push_back({address(plan.gradients[piece]), tasks_.units[unit].pieces[piece]->block.volume()});
}

// Of the units whose first holder is this rank, and of its shards: each trained parameter counts once.
double Program::sum_of_squared_gradients() const {
  Vector<ElementRun> runs;
  for (const int unit : plan_.units.indices())
    if (plan_.units[unit].is_sharded() || tasks_.units[unit].holders[0] == transport_.rank()) add_summed(unit, runs);
  return sum_of_all_squares(backend_, runs);
}

}  // namespace ff
