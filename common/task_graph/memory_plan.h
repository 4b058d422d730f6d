// Where a device keeps what lives within one iteration: the blocks of activations and of their gradients, and the
// buffers of transfers. One arena a device, laid out before the first iteration: two buffers share memory when the
// lives of both, in the device's issue order, do not meet. The executor allocates exactly this and ffsearch reports it.
//
// Lives, in steps (a device's tasks without transfers, in issue order; `end` is after the last one):
//   output                forward ... that of its operator, or backward if that reads it; of every consumer that reads
//                         it in place likewise; or until a consumer has copied from it
//                         Of a recomputed operator (recomputation.h): of what reads it in forward alone
//   recomputed_output     recompute ... likewise, of its operator's backward and of recomputed consumers
//   input                 assembled from pieces: forward of its operator, ... backward if that reads it, or recompute
//   input_gradient        backward of its operator ... backward of the producer, which reads it in place or adds it up
//   output_gradient       contributions added up: backward of its operator
//   packed_*              what is sent, if it is a part of a buffer: the task that packs it ... sent
//   received_*            what is received, if it is a part of a buffer: posted ... the task that copies from it
// What is sent in place lives until sent, what is received in place from when its receive is posted. Preallocated,
// receives are posted at step 0, and no send is waited for before the end, when its memory is written again.
// That holds for every transport, on streams of their own too: they start after all work of the iteration before and
// are over before the next one writes. On-demand buffers keep transfers' memory about as long as it is in use:
//   posted                in front of the last step that precedes the transfer in the issue order
//   sent                  after `steps_to_send` steps that follow it there: what is written there later waits for the
//                         send. The receive is posted at a step that comes earlier in the issue order than any step
//                         that waits so; hence nothing waits for ever.
// In their issue order an activation goes where it is needed (issue_order.h). So an operator with several parts on a
// device receives what one part needs while another one computes, instead of all that they need, and sends its gradient
// likewise.
// What goes through a collective of an edge (collectives.h) is read or written from the collective's step to the first
// task that waits for it here; a device has one buffer to send from and one to receive into where that packs.
// Where parameters have owners (Synchronization::parameter_server), their transfers share the arena with the
// activations, of which none is needed any more after the barrier:
//   received_parameter_gradient   barrier ... the owner's update
//   packed_parameter_values       the owner's update ... end
//   received_parameter_values     barrier ... the holder's update
// What sharded units (sharded_units.h) have whole:
//   packed_parameter_gradient     the first backward task of the round that writes there ... the first step that waits
//                                 for its reduce-scatter
//   gathered_parameters           the all-gather ... the last task that reads them
//
// Where inputs are gathered again, which ffexec does not do (InputsOfCollectives), an input that an all-gather
// assembles lives until forward only, and:
//   input_gathered_again          the part's recomputation, else its backward pass ... the last task that reads it
//
// Not here, since they live longer or belong to others: parameters with velocity and gradient, inputs of the graph,
// losses, statistics, and kernels' workspaces.
#pragma once

#include "common/task_graph/task_graph.h"
#include "common/vector.h"

namespace ff {

constexpr int steps_to_send = 2;

struct BufferKey {
  enum class Kind : uint8_t {
    output,
    input,
    input_gradient,
    output_gradient,
    packed_activation,
    received_activation,
    packed_gradient,
    received_gradient,
    received_parameter_gradient,
    packed_parameter_values,
    received_parameter_values,
    recomputed_output,
    packed_parameter_gradient,
    gathered_parameters,
    input_gathered_again
  };
  Kind kind;
  int32_t what;  // operator; packed, received: edge; of parameters: group
  // part; packed, received: number of the pair among those here (TaskGraph::pairs), or of the exchange; of parameters:
  // number of the unit
  int32_t part;
  // Number of the output or input; received_parameter_gradient: whose; of sharded units: Task::round; else 0.
  int32_t slot = 0;
  auto operator<=>(const BufferKey&) const = default;
};

constexpr BufferKey::Kind packed_kind(Direction direction) {
  return direction == Direction::forward ? BufferKey::Kind::packed_activation : BufferKey::Kind::packed_gradient;
}
constexpr BufferKey::Kind received_kind(Direction direction) {
  return direction == Direction::forward ? BufferKey::Kind::received_activation : BufferKey::Kind::received_gradient;
}

struct PlannedBuffer {
  BufferKey key;
  int64_t bytes;
  int first, last;     // steps, both included; `last` may be the number of steps: until the iteration's end
  int64_t offset = 0;  // in the arena, bytes: a multiple of buffer_alignment
  bool lives_with(const PlannedBuffer& other) const { return first <= other.last && other.first <= last; }
};
constexpr int64_t buffer_alignment = 64;  // bytes, as Backend::allocate aligns

struct MemoryPlan {
  Vector<int> steps;              // tasks
  Vector<PlannedBuffer> buffers;  // none is empty; ascending by key
  int64_t arena_bytes = 0;        // 0: not laid out
  int64_t separate_bytes = 0;     // what the buffers would take without sharing
  int64_t live_bytes = 0;         // most that live at once: no arena is smaller

  const PlannedBuffer* find(const BufferKey& key) const;  // null: that one is not needed, or empty
};

// Sets separate_bytes and live_bytes, of the buffers as they are.
void count_bytes(MemoryPlan& plan);

// How long the inputs live that all-gathers assemble: until the last task that reads them, as in ffexec, or once for
// forward and once for backward, with the producers' shards kept in between (Korthikanti et al. 2022, arXiv 2205.05198,
// section 4.2.2).
enum class InputsOfCollectives : uint8_t { kept, gathered_again };

// The plans of `devices`, in their order, from a task graph of all devices or of the one that is asked for. `order` is
// a total order of all its tasks (issue_order_from_names, default_issue_order). Buffers have no offsets yet.
Vector<MemoryPlan> plan_lives(TaskGraphBuilder& builder, const Strategy& strategy, const TaskGraph& tasks,
                              const Vector<int>& order, const Vector<DeviceId>& devices, TransferBuffers buffers,
                              InputsOfCollectives inputs = InputsOfCollectives::kept);

// Gives offsets to the buffers of the plans whose `chosen` is true; empty: of all. That takes most of the time.
void lay_out(Vector<MemoryPlan>& plans, const Vector<bool>& chosen = {});

// Both, of all `devices`.
Vector<MemoryPlan> plan_memory(TaskGraphBuilder& builder, const Strategy& strategy, const TaskGraph& tasks,
                               const Vector<int>& order, const Vector<DeviceId>& devices, TransferBuffers buffers);

// Offsets for `buffers` such that no two that live together overlap; returns the arena's bytes. Greedy by size, with
// the smallest gap that fits: Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference, 2020 (arXiv
// 2001.03288), section 5.
int64_t assign_offsets(Vector<PlannedBuffer>& buffers);

}  // namespace ff
