#include "common/task_graph/sharded_units.h"

#include <catch2/catch.hpp>
#include <set>

#include "tests/support/graph_text.h"

namespace ff {
namespace {

// Layers of weights with sharded parameters on devices 0 and 1, half of the samples each: as wide as `widths`, from 64
// channels on. Operators have their numbers.
class Sharded {
 public:
  explicit Sharded(const Vector<int>& widths, Vector<int> sharded_layers = {})
      : graph_(network(widths)),
        builder_(graph_, {.synchronization = Synchronization::sharded_parameters}, 1, std::move(sharded_layers)) {
    for (int layer = 0; layer < widths.count(); ++layer) strategy_.push_back({{2, 1, 1}, {0, 1}});
    strategy_.push_back({{2, 1}, {0, 1}});
    tasks = builder_.build(strategy_);
  }

  // Operators that the gathering of this one waits for in a direction, without other gatherings.
  std::set<OperatorId> before_gathering(OperatorId op, Direction direction) const {
    const TaskKind kind = direction == Direction::forward ? TaskKind::forward : TaskKind::backward;
    std::set<OperatorId> result;
    for (const int t : tasks.tasks.indices())
      if (tasks.tasks[t].kind == kind && releases(t, TaskKind::parameter_all_gather, op, static_cast<int>(direction)))
        result.insert(tasks.tasks[t].op);
    return result;
  }
  // Operators whose collective of this kind is in front of that of this one.
  std::set<OperatorId> with(OperatorId op, TaskKind kind) const {
    std::set<OperatorId> result;
    for (const int t : tasks.tasks.indices())
      if (tasks.tasks[t].kind == kind && releases(t, kind, op, tasks.tasks[t].round)) result.insert(op_of(t));
    return result;
  }

  TaskGraph tasks;

 private:
  static Graph network(const Vector<int>& widths) {
    std::string layers, input = "x";
    for (const int layer : widths.indices()) {
      const std::string name = "fc" + std::to_string(layer);
      layers += R"({"name":")" + name + R"(","type":"linear","inputs":[")" + input +
                R"("],"attributes":{"bias":false,"out_features":)" + std::to_string(widths[layer]) + "}},";
      input = name;
    }
    return parse_graph(parse_json(graph_text(layers + R"({"name":"loss","type":"softmax_cross_entropy","inputs":[")" +
                                                 input + R"(","label"]})",
                                             R"({"name":"x","shape":["batch",64],"dtype":"f32"})"),
                                  "graph"),
                       4);
  }
  OperatorId op_of(int task) const { return tasks.units[tasks.tasks[task].unit].pieces[0]->users[0].first; }
  bool releases(int task, TaskKind kind, OperatorId op, int round) const {
    for (int s = tasks.successor_begin[task]; s < tasks.successor_begin[task + 1]; ++s) {
      const Task& after = tasks.tasks[tasks.successors[s]];
      if (after.kind == kind && after.round == round && op_of(tasks.successors[s]) == op) return true;
    }
    return false;
  }

  const Graph graph_;
  TaskGraphBuilder builder_;
  Strategy strategy_;
};

using Operators = std::set<OperatorId>;

}  // namespace

TEST_CASE("of units with sharded parameters two are in flight") {
  const Sharded alike({64, 64, 64, 64});
  for (const OperatorId op : {0, 1}) CHECK(alike.before_gathering(op, Direction::forward).empty());
  for (const OperatorId op : {2, 3}) CHECK(alike.before_gathering(op, Direction::forward) == Operators{op - 2});
  for (const OperatorId op : {0, 1}) CHECK(alike.before_gathering(op, Direction::backward) == Operators{op + 2});
}

TEST_CASE("layers that are sharded at once are gathered and reduced with their first unit, two at a time") {
  const Sharded layers({64, 2, 64, 64, 64}, {0, 1, 1, 2, 2, 2});
  CHECK(layers.tasks.gathered_with == Vector<int32_t>{0, 1, 1, 3, 3});
  for (const OperatorId op : {1, 2}) CHECK(layers.before_gathering(op, Direction::forward).empty());
  for (const OperatorId op : {3, 4}) CHECK(layers.before_gathering(op, Direction::forward) == Operators{0});
  CHECK(layers.before_gathering(0, Direction::backward) == Operators{3});
  for (const TaskKind kind : {TaskKind::parameter_all_gather, TaskKind::synchronization}) {
    for (const OperatorId op : {0, 1, 3}) CHECK(layers.with(op, kind).empty());
    CHECK(layers.with(2, kind) == Operators{1});
    CHECK(layers.with(4, kind) == Operators{3});
  }
}

}  // namespace ff
