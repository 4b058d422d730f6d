#include "common/task_graph/issue_order.h"

#include <catch2/catch.hpp>

#include "tests/support/graph_text.h"

using namespace ff;

namespace {

// fc1 by sample on devices 0 and 1, all else on device 1: the first half of fc1's output is sent to device 1, its
// gradient back.
struct TwoDevices {
  Graph graph = parse_graph(parse_json(two_linear_layers, "graph"));
  Strategy strategy = {{{2, 1, 1}, {0, 1}}, {{1, 1, 1}, {1}}, {{1, 1}, {1}}};
  TaskGraphBuilder builder{graph};
  TaskGraph tasks = builder.build(strategy);

  // "forward0 activation0 forward1": kinds, and of tasks on a device which.
  std::string text(const Vector<int>& order) const {
    std::string result;
    for (const int t : order) {
      const Task& task = tasks.tasks[t];
      result += (result.empty() ? "" : " ") + std::string(to_string(task.kind));
      if (task.device >= 0) result += std::to_string(task.device);
    }
    return result;
  }
};

const std::string backward_text =
    " backward1 backward1 gradient1 update1 backward0 backward1 synchronization update0 update1";

}  // namespace

TEST_CASE("transfers are issued right after what they send, with on-demand buffers right before its reader") {
  const TwoDevices two;
  CHECK(two.text(default_issue_order(two.builder, two.tasks)) ==
        "forward0 activation0 forward1 forward1 forward1" + backward_text);
  CHECK(two.text(default_issue_order(two.builder, two.tasks, TransferBuffers::on_demand)) ==
        "forward0 forward1 activation0 forward1 forward1" + backward_text);
}

TEST_CASE("an order of all tasks is changed to one for on-demand buffers") {
  const TwoDevices two;
  const Vector<int> order = default_issue_order(two.builder, two.tasks);
  CHECK(two.text(on_demand_issue_order(two.tasks, order)) ==
        "forward0 forward1 activation0 forward1 forward1" + backward_text);
}

TEST_CASE("an issue order is written by names of tasks that are no transfers, and read again") {
  const TwoDevices two;
  const Vector<int> order = default_issue_order(two.builder, two.tasks);
  const Vector<std::string> names = issue_order_names(two.builder, two.tasks, order);
  CHECK(names == Vector<std::string>{"fc1/forward/0-1", "fc2/forward/0", "loss/forward/0", "loss/backward/0",
                                     "fc2/backward/0", "fc2/update/0@1", "fc1/backward/0-1", "fc1/synchronization/0",
                                     "fc1/update/0@0-1"});
  CHECK(issue_order_from_names(two.builder, two.tasks, names) == order);
  CHECK(issue_order_to_save(two.builder, two.tasks, order).empty());
}

TEST_CASE("names that contradict the task graph give no order") {
  const TwoDevices two;
  const Vector<std::string> names =
      issue_order_names(two.builder, two.tasks, default_issue_order(two.builder, two.tasks));
  Vector<std::string> late = names, unknown = names, missing = names;
  std::swap(late[0], late[1]);  // fc2 before fc1, which it reads
  unknown[2] = "loss/forward/1";
  missing.pop_back();
  for (const auto& wrong : {late, unknown, missing})
    CHECK(issue_order_from_names(two.builder, two.tasks, wrong).empty());
}
