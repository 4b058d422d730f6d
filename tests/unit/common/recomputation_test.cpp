#include "common/recomputation.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "common/task_graph/issue_order.h"
#include "common/task_graph/memory_plan.h"
#include "tests/support/message_of.h"

namespace ff {
namespace {

// Four layers, whose backward reads inputs and outputs, and a loss.
Graph four_layers() {
  std::string operators;
  std::string input = "x";
  for (const char* name : {"a", "b", "c", "d"}) {
    operators += R"({"name":")" + std::string(name) + R"(","type":"linear","inputs":[")" + input +
                 R"("],"attributes":{"out_features":8,"activation":"relu"}},)";
    input = name;
  }
  return parse_graph(parse_json(
      R"({"format":"ffgraph/1","name":"layers","batch_size":8,"inputs":[{"name":"x","shape":["batch",8],"dtype":"f32"},
      {"name":"label","shape":["batch"],"dtype":"i32"}],"operators":[)" +
          operators + R"({"name":"loss","type":"softmax_cross_entropy","inputs":["d","label"]}]})",
      "graph"));
}

// A graph's tasks without transfers on one device, in the default order.
Vector<std::string> steps(const Graph& graph, const Strategy& strategy, const Vector<std::string>& recompute,
                          MemoryPlan* memory = nullptr) {
  TaskGraphBuilder builder(graph, {.recompute = recompute});
  const TaskGraph tasks = builder.build(strategy);
  MemoryPlan plan = std::move(plan_memory(builder, strategy, tasks, default_issue_order(builder, tasks), {0},
                                          TransferBuffers::preallocated)[0]);
  Vector<std::string> names;
  for (const int task : plan.steps)
    if (is_compute(tasks.tasks[task].kind)) names.push_back(task_name(builder, tasks, task));
  if (memory) *memory = std::move(plan);
  return names;
}

}  // namespace

TEST_CASE("operators that are recomputed, by names and patterns") {
  const Graph graph = four_layers();
  CHECK(recomputed_operators(graph, {}) == Vector<bool>{false, false, false, false, false});
  CHECK(recomputed_operators(graph, {"*"}) == Vector<bool>{true, true, true, true, false});
  CHECK(recomputed_operators(graph, {"b", "d"}) == Vector<bool>{false, true, false, true, false});
  CHECK(message_of<InputError>([&] { recomputed_operators(graph, {"loss"}); }) ==
        "operator \"loss\" cannot be recomputed: a loss has no output that backward waits for");
  CHECK(message_of<InputError>([&] { recomputed_operators(graph, {"x"}); }) ==
        "\"x\" is an input of the graph, which is there already; operators are recomputed");
  CHECK(message_of<InputError>([&] { recomputed_operators(graph, {"layer*"}); }) ==
        "no operator matches \"layer*\"; known: a, b, c, d, loss");
  CHECK(message_of<InputError>([&] { recomputed_operators(graph, {"lss"}); }) ==
        "no operator is called \"lss\"; did you mean \"loss\"?");
}

TEST_CASE("full recomputation leaves out what losses alone read: their backward follows at once") {
  const Graph graph = four_layers();
  const Vector<bool> recomputed = recomputed_operators(graph, full_recomputation(graph));
  CHECK(std::count(recomputed.begin(), recomputed.end(), true) > 0);
  CHECK(!recomputed[3]);  // d
}

// A transformer's second half of a layer: the sum needs neither of its inputs for backward, the activation needs its.
TEST_CASE("what backward has no use for is not computed again") {
  const Graph graph = parse_graph(parse_json(
      R"({"format":"ffgraph/1","name":"half","batch_size":8,"inputs":[{"name":"x","shape":["batch",8],"dtype":"f32"},
      {"name":"label","shape":["batch"],"dtype":"i32"}],"operators":[
      {"name":"first","type":"linear","inputs":["x"],"attributes":{"out_features":8}},
      {"name":"norm","type":"layer_norm","inputs":["first"]},
      {"name":"expand","type":"linear","inputs":["norm"],"attributes":{"out_features":32}},
      {"name":"gelu","type":"gelu","inputs":["expand"]},
      {"name":"drop","type":"dropout","inputs":["gelu"],"attributes":{"rate":0.1}},
      {"name":"contract","type":"linear","inputs":["drop"],"attributes":{"out_features":8}},
      {"name":"add","type":"add","inputs":["first","contract"]},
      {"name":"loss","type":"softmax_cross_entropy","inputs":["add","label"]}]})",
      "graph"));
  const auto again = [&](const Vector<std::string>& patterns) {
    Vector<std::string> names;
    const Vector<bool> found = computed_again(graph, recomputed_operators(graph, patterns));
    for (const OperatorId op : graph.operator_ids())
      if (found[op]) names.push_back(graph.operators[op].name);
    return names;
  };
  CHECK(again({"norm", "expand", "gelu", "drop", "contract"}) == Vector<std::string>{"norm", "expand", "gelu", "drop"});
  CHECK(again({"contract"}).empty());
  CHECK(again({"first", "norm", "add"}) == Vector<std::string>{"first", "norm"});
}

TEST_CASE("a segment is recomputed in front of the first backward pass that reads it") {
  const Graph graph = four_layers();
  const Strategy strategy = single_device(graph);
  CHECK(steps(graph, strategy, {"a", "b", "d"}) ==
        Vector<std::string>{"a/forward/0", "b/forward/0", "c/forward/0", "d/forward/0", "loss/forward/0",
                            "loss/backward/0", "d/recompute/0", "d/backward/0", "a/recompute/0", "b/recompute/0",
                            "c/backward/0", "b/backward/0", "a/backward/0"});
}

TEST_CASE("what is recomputed is not kept") {
  const Graph graph = four_layers();
  const Strategy strategy = single_device(graph);
  MemoryPlan plain, with_two;
  steps(graph, strategy, {}, &plain);
  steps(graph, strategy, {"a", "b"}, &with_two);
  const auto life = [](const MemoryPlan& plan, BufferKey::Kind kind, int op) {
    const PlannedBuffer* buffer = plan.find({kind, op, 0, 0});
    REQUIRE(buffer);
    return std::pair(buffer->first, buffer->last);
  };
  using enum BufferKey::Kind;
  // Steps: a b c d loss loss' d' (a b again) c' b' a', and updates.
  CHECK(life(plain, output, 0).first == 0);
  CHECK(life(plain, output, 0).second > 7);
  CHECK(life(with_two, output, 0) == std::pair(0, 1));     // read by b's forward alone
  CHECK(life(with_two, output, 1) == std::pair(1, 2));     // c's backward reads what is computed again
  CHECK(life(with_two, recomputed_output, 0).first == 8);  // after d's backward
  CHECK(life(with_two, recomputed_output, 1).first == 9);
}

TEST_CASE("parts that exchange blocks are segments of their own, and nothing is sent twice") {
  const Graph graph = four_layers();
  Strategy strategy = single_device(graph);
  for (const OperatorId op : {0, 1, 2, 3, 4}) strategy[op].degrees[0] = 2, strategy[op].devices = {0, 1};
  strategy[1].devices = {1, 0};  // all of a's and b's outputs go to the other device
  TaskGraphBuilder plain(graph), builder(graph, {.recompute = {"*"}});
  const TaskGraph before = plain.build(strategy), tasks = builder.build(strategy);
  CHECK(tasks.transfer_bytes() == before.transfer_bytes());
  CHECK(tasks.tasks.count() == before.tasks.count() + 8);
  for (const Task& task : tasks.tasks)
    if (task.kind == TaskKind::recompute) CHECK(task.before_op == (task.op >= 2 ? 3 : task.op));
  // Each rank finds the same of its own tasks.
  for (const DeviceId device : {0, 1}) {
    const TaskGraph own = builder.build(strategy, device);
    for (const Task& task : own.tasks)
      if (task.kind == TaskKind::recompute) CHECK(task.before_op == (task.op >= 2 ? 3 : task.op));
  }
}

}  // namespace ff
