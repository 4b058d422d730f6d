// Duration and resources of every task of a task graph.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "common/task_graph/task_graph.h"
#include "common/vector.h"
#include "search/cost/communication.h"
#include "search/cost/gradient_buckets.h"
#include "search/cost/kernel_costs.h"
#include "search/cost/replicas.h"

namespace ff {

struct CostCounts {
  int64_t profile = 0, measured = 0, analytic = 0;
};

// Caches what depends on an operator's degrees. Not thread-safe: one a thread; several can share one KernelCosts.
class TaskCostModel {
 public:
  // `replicas`: among whom parameters are also synchronized; null: among the devices of `topology` alone.
  TaskCostModel(const Graph& graph, const Topology& topology, KernelCosts& kernels, const Replicas* replicas = nullptr);

  TaskCosts costs(const TaskGraph& tasks, const Strategy& strategy);

  // One part on a device model. Phases that the operator does not have cost nothing.
  struct PartCost {
    KernelCost forward{0, CostSource::analytic}, backward{0, CostSource::analytic};
    KernelCost forward_statistics{0, CostSource::analytic}, backward_statistics{0, CostSource::analytic};
    Nanoseconds all_forward() const { return forward_statistics.ns + forward.ns; }
    Nanoseconds all_backward() const { return backward_statistics.ns + backward.ns; }
  };
  // Of all parts; few of them differ.
  struct PartCosts {
    Vector<PartCost> distinct;
    Vector<uint16_t> which;  // [part]; empty: all alike
    const PartCost& operator[](int part) const { return distinct[which.empty() ? 0 : which[part]]; }
  };
  const PartCost& part_cost(OperatorId op, const Degrees& degrees, int part, int model) {
    return part_costs(op, degrees, model)[part];
  }
  const PartCosts& part_costs(OperatorId op, const Degrees& degrees, int model);  // holds until the next call

  // Where the kernel costs of this strategy came from, one count a compute task.
  CostCounts count_sources(const Strategy& strategy);

  // Time of a compute task's copies, and of an update of so many bytes; both 0 for 0 bytes.
  Nanoseconds copy_ns(int64_t bytes, int model);
  Nanoseconds update_ns(int64_t bytes, int model);  // of f32 weights, with the copies that kernels read
  // Of a holder's update task, and of a barrier that packs so many bytes; 1 at least, as every task.
  Nanoseconds update_ns(const HolderWork& work, int model) {
    return update_ns(work.updated, model) + copy_ns(work.copied, model);
  }
  Nanoseconds barrier_ns(int64_t packed_bytes, int model) {
    return std::max<Nanoseconds>(1, copy_ns(packed_bytes, model));
  }
  CommunicationModel& communication() { return communication_; }
  const KernelUse& use_of(OperatorId op) const { return uses_[op]; }

 private:
  static constexpr size_t most_cached_parts = size_t{1} << 26;  // 128 MB

  PartCost cost_of(OperatorId op, const Block& part, const KernelUse& use, int model);
  Nanoseconds duration(const Task& task, const Strategy& strategy);
  int64_t exchanged_bytes(const TaskGraph& graph, const Task& task) const;
  // Adds to the recomputation of parts what is exchanged for them forward.
  void repeat_exchanges(const TaskGraph& graph, TaskCosts& costs) const;
  int64_t gathered_logits_bytes(const TaskGraph& graph, const Task& task, const Strategy& strategy) const;
  // Of a unit with sharded state, as the framework's conventions have it.
  struct Sharing {
    double broadcasts = 0;  // where parameters have whole owners: how many this unit's share of them is
    double updated = 1;     // what the busiest holder updates, over an equal share among all holders
  };
  Vector<Sharing> sharing_of(const TaskGraph& tasks) const;  // [unit]
  bool is_exchanged_already(const Task& task) const;
  bool is_between_stages(const Task& task, const Strategy& strategy) const;
  struct Exchange;  // of tensor parallelism, within a stage
  std::optional<Exchange> exchange_of(const TaskGraph& graph, const Task& task, const Strategy& strategy) const;
  double product_ns(OperatorId product, const Exchange& exchange, const Strategy& strategy);
  void hide_behind_product(const Exchange& exchange, const Strategy& strategy, CommunicationCost& cost);
  void hide_behind_weight_gradients(const Exchange& exchange, const Strategy& strategy, CommunicationCost& cost);
  void hide_tensor_parallel(const TaskGraph& graph, const Task& task, const Strategy& strategy,
                            CommunicationCost& cost);
  // All that simulated holders of parameters stand for, ascending; by the first of these the simulated one; and what
  // their collectives cost: by kind, bytes and number of broadcasts.
  struct HoldersOfAll {
    Vector<DeviceId> all;
    std::unordered_map<DeviceId, DeviceId> simulated;
    std::map<std::tuple<CollectiveKind, int64_t, double>, CommunicationCost> costs;
  };
  void synchronize(const TaskGraph& tasks, const Task& task, CommunicationCost& cost);
  CommunicationCost of_simulated(const TaskGraph& tasks, const Task& task, int64_t bytes, const HoldersOfAll& holders);
  void synchronize_replicas(const TaskGraph& tasks, const Task& task, int64_t bytes, CommunicationCost& cost);
  void exchange(CommunicationModel& among, const TaskGraph& tasks, const Task& task, const Vector<DeviceId>& holders,
                int64_t bytes, CommunicationCost& cost);

  const Graph& graph_;
  const Topology& topology_;
  KernelCosts& kernels_;
  CommunicationModel communication_;
  const Replicas* const replicas_;
  std::map<Vector<DeviceId>, HoldersOfAll> holders_of_all_;  // by the simulated holders
  const Vector<Edge> edges_;
  Vector<KernelUse> uses_;             // by operator
  Vector<bool> second_of_gate_;        // [operator]: the later product of a gated layer
  Vector<bool> read_by_gate_;          // [operator]: the products of a gated layer alone read its output
  Vector<Sharing> sharing_;            // [unit] of the task graph that is priced
  Vector<BucketShare> bucket_shares_;  // likewise
  Vector<std::unordered_map<Degrees, PartCosts, DegreesHash>> cache_;  // [model and operator]
  size_t cached_parts_ = 0;
  std::unordered_map<int64_t, Nanoseconds> copies_, updates_;  // by bytes and model
};

}  // namespace ff
