// This rank's share of the task graph, ready to run: a plan (plan/program_plan.h) bound to a backend and a transport.
// Every buffer is allocated once, so that an iteration allocates nothing and a step costs its kernel, its copies and
// about a microsecond.
//
// On a GPU nothing here waits for a kernel but the end of an iteration: transports that follow the backend
// (transport.h) order their work with the kernels' by events. With an ordered one, receives and sends are started at
// their place in the order that all ranks share (transfer_order.h). Clocks, and a recording of iterations that involve
// the host nowhere, are observers.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "common/kernels/batched_updates.h"
#include "common/task_graph/issue_order.h"
#include "executor/plan/program_plan.h"
#include "executor/program/buffer.h"
#include "executor/program/observer.h"
#include "executor/transport/transport.h"

namespace ff {

struct ProgramSettings {
  OptimizerSettings optimizer;
  uint64_t seed = 0;  // of dropout
  TransferBuffers transfer_buffers = TransferBuffers::preallocated;
  StrategySettings of_strategy = {};
};

class Program {
 public:
  // The strategy's devices are the transport's ranks, which all make their programs at once. A schedule of the
  // strategy's settings comes before an issue order; one that does not fit the task graph is replaced by the default
  // one, on all ranks.
  Program(const Graph& graph, Strategy strategy, const Vector<std::string>& issue_order, Backend& backend,
          Transport& transport, const ProgramSettings& settings);
  ~Program();

  // The observer sees all iterations from now on and lives as long as the program.
  template <typename Kind>
  Kind& attach(std::unique_ptr<Kind> observer) {
    Kind& attached = *observer;
    observers_.push_back(std::move(observer));
    return attached;
  }

  // One training iteration, or (training false) forward tasks alone. Inputs have been stored. A failure is a
  // MachineError that names the task.
  void run(int64_t iteration, bool training);
  // Its middle: gives all steps to the backend and the transport.
  void submit(int64_t iteration, bool training);
  void finish_sends();                                // after which buffers may be changed from outside
  void finish_sends_of(const PlannedBuffer& buffer);  // those that read it

  const Graph& graph() const { return builder_.graph(); }
  const Strategy& strategy() const { return strategy_; }
  const ProgramSettings& settings() const { return settings_; }
  const TaskGraph& tasks() const { return tasks_; }  // of this rank
  const ProgramPlan& plan() const { return plan_; }
  Backend& backend() const { return backend_; }
  Transport& transport() const { return transport_; }
  // Whatever the type of what lies there.
  float* address(Place place) const {
    if (!place.exists()) return nullptr;
    return reinterpret_cast<float*>(reinterpret_cast<char*>(buffers_[place.buffer].get()) + place.offset_bytes());
  }
  TaskGraphBuilder& builder() { return builder_; }
  const TaskGraphBuilder& builder() const { return builder_; }

  // How many updates the optimizer's state has seen.
  int64_t updates() const { return updates_; }
  void set_updates(int64_t updates) { updates_ = updates; }

  bool default_issue_order() const { return default_issue_order_; }  // for lack of a fitting one
  int64_t memory_bytes() const;
  std::string task_name(int task) const;
  std::string running_task() const;  // in front of a failure's text: "task fc1/forward/0: ", or ""

 private:
  // What a step's kernel gets.
  struct Call {
    Kernel* kernel = nullptr;
    KernelArguments arguments;
    const Block* part = nullptr;  // of a kernel that several parts share; else null
  };

  // Do all ranks find all their tasks in the file's issue order, and nothing else is named there? They all ask.
  Vector<int> order_of(const Vector<std::string>& issue_order);
  bool all_ranks_fit(const NamedOrder& named) const;
  void bind();
  void check_tags() const;
  KernelArguments arguments_of(const StepPlan& step) const;
  void give_up();
  void did(Activity activity, int task) {
    for (const auto& observer : observers_) observer->did(activity, task);
  }
  void start_receives(const StepPlan& step, bool training);
  void wait_for_sends(const Vector<int>& sends);
  void start_transfers(const TransferGroup& group, bool training);
  void start_send(int index);
  void start_receive(int index);
  void run_step(int index, int64_t iteration, bool training);
  void run_compute(int index, int64_t iteration, bool training);
  void run_kernel(const StepPlan& step, Call& call, bool training);
  bool reduces(const StepPlan& step, bool training) const;  // of a step with a reduction
  void run_reduction(const StepPlan& step);
  void run_collective(const StepPlan& step);
  void run_synchronization(int index);
  void run_barrier(const StepPlan& step);
  void run_all_gather(int index);
  void copy_gathered(const StepPlan& step);
  Vector<int64_t> shards_of(const UnitPlan& unit) const;
  void run_update(int step);
  void sum_gradients(const StepPlan& step);
  void update(int step);
  bool is_read_in_iteration(const StepPlan& update) const;
  void submit_updates();
  void forget_collected();
  void update_clipped();
  double sum_of_squared_gradients() const;
  void add_summed(int unit, Vector<ElementRun>& runs) const;
  bool postpone(int step);
  void run_postponed(bool all);
  void wait_for_receives(const StepPlan& step);
  bool is_complete(const StepPlan& step);
  void wait_for_parameters(const StepPlan& step);
  bool runs(const StepPlan& step, bool training) const;
  void start_sends(const StepPlan& step);
  void copy(const Vector<ZeroFill>& zeros, const Vector<BlockCopy>& copies);

  const Strategy strategy_;
  Backend& backend_;
  Transport& transport_;
  const ProgramSettings settings_;
  TaskGraphBuilder builder_;
  const TaskGraph tasks_;
  const bool polls_;  // the transport, after steps that send nothing
  bool default_issue_order_ = false;
  ProgramPlan plan_;

  // By index into the plan's lists.
  Vector<Buffer> buffers_;
  Vector<GroupId> groups_;
  Vector<std::unique_ptr<Kernel>> kernels_;  // of parts
  Vector<Call> calls_;                       // of steps
  Vector<CollectiveCall> collective_calls_;
  Vector<Request> sends_, receives_, reductions_, collectives_;
  Vector<Request> of_parameters_;  // of steps

  OptimizerStep optimizer_step_;  // of this iteration
  int64_t updates_ = 0;
  // Updates that are submitted together (batched_updates.h): steps, their operands and elements.
  Vector<int> collected_;
  Vector<UpdateOperands> operands_;
  int64_t collected_elements_ = 0;
  // Steps: updates and copies of parameters whose collectives went on when their turn came; with clipped gradients all
  // updates, and what comes after them.
  std::deque<int> postponed_;
  int current_task_ = -1;
  Vector<std::unique_ptr<Observer>> observers_;
};

}  // namespace ff
