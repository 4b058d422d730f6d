// What one rank does in an iteration, as a value: steps in the strategy's issue order, and for everything that they
// read and write a place in one of the rank's buffers. No pointer, no transport and no backend: Program (program.h)
// binds a plan to them and runs it; tests print it.
//
// Data moves without a copy wherever a block is used whole: a local consumer reads its producer's buffer, a remote one
// receives into its input buffer, and the sender sends its output buffer. Everything else goes through block copies,
// counted by Task::copy_bytes. Receives are posted when their memory is theirs by the memory plan (memory_plan.h). With
// preallocated buffers that is when an iteration begins: early receives save the transport a copy. A send is waited for
// when its memory is about to be written again: in the next iteration, or with on-demand buffers in the same one.
#pragma once

#include "common/task_graph/collectives.h"
#include "common/task_graph/memory_plan.h"
#include "common/task_graph/sharded_units.h"
#include "common/task_graph/task_graph.h"
#include "common/vector.h"

namespace ff {

// Where something lies: nowhere (buffer -1) if it is empty or not wanted.
struct Place {
  int buffer = -1;                // index into ProgramPlan::buffers
  int64_t offset = 0;             // elements of the type
  DataType type = DataType::f32;  // of what lies there; int32 has as many bytes as f32
  bool exists() const { return buffer >= 0; }
  int64_t offset_bytes() const { return bytes_of(type, offset); }
  auto operator<=>(const Place&) const = default;
};

// Buffer 0 is the arena: what lives within an iteration, laid out by plan_memory. The others live as long as the
// program.
constexpr int arena_buffer = 0;
struct BufferPlan {
  int64_t elements;
  bool zeroed = false;  // once, before the first iteration
  DataType type = DataType::f32;
  int64_t bytes() const { return bytes_of(type, elements); }
};

struct ZeroFill {
  Place memory;
  int64_t elements;
};

// Where the types of the two places differ, the blocks are equal and all of it is converted.
struct BlockCopy {
  Place source;
  Block source_block;
  Place destination;
  Block destination_block;
  Block region;
  bool add = false;  // to the destination, instead of overwriting it
};

struct TransferPlan {
  int task;
  int peer;
  int tag;  // its number among the transfers from the sender to the receiver, in order of keys: known at both ends
  Place memory;
  int64_t bytes;
  BufferKey received = {};  // of a receive: the buffer that it writes
};

// This rank's share of a collective of an edge. Counts are in elements, by rank of the group, ascending; `send` and
// `receive` hold the blocks of its ranks one after the other where the kind packs them (collectives.h).
struct CollectivePlan {
  CollectiveKind kind;                              // of what moves, in this direction
  int group = -1;                                   // index into ProgramPlan::groups
  int root = -1;                                    // broadcast, reduce: its place in the group
  Place send, receive;                              // nowhere: this rank has nothing to send, or wants nothing
  Vector<int64_t> send_elements, receive_elements;  // all_to_all
  Vector<int64_t> elements;                         // all_gather, reduce_scatter: each rank's; else the block's alone
  DataType type = DataType::f32;
};

// Transfers that an ordered transport starts together.
struct TransferGroup {
  Vector<int> sends, receives;  // indices into ProgramPlan::sends and receives
  int steps_before;             // they start after so many of ProgramPlan::steps
};

// The steps of a part in one direction; first: of its statistics task if it has one, else the same.
struct PartSteps {
  int first = -1, last = -1;  // -1: it has no backward pass
};

// An operator's part on this rank, and what its kernel works on (KernelArguments). Lists are by input, output,
// parameter.
struct PartPlan {
  OperatorId op;
  int part;
  Block block;
  Vector<Block> input_blocks, output_blocks;
  Vector<Place> inputs, outputs;
  Vector<int> parameters;  // indices into ProgramPlan::parameters
  Vector<Place> output_gradients, input_gradients, parameter_gradients;
  Vector<uint8_t> accumulate;  // is the parameter's gradient added to?
  PartSteps forward, backward;
  bool again = false;    // the same part once more, as recompute and backward see it; its kernel is the part's
  bool computed = true;  // `again`: recompute has something to compute (TaskGraphBuilder::computed_again)
  int kernel = -1;       // parts that are never in flight at the same time share one (task_graph/shared_kernels.h)
  const PartSteps& steps(Direction direction) const { return direction == Direction::forward ? forward : backward; }
};

// What runs for one task.
struct StepPlan {
  TaskKind kind;
  int task;
  int part = -1;  // compute: index into ProgramPlan::parts
  int unit = -1;  // of parameters: index into ProgramPlan::units
  // Reductions: index into ProgramPlan::reductions. Of the compute steps after one, the first waits for it.
  int reduction = -1;
  int collective = -1;  // collectives of edges: index into ProgramPlan::collectives
  int tag = -1;         // collectives: the number among those of the same ranks, in order of keys
  // Collectives of parameters that this step is the first to wait for: steps.
  Vector<int> parameter_waits;
  // Synchronization: the packed gradients; gathering of sharded weights: where they go.
  Place packed;
  Direction gathers_for = Direction::forward;
  // Compute: by parameter, where gathered weights are; nowhere, or empty: where ProgramPlan::parameters has them.
  Vector<Place> gathered;
  // In front of a step of any kind, receives that are posted here, unless they start in groups, and sends that read
  // their memory until then.
  Vector<int> waits_before_posts, posts;
  bool receives_follow = false;  // an ordered transport's receives that start from here on may write to what was in use
  // Compute, barrier and update, in the order in which they happen (an update's own work comes after gather):
  Vector<int> waits;                // sends that read what this step overwrites
  Vector<int> receives;             // needed by this step
  Vector<int> collectives;          // needed by this step, and by none before
  Vector<ZeroFill> zeros;           // then
  Vector<BlockCopy> weight_copies;  // compute: bf16 copies that this step is the first to read; counted with the update
  // Pieces of inputs, or contributions to the output gradient; then the kernel. Barrier: gradients that another rank
  // owns are packed. Update: on the owner received gradients are added, on another rank its values are taken over.
  Vector<BlockCopy> gather;
  Place statistics;  // KernelArguments::statistics
  int statistics_slots = 1;
  bool updates_state = false;  // forward: after it the kernel's states move towards the batch's statistics
  Vector<BlockCopy> pack;      // what goes into send buffers; owner's update: the updated values
  Vector<int> sends;           // unless they start in groups
};

// A block of a parameter. Parts with the same block share it; distinct blocks of one parameter may overlap.
struct ParameterBuffer {
  ParameterId parameter;
  Block block;
  Place weight;          // the master weights; nowhere: they are sharded
  Place copy;            // in bf16, which kernels read then; made by the first task of an iteration that reads it
  Vector<Place> states;  // of those that are trained: the optimizer's; of sharded ones the units have them
  Place read() const { return copy.exists() ? copy : weight; }  // by kernels
};

// One step of the optimizer on a contiguous run of a parameter's block.
struct UpdateRun {
  Place weight, gradient;
  Vector<Place> states;  // the optimizer's
  int64_t elements;
};

// What one of the holders of a unit updates, where that is sharded (synchronization_units.h).
struct ShardPlan {
  int64_t begin = 0, elements = 0;  // in the packed buffer; with one holder all of it
  Vector<Place> states;             // of the optimizer; nowhere: it has none
  // With several holders: where the reduce-scatter receives the sum of the gradients, and the updated values are
  // gathered from.
  Place values;
  // Sharded in rounds, with several holders: the weights, packed. All of them, which updated values are gathered into;
  // or sharded too, this shard alone, which they are gathered from.
  Place weights;
  ShardRounds rounds;
  Vector<BlockCopy> updated;        // from the weights there
  Vector<BlockCopy> from_gathered;  // from the packed buffer, where all values are, to the weights
};

// A synchronization unit that this rank holds: gradients lie packed in one buffer; backward writes them there wherever
// it can. Of a unit that another rank owns, the steps have the rest: only `packed` and `gradients` are here.
struct UnitPlan {
  int group = -1;  // index into ProgramPlan::groups; -1: this rank is the only holder, or there is an owner
  Place packed;    // in rounds: nowhere, the steps have it
  int64_t elements = 0;
  // Of the unit's pieces, within the packed buffer: dense, summed over the devices; in rounds: nowhere.
  Vector<Place> gradients;
  Vector<ZeroFill> zeros;
  Vector<BlockCopy> pack;
  Vector<UpdateRun> updates;
  Vector<BlockCopy> spread;  // updated pieces to the other local buffers that contain them
  ShardPlan shard;           // empty: not sharded
  bool is_sharded() const { return shard.values.exists(); }
  bool in_rounds() const { return shard.weights.exists(); }
  bool has_sharded_weights() const { return in_rounds() && shard.rounds.parameters; }
};

// A reduction of statistics. Summed: a single local part writes to `common`, of several ones each has its own sums.
// Gathered: each writes to its own slot of `common`, and those of other ranks are cleared.
struct ReductionPlan {
  int group = -1;  // as above; -1: this rank holds all parts
  Place common;
  int64_t elements = 0;
  Vector<Place> parts;
  Vector<ZeroFill> zeros;
  bool in_evaluation = false;
};

struct InputBuffer {
  TensorId tensor;
  Block block;
  Place memory;  // in the backend's storage
};

struct LossBuffer {
  OperatorId op;
  Block block;  // of the output "loss", and of "correct" where there is one
  Place loss, correct;
};

struct ProgramPlan {
  Vector<BufferPlan> buffers;
  MemoryPlan memory;           // of the arena
  Vector<Vector<int>> groups;  // of ranks that this one has a collective with, ascending
  Vector<PartPlan> parts;      // by (operator, part)
  int kernels = 0;             // of the parts: PartPlan::kernel is below
  Vector<StepPlan> steps;
  Vector<TransferPlan> sends, receives;
  Vector<TransferGroup> transfer_groups;  // for an ordered transport
  Vector<ReductionPlan> reductions;
  Vector<CollectivePlan> collectives;
  Vector<UnitPlan> units;  // by unit of the task graph; empty where this rank is no holder
  Vector<ParameterBuffer> parameters;
  Vector<InputBuffer> inputs;
  Vector<LossBuffer> losses;
  Place conversions;  // scratch memory of the kernels of operators in bf16 (operators/conversion.h)
};

struct PlanSettings {
  int rank = 0;
  int state_buffers = 0;  // of the optimizer
  // Of the transport (transport.h):
  bool follows_backend = false;
  bool ordered = false;
  TransferBuffers transfer_buffers = TransferBuffers::preallocated;
};

// `tasks` are those of the rank, or of all; `order` is a total order of them (order_by_names, default_issue_order).
ProgramPlan plan_program(TaskGraphBuilder& builder, const Strategy& strategy, const TaskGraph& tasks,
                         const Vector<int>& order, const PlanSettings& settings);

}  // namespace ff
