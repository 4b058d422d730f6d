// This rank's share of the task graph: a flat list of steps in the strategy's issue order, with every buffer planned
// and allocated once, so that an iteration allocates nothing and a step costs its kernel, its copies and about a
// microsecond.
//
// Data moves without a copy wherever a block is used whole: a local consumer reads its producer's buffer, a remote one
// receives into its input buffer, and the sender sends its output buffer. Everything else goes through copy_block,
// counted by Task::copy_bytes. Receives are all posted when an iteration begins: their memory is not used for anything
// else until they are read (memory_plan.h), and early receives spare the transport a copy. A send is waited for when
// its memory is about to be written again, in the next iteration.
//
// On a GPU nothing here waits for a kernel but the end of an iteration: transports that follow the backend
// (transport.h) order their work with the kernels' by events. With an ordered one, receives and sends are started at
// their place in the order that all ranks share (transfer_order.h). An iteration that involves the host nowhere can be
// recorded as a CUDA graph (use_graph).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/graph.h"
#include "common/kernels/backend.h"
#include "common/strategy.h"
#include "common/task_graph/memory_plan.h"
#include "common/task_graph/task_graph.h"
#include "common/vector.h"
#include "executor/cuda/device_clock.h"
#include "executor/cuda/iteration_graph.h"
#include "executor/transport/transport.h"

namespace ff {

// Memory of one backend, released together.
class BufferPool {
 public:
  explicit BufferPool(Backend& backend) : backend_(backend) {}
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;
  float* allocate(int64_t elements);  // null for none
  int64_t bytes() const { return bytes_; }

 private:
  Backend& backend_;
  Vector<void*> buffers_;
  int64_t bytes_ = 0;
};

struct BlockCopy {
  const void* source;
  Block source_block;
  void* destination;
  Block destination_block;
  Block region;
  bool add = false;  // f32: adds to the destination
};

struct ZeroFill {
  void* memory;
  int64_t bytes;
};

struct Transfer {
  int task;  // its index in the task graph is the tag
  int peer;
  void* memory;
  int64_t bytes;
  Request request;
};

// Transfers that an ordered transport starts together.
struct TransferGroup {
  Vector<int> sends, receives;  // indices into Program::sends and receives
  size_t steps_before;          // they start behind so many of Program::steps
};

// A reduction of statistics on this rank.
struct ReductionPlan {
  GroupId group = -1;  // -1: this rank holds all parts
  float* sums = nullptr;
  int64_t elements = 0;
  Vector<const float*> parts;  // of several local parts: each one's own sums; of a single one, it writes to `sums`
  Request request;
  bool pending = false;
};

// What runs for one task on this rank.
struct Step {
  TaskKind kind;
  int task;
  int unit = -1;       // synchronization, update: index into Program::units
  int reduction = -1;  // reductions, and the forward or backward task behind one: index into Program::reductions
  bool updates_state = false;  // forward: behind it the kernel's states move towards the batch's statistics
  // forward, backward:
  Kernel* kernel = nullptr;
  KernelArguments arguments;
  Vector<int> receives;      // needed by this step: indices into Program::receives
  Vector<ZeroFill> zeros;    // then
  Vector<BlockCopy> gather;  // pieces of inputs, or contributions to the output gradient
  Vector<BlockCopy> pack;    // behind the kernel: what goes into send buffers
  Vector<int> sends;         // started last: indices into Program::sends
  Vector<int> waits;         // before all: sends of the iteration before that read what this step overwrites
};

// A block of a parameter on this rank. Parts with the same block share it; distinct blocks of one parameter may
// overlap.
struct ParameterBuffer {
  ParameterId parameter;
  Block block;
  float* weight;
  float* velocity;  // null without momentum or training
};

struct SgdRun {
  float* parameter;
  const float* gradient;
  float* velocity;
  int64_t elements;
};

// Where a piece's gradient, summed over the devices, lies on this rank: dense, within its unit's packed buffer.
struct PieceGradient {
  const ParameterPiece* piece;
  float* gradient;
};

// A synchronization unit on this rank: gradients lie packed in one buffer; backward writes them there wherever it can.
struct UnitPlan {
  GroupId group = -1;  // -1: this rank is the only holder
  float* packed = nullptr;
  int64_t elements = 0;
  Vector<ZeroFill> zeros;
  Vector<BlockCopy> pack;
  Vector<SgdRun> updates;
  Vector<BlockCopy> spread;  // updated pieces to the other local buffers that contain them
  Vector<PieceGradient> gradients;
  Request request;
};

struct InputBuffer {
  TensorId tensor;
  Block block;
  void* memory;  // in the backend's storage
};

struct LossBuffer {
  OperatorId op;
  Block block;  // of the outputs "loss" and "correct"
  const float* loss;
  const float* correct;
};

// Something that a rank did, for the trace and the shares of its time. Times are steady_clock's.
struct Event {
  enum class Kind : uint8_t { compute, copy, wait, send, receive, all_reduce, update };
  Kind kind;
  int task;
  int64_t begin_ns;
  int64_t end_ns;
};

// How a rank spent an iteration. busy: kernels, copies, updates. transfer: in calls that send, receive and all-reduce,
// the wait for an all-reduce included. The rest of the iteration is idle: waiting for another rank's data.
struct TimeShares {
  int64_t busy_ns = 0;
  int64_t transfer_ns = 0;
  int64_t idle_ns = 0;
  int64_t total_ns = 0;
};

struct ProgramSettings {
  SgdSettings sgd;
  uint64_t seed = 0;  // of dropout
};

class Program {
 public:
  // The strategy's devices are the transport's ranks. An issue order that does not fit the task graph is replaced by
  // the default one.
  Program(const Graph& graph, const Strategy& strategy, const Vector<std::string>& issue_order, Backend& backend,
          Transport& transport, const ProgramSettings& settings);
  ~Program();

  // One training iteration, or (training false) forward tasks alone. Inputs have been stored. A failure is a
  // MachineError that names the task.
  void run(int64_t iteration, bool training);
  void finish_sends();  // after which buffers may be changed from outside

  int64_t memory_bytes() const;
  std::string task_name(int task) const;

  // Where it fits: records every event of the following runs.
  void record_events(Vector<Event>* events) { events_ = events; }
  const TimeShares& last_shares() const { return shares_; }

  // For tests: called behind a step with each buffer of the arena that is not used any more in this iteration.
  void when_unused(std::function<void(void* memory, int64_t bytes)> call) { when_unused_ = std::move(call); }

  // On a GPU: what its clock says of the second iteration stands for the shares of all others.
  void use_clock(std::unique_ptr<DeviceClock> clock) { clock_ = std::move(clock); }
  // On a GPU: the third training iteration is recorded and launched as a whole from then on, unless events are
  // recorded. The transport is NCCL's or there is one rank. Where recording fails, on any rank, iterations go on as
  // before and graph_failure says why.
  void use_graph(std::unique_ptr<IterationGraph> graph) { graph_ = std::move(graph); }
  const std::string& graph_failure() const { return graph_failure_; }
  bool uses_graph() const { return graph_ && graph_->recorded(); }

  const Graph& graph;
  const Strategy& strategy;
  Backend& backend;
  Transport& transport;
  ProgramSettings settings;
  TaskGraphBuilder builder;
  TaskGraph tasks;

  // The plan (program_plan.cpp).
  BufferPool buffers;
  MemoryPlan memory;       // of what lives within an iteration (memory_plan.h)
  float* arena = nullptr;  // where it lies; what lives longer has memory of its own
  Vector<std::unique_ptr<Kernel>> kernels;
  Vector<Step> steps;
  Vector<Transfer> sends, receives;
  Vector<int> waits_before_receives;      // sends of the iteration before that read what is received into
  Vector<TransferGroup> transfer_groups;  // with an ordered transport
  Vector<ReductionPlan> reductions;
  Vector<UnitPlan> units;  // by unit of the task graph; untouched where this rank is no holder
  Vector<ParameterBuffer> parameters;
  Vector<InputBuffer> inputs;
  Vector<LossBuffer> losses;
  bool own_issue_order = false;  // the default one is in use

 private:
  friend class ProgramPlanner;
  void submit(int64_t iteration, bool training);
  bool replay(int64_t iteration);
  void give_up();
  void start_receives(bool training);
  void start_transfers(const TransferGroup& group, bool training);
  void run_step(Step& step, int64_t iteration, bool training);
  void run_compute(Step& step, int64_t iteration, bool training);
  void run_kernel(Step& step, bool training);
  void run_reduction(Step& step);
  void run_synchronization(Step& step);
  void run_update(Step& step);
  void copy(const Vector<ZeroFill>& zeros, const Vector<BlockCopy>& copies);
  void report_unused(int step);
  void note(Event::Kind kind, int task);  // what happened since the last note
  void add_event(const Event& event);
  void finish_clock(int64_t begin_ns);

  std::function<void(void*, int64_t)> when_unused_;
  Vector<Event>* events_ = nullptr;
  TimeShares shares_;
  int64_t noted_ns_ = 0;
  int current_task_ = -1;

  std::unique_ptr<DeviceClock> clock_;
  bool clock_runs_ = false;  // in this iteration
  Vector<Event> marks_;      // without their times
  TimeShares timed_shares_;  // of the last iteration in which the clock ran
  std::unique_ptr<IterationGraph> graph_;
  std::string graph_failure_;
  int64_t submitted_ = 0;  // training iterations that were not launched as a graph
};

// Parameters are row-major while rank-4 blocks are stored channels-last: their last two axes, which nothing splits,
// become one.
Block parameter_storage(const Block& block);

}  // namespace ff
