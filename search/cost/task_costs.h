// Duration and resources of every task of a task graph.
#pragma once

#include <array>
#include <map>
#include <vector>

#include "common/task_graph/task_graph.h"
#include "search/cost/communication.h"
#include "search/cost/kernel_costs.h"

namespace ff {

struct CostCounts {
  int64_t profile = 0, measured = 0, analytic = 0;
};

// Caches what depends on an operator's degrees. Not thread-safe: one a thread; several can share one KernelCosts.
class TaskCostModel {
 public:
  TaskCostModel(const Graph& graph, const Topology& topology, KernelCosts& kernels);

  TaskCosts costs(const TaskGraph& tasks, const Strategy& strategy);

  // One part on a device model. Phases that the operator does not have cost nothing.
  struct PartCost {
    KernelCost forward{0, CostSource::analytic}, backward{0, CostSource::analytic};
    KernelCost forward_statistics{0, CostSource::analytic}, backward_statistics{0, CostSource::analytic};
    Nanoseconds all_forward() const { return forward_statistics.ns + forward.ns; }
    Nanoseconds all_backward() const { return backward_statistics.ns + backward.ns; }
  };
  const PartCost& part_cost(OperatorId op, const std::vector<int>& degrees, int part, int model);
  const std::vector<PartCost>& part_costs(OperatorId op, const std::vector<int>& degrees, int model);  // [part]

  // Where the kernel costs of this strategy came from, one count a compute task.
  CostCounts count_sources(const Strategy& strategy);

  // Time of a compute task's copies, and of an update of so many bytes; both 0 for 0 bytes.
  Nanoseconds copy_ns(int64_t bytes, int model);
  Nanoseconds update_ns(int64_t bytes, int model);
  CommunicationModel& communication() { return communication_; }

 private:
  struct Cached {
    std::vector<std::vector<PartCost>> by_model;  // [model][part]; empty until asked for
  };
  Nanoseconds duration(const Task& task, const Strategy& strategy);

  const Graph& graph_;
  const Topology& topology_;
  KernelCosts& kernels_;
  CommunicationModel communication_;
  std::map<std::string, int64_t> shared_bytes_;            // by operator type: see KernelUse
  std::vector<std::map<std::vector<int>, Cached>> cache_;  // by operator
  std::map<std::pair<int, int64_t>, Nanoseconds> copies_, updates_;
};

}  // namespace ff
