// Parameters that one rank updates for all that hold them: whatever the network and the strategy, the owner gets each
// other holder's gradients and sends each the values, and nobody else updates.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "common/task_graph/issue_order.h"
#include "executor/plan/program_plan.h"
#include "tests/support/random_network.h"

namespace ff {
namespace {

using Transfer = std::tuple<TaskKind, int, int, int64_t>;  // kind, from, to, bytes

// Of one unit, all transfers of its gradients and values, as the rank's plan has them.
std::multiset<Transfer> transfers_of(const TaskGraph& tasks, const ProgramPlan& plan, int rank, int unit) {
  std::multiset<Transfer> found;
  for (const bool sends : {true, false})
    for (const TransferPlan& one : sends ? plan.sends : plan.receives) {
      const Task& task = tasks.tasks[one.task];
      if (is_parameter_transfer(task.kind) && task.unit == unit)
        found.emplace(task.kind, sends ? rank : one.peer, sends ? one.peer : rank, one.bytes);
    }
  return found;
}

// Elements of the unit's weights that the updates of a step write, gathered values and zeros of its messages.
struct Written {
  int64_t updated = 0, taken_over = 0, sent = 0;
};
Written written(const ProgramPlan& plan, int unit) {
  Written result;
  for (const UpdateRun& run : plan.units[unit].updates) result.updated += run.elements;
  for (const StepPlan& step : plan.steps) {
    if (step.kind != TaskKind::update || step.unit != unit) continue;
    for (const BlockCopy& copy : step.gather) result.taken_over += copy.add ? 0 : copy.region.volume();
    for (const BlockCopy& copy : step.pack) result.sent += copy.region.volume();
    for (const ZeroFill& zero : step.zeros) result.sent += zero.elements;
  }
  return result;
}

}  // namespace

TEST_CASE("owners: one rank of each unit updates it, and all others send gradients and take over values") {
  int units = 0, of_several = 0;
  for (uint32_t seed = 0; seed < 250; ++seed) {
    INFO("seed " << seed);
    RandomSource random(seed);
    const Graph graph = random_graph(random);
    const int ranks = 2 + static_cast<int>(seed % 5);
    const Strategy strategy = random_strategy(graph, ranks, random);
    TaskGraphBuilder builder(graph, {.synchronization = Synchronization::parameter_server});
    for (int rank = 0; rank < ranks; ++rank) {
      INFO("rank " << rank);
      const TaskGraph tasks = builder.build(strategy, rank);
      const ProgramPlan plan =
          plan_program(builder, strategy, tasks, default_issue_order(builder, tasks), {.rank = rank});
      for (const int u : tasks.units.indices()) {
        const SynchronizationUnit& unit = tasks.units[u];
        if (!std::binary_search(unit.holders.begin(), unit.holders.end(), rank)) continue;
        ++units;
        const int64_t packed_elements = packed(unit).elements, elements = unit.bytes / element_bytes;
        std::multiset<Transfer> expected;
        for (const DeviceId holder : unit.holders)
          if (holder != unit.owner && (rank == unit.owner || rank == holder)) {
            expected.emplace(TaskKind::parameter_gradient, holder, unit.owner, packed_elements * element_bytes);
            expected.emplace(TaskKind::parameter_values, unit.owner, holder, packed_elements * element_bytes);
          }
        CHECK(transfers_of(tasks, plan, rank, u) == expected);
        const Written found = written(plan, u);
        if (rank == unit.owner) {
          CHECK(found.updated == elements);
          CHECK(found.taken_over == 0);
          // With the gaps between pieces every element of the message is written.
          CHECK(found.sent == (unit.holders.size() > 1 ? packed_elements : 0));
        } else {
          CHECK(found.updated == 0);
          CHECK(found.taken_over >= elements);  // a piece may be in several local buffers
          CHECK(found.sent == 0);
        }
        of_several += unit.holders.size() > 1;
      }
    }
  }
  CHECK(units > 2000);
  CHECK(of_several > 500);
}

}  // namespace ff
