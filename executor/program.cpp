#include "executor/program.h"

#include <chrono>

#include "common/task_graph/issue_order.h"

namespace ff {
namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

BufferPool::~BufferPool() {
  for (void* buffer : buffers_) backend_.release(buffer);
}

float* BufferPool::allocate(int64_t elements) {
  if (elements <= 0) return nullptr;
  buffers_.reserve(buffers_.size() + 1);
  void* memory = backend_.allocate(elements * element_bytes);
  buffers_.push_back(memory);
  bytes_ += elements * element_bytes;
  return static_cast<float*>(memory);
}

Block parameter_storage(const Block& block) {
  if (block.rank() < 4) return block;
  assert(block.rank() == 4 && block[2].begin == 0 && block[3].begin == 0);
  return {block[0], block[1], {0, block[2].end * block[3].end}};
}

Program::~Program() {
  try {
    finish_sends();
  } catch (...) {  // the transport has failed, which whoever destroys us already knows
  }
}

int64_t Program::memory_bytes() const {
  int64_t bytes = buffers.bytes();
  for (const auto& kernel : kernels) bytes += kernel->workspace_bytes();
  return bytes + backend.shared_workspace_bytes();
}

std::string Program::task_name(int task) const { return ff::task_name(builder, tasks, task); }

void Program::finish_sends() {
  for (Transfer& send : sends) transport.wait(send.request);
}

void Program::add_event(const Event& event) {
  const int64_t duration = event.end_ns - event.begin_ns;
  switch (event.kind) {
    case Event::Kind::compute:
    case Event::Kind::copy:
    case Event::Kind::update: shares_.busy_ns += duration; break;
    case Event::Kind::send:
    case Event::Kind::receive:
    case Event::Kind::all_reduce: shares_.transfer_ns += duration; break;
    case Event::Kind::wait: shares_.idle_ns += duration; break;
  }
  if (events_) events_->push_back(event);
}

void Program::note(Event::Kind kind, int task) {
  if (clock_) {
    if (!clock_runs_) return;
    clock_->mark();
    marks_.push_back({kind, task, 0, 0});
    return;
  }
  const int64_t now = now_ns();
  add_event({kind, task, noted_ns_, now});
  noted_ns_ = now;
}

// Iterations that are not timed are taken to be like the last one that was.
void Program::finish_clock(int64_t begin_ns) {
  if (clock_runs_) {
    const Vector<int64_t> times = clock_->times_ns();
    int64_t before = 0;
    for (size_t i = 0; i < marks_.size(); ++i) {
      add_event({marks_[i].kind, marks_[i].task, begin_ns + before, begin_ns + times[i]});
      before = times[i];
    }
    timed_shares_ = shares_;
    timed_shares_.total_ns = now_ns() - begin_ns;
    marks_.clear();
    clock_runs_ = false;
    return;
  }
  if (timed_shares_.total_ns == 0) return;
  const double scale = static_cast<double>(now_ns() - begin_ns) / static_cast<double>(timed_shares_.total_ns);
  const auto scaled = [&](int64_t ns) { return static_cast<int64_t>(static_cast<double>(ns) * scale); };
  shares_ = {scaled(timed_shares_.busy_ns), scaled(timed_shares_.transfer_ns), scaled(timed_shares_.idle_ns), 0};
}

void Program::run(int64_t iteration, bool training) {
  const int64_t begin = now_ns();
  shares_ = {};
  noted_ns_ = begin;
  current_task_ = -1;
  try {
    if (!(graph_ && training && !events_ && submitted_ >= 2 && replay(iteration))) {
      clock_runs_ = clock_ && (events_ || (training && submitted_ == 1));
      if (clock_runs_) clock_->begin();
      submit(iteration, training);
      submitted_ += training;
    }
    transport.finish_iteration();
    backend.wait();
    if (when_unused_) {
      finish_sends();
      report_unused(static_cast<int>(steps.size()));
    }
    if (clock_) finish_clock(begin);
  } catch (const TransportError& error) {
    give_up();
    if (error.tag < 0 || error.tag >= static_cast<int>(tasks.tasks.size())) throw;
    throw MachineError("task " + task_name(error.tag) + ": " + error.what());
  } catch (const std::exception& error) {
    give_up();
    if (current_task_ < 0) throw;
    throw MachineError("task " + task_name(current_task_) + ": " + error.what());
  }
  shares_.total_ns = now_ns() - begin;
}

// The recording first: NCCL ends a communicator only when no graph holds its operations any more (a graph that runs is
// freed when it ends).
void Program::give_up() {
  graph_.reset();
  transport.give_up();
}

void Program::submit(int64_t iteration, bool training) {
  transport.begin_iteration();
  if (!transport.ordered()) start_receives(training);
  size_t started = 0;
  const auto start_up_to = [&](size_t steps_before) {
    for (; started < transfer_groups.size() && transfer_groups[started].steps_before <= steps_before; ++started)
      start_transfers(transfer_groups[started], training);
  };
  for (size_t s = 0; s < steps.size(); ++s) {
    start_up_to(s);
    run_step(steps[s], iteration, training);
    if (when_unused_) report_unused(static_cast<int>(s));
  }
  start_up_to(steps.size());
  if (transport.follows_backend()) finish_sends();
  transport.end_iteration();
  current_task_ = -1;
}

// One rank's failure to record is every rank's: they go on alike.
bool Program::replay(int64_t iteration) {
  if (!graph_->recorded()) {
    std::string failure;
    try {
      graph_->begin();
      submit(iteration, true);
      graph_->end();
    } catch (const std::exception& error) {
      failure = (current_task_ < 0 ? "" : "task " + task_name(current_task_) + ": ") + error.what();
      graph_->give_up();
      current_task_ = -1;
    }
    std::string first;
    for (const std::string& one : transport.gather(failure))
      if (first.empty()) first = one;
    graph_failure_ = transport.broadcast(first);
    if (!graph_failure_.empty()) {
      graph_.reset();
      return false;
    }
  }
  graph_->launch(iteration);
  return true;
}

void Program::report_unused(int step) {
  for (const PlannedBuffer& buffer : memory.buffers)
    if (buffer.last == step) when_unused_(arena + buffer.offset / element_bytes, buffer.bytes);
}

void Program::start_receives(bool training) {
  for (int send : waits_before_receives) transport.wait(sends[send].request);
  for (Transfer& receive : receives)
    if (training || tasks.tasks[receive.task].kind == TaskKind::activation)
      receive.request = transport.receive(receive.memory, receive.bytes, receive.peer, receive.task);
  if (!receives.empty()) note(Event::Kind::receive, receives[0].task);
}

void Program::start_transfers(const TransferGroup& group, bool training) {
  const auto runs = [&](const Transfer& transfer) {
    return training || tasks.tasks[transfer.task].kind == TaskKind::activation;
  };
  transport.begin_group();
  for (int index : group.sends) {
    Transfer& send = sends[index];
    current_task_ = send.task;
    if (runs(send)) send.request = transport.send(send.memory, send.bytes, send.peer, send.task);
  }
  for (int index : group.receives) {
    Transfer& receive = receives[index];
    current_task_ = receive.task;
    if (runs(receive)) receive.request = transport.receive(receive.memory, receive.bytes, receive.peer, receive.task);
  }
  transport.end_group();
}

void Program::run_step(Step& step, int64_t iteration, bool training) {
  current_task_ = step.task;
  if (is_compute(step.kind)) {
    if (training || is_forward(step.kind)) run_compute(step, iteration, training);
  } else if (training) {
    if (is_reduction(step.kind)) run_reduction(step);
    else if (step.kind == TaskKind::synchronization) run_synchronization(step);
    else run_update(step);
  }
}

void Program::copy(const Vector<ZeroFill>& zeros, const Vector<BlockCopy>& copies) {
  for (const ZeroFill& zero : zeros) backend.fill_zero(zero.memory, zero.bytes);
  for (const BlockCopy& one : copies) {
    if (one.add)
      backend.add_block(static_cast<const float*>(one.source), one.source_block, static_cast<float*>(one.destination),
                        one.destination_block, one.region);
    else backend.copy_block(one.source, one.source_block, one.destination, one.destination_block, one.region);
  }
}

void Program::run_compute(Step& step, int64_t iteration, bool training) {
  // What was sent in the previous iteration may lie in the memory that this step writes now.
  if (!step.waits.empty()) {
    for (int send : step.waits) transport.wait(sends[send].request);
    note(Event::Kind::send, sends[step.waits[0]].task);
  }
  for (int receive : step.receives) {
    transport.wait(receives[receive].request);
    note(Event::Kind::wait, receives[receive].task);
  }
  if (!step.gather.empty() || !step.zeros.empty()) {
    copy(step.zeros, step.gather);
    note(Event::Kind::copy, step.task);
  }
  step.arguments.iteration = iteration;
  step.arguments.training = training;
  run_kernel(step, training);
  note(Event::Kind::compute, step.task);
  if (!step.pack.empty()) {
    copy({}, step.pack);
    note(Event::Kind::copy, step.task);
  }
  if (transport.ordered()) return;  // start_transfers sends
  if (!step.sends.empty()) {
    if (!transport.follows_backend()) backend.wait();
    for (int index : step.sends) {
      Transfer& send = sends[index];
      send.request = transport.send(send.memory, send.bytes, send.peer, send.task);
      note(Event::Kind::send, send.task);
    }
  } else if (transport.size() > 1) {
    transport.poll();
    note(Event::Kind::send, step.task);
  }
}

void Program::run_kernel(Step& step, bool training) {
  if (step.reduction >= 0 && training) {
    ReductionPlan& reduction = reductions[step.reduction];
    if (reduction.pending) {
      transport.wait(reduction.request);
      note(Event::Kind::all_reduce, step.task);
    }
    reduction.pending = false;
  }
  switch (step.kind) {
    case TaskKind::forward_statistics:
      if (training) step.kernel->forward_statistics(step.arguments);
      break;
    case TaskKind::backward_statistics: step.kernel->backward_statistics(step.arguments); break;
    case TaskKind::forward:
      step.kernel->forward(step.arguments);
      if (step.updates_state && training) step.kernel->update_state(step.arguments);
      break;
    default: step.kernel->backward(step.arguments);
  }
}

void Program::run_reduction(Step& step) {
  ReductionPlan& reduction = reductions[step.reduction];
  if (!reduction.parts.empty()) {
    backend.fill_zero(reduction.sums, reduction.elements * element_bytes);
    for (const float* part : reduction.parts) backend.add(part, reduction.sums, reduction.elements);
    note(Event::Kind::copy, step.task);
  }
  if (reduction.group < 0) return;
  if (!transport.follows_backend()) backend.wait();
  reduction.request = transport.all_reduce(reduction.group, reduction.sums, reduction.elements, step.task);
  reduction.pending = true;
  note(Event::Kind::all_reduce, step.task);
}

void Program::run_synchronization(Step& step) {
  UnitPlan& unit = units[step.unit];
  if (!unit.pack.empty() || !unit.zeros.empty()) {
    copy(unit.zeros, unit.pack);
    note(Event::Kind::copy, step.task);
  }
  if (!transport.follows_backend()) backend.wait();
  unit.request = transport.all_reduce(unit.group, unit.packed, unit.elements, step.task);
  note(Event::Kind::all_reduce, step.task);
}

void Program::run_update(Step& step) {
  UnitPlan& unit = units[step.unit];
  if (unit.group >= 0) {
    transport.wait(unit.request);
    note(Event::Kind::all_reduce, step.task);
  } else {
    copy(unit.zeros, unit.pack);
  }
  for (const SgdRun& run : unit.updates)
    backend.sgd_update(run.parameter, run.gradient, run.velocity, run.elements, settings.sgd);
  copy({}, unit.spread);
  note(Event::Kind::update, step.task);
}

}  // namespace ff
