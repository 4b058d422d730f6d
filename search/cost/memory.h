// What a strategy needs of each device's memory: buffers of parameters (common/task_graph/parameter_buffers.h),
// workspaces of kernels, inputs of the graph, statistics and losses, which have memory of their own, and activations,
// their gradients and buffers of transfers, which share an arena (common/task_graph/memory_plan.h).
//
// Exactly, as the executor allocates it, for a given issue order; or, for the search's inner loop, an estimate that
// needs no order and follows a change of one operator: what is kept from the forward to the backward pass lives at once
// between the two and is added up; everything else of the arena lives for a few tasks, and counts with what the task
// that needs most of it needs. So it is near what on-demand buffers need in a sensible order. Where
// parameters have owners, what is sent to them and back lives at once, when nothing else of the arena does.
#pragma once

#include <algorithm>
#include <map>

#include "common/task_graph/memory_plan.h"
#include "common/task_graph/sharded_units.h"
#include "common/vector.h"
#include "search/cost/conventions.h"

namespace ff {

class Topology;
Vector<bool> gpus_of(const Topology& topology);  // by device

// Bytes by device, of all operators or as one changes. Not thread-safe; the builder must outlive it.
class MemoryModel {
 public:
  // `state_buffers`: of the optimizer (optimizer.h). `gpus`, by device: their libraries have scratch memory of their
  // own, which nobody predicts; empty: all devices are processors.
  // `framework`: what kernels keep is what those of training frameworks do (cost/conventions.h), not ffexec's.
  MemoryModel(TaskGraphBuilder& builder, int device_count, int state_buffers = 0, Vector<bool> gpus = {},
              const FrameworkConventions& framework = {});

  Vector<int64_t> bytes(const Strategy& strategy);  // the estimate
  // Of that strategy, by device: what parameters alone take, and what their owners exchange. No allocation is smaller.
  const Vector<int64_t>& of_parameters() const { return at_end_; }
  Vector<int64_t> of_parameters(const Strategy& strategy);  // without the estimate
  // What the executor allocates. `tasks` is the strategy's task graph, `order` a total order of its tasks.
  Vector<int64_t> bytes(const Strategy& strategy, const TaskGraph& tasks, const Vector<int>& order,
                        TransferBuffers buffers);
  // By kind and device; 0 for devices that the task graph is not of. Arenas count with what lives at once until they
  // are laid out: a few percent less at most, and found much sooner.
  struct Needs {
    Vector<int64_t> parameters;  // with gradients and the optimizer's state
    Vector<int64_t> other;       // workspaces, conversions, inputs of the graph, losses, statistics
    Vector<int64_t> scratch;     // that kernels use in turn
    Vector<MemoryPlan> plans;    // of the arenas
    // Workspaces of operators that are not recomputed, part of `other`: each micro-batch in flight has its own.
    Vector<int64_t> kept_workspaces;
    // Inputs of the graph, losses and statistics of the last micro-batch, part of `other`: each has its own.
    Vector<int64_t> of_last_micro_batch;
    int64_t bytes(DeviceId device) const {
      return parameters[device] + other[device] + scratch[device] +
             std::max(plans[device].arena_bytes, plans[device].live_bytes);
    }
    Vector<int64_t> bytes() const;  // by device
  };
  Needs needs(const Strategy& strategy, const TaskGraph& tasks, const Vector<int>& order, TransferBuffers buffers);
  // What the kernel of a part keeps and uses, as it counts in `other`.
  int64_t workspace_bytes(OperatorId op, const Degrees& degrees, int part) {
    return part_bytes(op, degrees)[part].workspace;
  }

  // Follows a strategy: the estimate after a change of some operators, for the work of what lies around them.
  void reset(const Strategy& strategy);
  // `changed` differs from the strategy followed in these operators alone.
  const Vector<int64_t>& change(const Vector<Change>& changes, const Strategy& changed);
  // No configuration of these operators needs less: the estimate without what their configurations enter.
  const Vector<int64_t>& without(const Vector<OperatorId>& operators);
  void undo();  // the last change

 private:
  Vector<DeviceId> devices_of(const TaskGraph& tasks) const;
  struct Need {
    DeviceId device;
    int64_t bytes;
    // While one task of the operator, on the edge, or of the tensor's producer runs; of a group: at the end, besides
    // the parameters; with shards, while a unit of it is whole.
    int64_t on_demand = 0;
    int64_t scratch = 0;  // of the part's kernel
    int32_t part = 0;     // of statistics: one of the operator's parts that have them
  };
  using NeedList = Vector<Need>;  // devices may repeat
  // A strategy's memory is the sum over operators, edges, tensors and parameter groups, in this order, and the largest
  // on-demand needs: of an operator, of a tensor, and of two edges, since data is received while other is read; with
  // shards, that of a group for each unit in flight. And the largest scratch memory of a kernel.
  struct Item {
    enum class Kind : uint8_t { operation, edge, tensor, group } kind;
    int index;
  };
  size_t number(Item item) const;
  NeedList needs_of(Item item, const Strategy& strategy);
  NeedList needs_of_operator(OperatorId op, const Strategy& strategy);
  NeedList needs_of_statistics(OperatorId op, const Strategy& strategy) const;
  NeedList needs_of_edge(int edge, const Strategy& strategy);
  void add_gathered_again(int edge, const Vector<Collective>& collectives, const Strategy& strategy,
                          Vector<int64_t>& inputs, NeedList& needs);
  Vector<int64_t> buffers_of_collectives(int edge, const Vector<Collective>& collectives, const Strategy& strategy);
  NeedList needs_of_tensor(TensorId tensor, const Strategy& strategy);
  NeedList needs_of_group(int group, const Strategy& strategy);
  bool is_framework_in_bf16() const;
  int64_t gradient_sum_bytes(int64_t elements) const;
  void add_gradient_sums(int group, const Strategy& strategy, NeedList& needs);
  void find_whole_layers();
  int64_t whole_bytes(int group, int64_t own) const {
    return static_cast<int64_t>(whole_over_own_[group] * static_cast<double>(own));
  }
  void add_shards(int group, const Strategy& strategy, const ShardRounds& rounds, NeedList& needs);
  void add_exchange_with_owners(int group, const Strategy& strategy, NeedList& needs);
  void add(const NeedList& needs, Item::Kind kind, int64_t sign);
  void remove_around(OperatorId op);
  const Vector<int64_t>& total();

  // What depends on an operator's degrees alone.
  struct BytesOfPart {
    int64_t fixed = 0;                       // graph inputs, losses
    int64_t workspace = 0, scratch = 0;      // of kernels; scratch memory is used in turn
    int64_t conversion = 0;                  // scratch memory too (operators/conversion.h)
    int64_t activations = 0, gradients = 0;  // of all outputs but losses; of all inputs; aligned
    Vector<int64_t> inputs, outputs;         // aligned
  };
  // Of all parts; few of them differ.
  struct PartBytes {
    Vector<BytesOfPart> distinct;
    Vector<int> which;  // [part]
    // [parameter][part, modulo the parts of one sample interval]: number of the block, elements.
    Vector<Vector<std::pair<int, int64_t>>> parameters;
    const BytesOfPart& operator[](int part) const { return distinct[which[part]]; }
    int count() const { return which.count(); }
    const std::pair<int, int64_t>& parameter(int number, int part) const {
      return parameters[number][part % parameters[number].count()];
    }
  };
  const PartBytes& part_bytes(OperatorId op, const Degrees& degrees);
  void find_kept_in_fp8();
  void halve_kept_in_fp8(const TaskGraph& tasks, MemoryPlan& plan) const;
  // Without sequence parallelism: how often its share of the length a device keeps of what an operator writes.
  int64_t replicas_of_output(OperatorId id, const Block& part) const;
  void multiply_replicated(const Strategy& strategy, MemoryPlan& plan) const;
  BytesOfPart bytes_of_part(OperatorId op, const Block& part) const;
  int64_t scratch(const BytesOfPart& bytes, DeviceId device) const;
  int block_number(ParameterId parameter, const Block& block);

  const Graph& graph() const { return builder_.graph(); }

  TaskGraphBuilder& builder_;
  const int state_buffers_;
  const Vector<bool> gpus_;
  const FrameworkConventions framework_;
  Vector<bool> kept_in_fp8_;           // [tensor]: for backward, where only products in fp8 read it there
  Vector<int64_t> kept_weight_bytes_;  // [parameter]: of an element, where a framework keeps it in other types too
  Vector<double> whole_over_own_;      // [group]: elements that are whole with it, over its own
  Vector<Vector<int>> edges_of_tensor_, groups_of_;
  Vector<Vector<Item>> items_around_;                     // [operator]: what its configuration enters
  Vector<std::map<Degrees, PartBytes>> part_bytes_;       // [operator]
  Vector<std::map<Vector<int64_t>, int>> block_numbers_;  // [parameter]
  Vector<int64_t> sums_;                                  // by device, without on-demand needs
  Vector<int64_t> at_end_;                                // by device: parameters, and what their owners exchange
  // by device, of operators, edges, tensors, and groups with shards, and of scratch memory: bytes -> how many
  static constexpr int of_scratch = 4;
  Vector<Array<std::map<int64_t, int>, 5>> on_demand_;
  Vector<int64_t> bytes_;
  Vector<NeedList> needs_;
  Vector<std::pair<Item, NeedList>> undo_;
  Vector<int64_t> changed_;  // [item]: the last change that it was in
  int64_t changes_ = 0;
};

}  // namespace ff
