// Plans as text: what each rank of a small network does, step by step.
//
// Numbers of elements and places: "@64" is element 64 of the arena, "sums0@16" element 16 of the packed gradients of
// unit 0, "#7" a buffer that only steps refer to. "A -> B" of a kernel: what it reads, what it writes; a sum is added
// to.
#include "executor/plan/program_plan.h"

#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "common/task_graph/issue_order.h"
#include "tests/support/random_network.h"

namespace ff {
namespace {

class PlanText {
 public:
  PlanText(const TaskGraphBuilder& builder, const TaskGraph& tasks, const ProgramPlan& plan)
      : builder_(builder), graph_(builder.graph()), tasks_(tasks), plan_(plan) {
    names_.resize(plan.buffers.size());
    names_[arena_buffer] = "";
    for (size_t b = 1; b < names_.size(); ++b) names_[b] = "#" + std::to_string(b);
    for (const InputBuffer& input : plan.inputs) {
      const Tensor& tensor = graph_.tensors[input.tensor];
      names_[input.memory.buffer] = tensor.name + (input.block == Block(tensor.shape) ? "" : to_string(input.block));
    }
    for (const LossBuffer& loss : plan.losses) {
      names_[loss.loss.buffer] = "loss";
      names_[loss.correct.buffer] = "correct";
    }
    for (const ParameterBuffer& one : plan.parameters) {
      const Parameter& parameter = graph_.parameters[one.parameter];
      const std::string block = one.block == Block(parameter.spec.shape) ? "" : to_string(one.block);
      if (one.weight.exists()) names_[one.weight.buffer] = parameter.name + block;
      for (const Place state : one.states) names_[state.buffer] = parameter.name + block + ".velocity";
    }
    for (const int u : plan.units.indices()) {
      const auto name = [&](Place place, const std::string& text) {
        if (place.exists()) names_[place.buffer] = text + std::to_string(u);
      };
      const ShardPlan& shard = plan.units[u].shard;
      name(plan.units[u].packed, "sums");
      name(shard.values, "shard");
      name(shard.weights, "weights");
      for (const Place state : shard.states) names_[state.buffer] = "shard" + std::to_string(u) + ".velocity";
    }
  }

  std::string text() {
    line("buffers:" + buffers());
    for (const StepPlan& step : plan_.steps) {
      if (!step.waits_before_posts.empty()) line("before receiving:" + sends(step.waits_before_posts));
      if (&step != &plan_.steps[0])  // after which they are posted as a rule
        for (const int index : step.posts) line("post" + task(plan_.receives[index]));
      line(task_name(builder_, tasks_, step.task));
      if (is_compute(step.kind)) compute(step);
      else if (is_reduction(step.kind)) reduce(plan_.reductions[step.reduction]);
      else if (step.kind == TaskKind::synchronization) synchronize(step, plan_.units[step.unit]);
      else if (step.kind == TaskKind::barrier) barrier(step);
      else if (step.kind == TaskKind::parameter_all_gather) all_gather(step, plan_.units[step.unit]);
      else if (step.kind == TaskKind::parameter_copy) copies({}, plan_.units[step.unit].shard.from_gathered);
      else update(step, plan_.units[step.unit]);
    }
    for (const TransferGroup& group : plan_.transfer_groups) {
      std::string members = "together before step " + std::to_string(group.steps_before) + ":";
      for (const int send : group.sends) members += " send " + task_name(builder_, tasks_, plan_.sends[send].task);
      for (const int receive : group.receives)
        members += " receive " + task_name(builder_, tasks_, plan_.receives[receive].task);
      line(members);
    }
    return text_;
  }

 private:
  void line(const std::string& content) { text_ += content + "\n"; }

  std::string buffers() const {
    std::string text;
    for (size_t b = 0; b < names_.size(); ++b)
      text += (b ? ", " : " ") + (b == arena_buffer ? "arena" : names_[b]) + " " +
              std::to_string(plan_.buffers[b].elements) + (plan_.buffers[b].zeroed ? " of 0" : "");
    return text;
  }

  std::string place(Place place) const {
    if (!place.exists()) return "-";
    const bool offset = place.buffer == arena_buffer || place.offset > 0;
    return names_[place.buffer] + (offset ? "@" + std::to_string(place.offset) : "");
  }
  std::string places(const Vector<Place>& list) const {
    std::string text;
    for (const Place one : list) text += " " + place(one);
    return text;
  }

  std::string task(const TransferPlan& transfer) const { return " " + task_name(builder_, tasks_, transfer.task); }
  std::string sends(const Vector<int>& list) const {
    std::string text;
    for (const int send : list) text += task(plan_.sends[send]);
    return text;
  }

  void copies(const Vector<ZeroFill>& zeros, const Vector<BlockCopy>& list) {
    for (const ZeroFill& zero : zeros) line("  zero " + place(zero.memory) + " " + std::to_string(zero.elements));
    for (const BlockCopy& copy : list)
      line(std::string(copy.add ? "  add " : "  copy ") + to_string(copy.region) + " of " + place(copy.source) +
           to_string(copy.source_block) + " to " + place(copy.destination) + to_string(copy.destination_block));
  }

  void compute(const StepPlan& step) {
    const PartPlan& part = plan_.parts[step.part];
    wait_and_gather(step);
    if (step.reduction >= 0) line("  wait for reduction " + std::to_string(step.reduction));
    std::string kernel = "  kernel" + places(part.inputs);
    for (const int p : part.parameters.indices())
      kernel += " " + place(step.gathered[p].exists() ? step.gathered[p] : plan_.parameters[part.parameters[p]].weight);
    std::string statistics = step.statistics.exists() ? " statistics " + place(step.statistics) : "";
    if (step.statistics_slots > 1) statistics += " of " + std::to_string(step.statistics_slots) + " parts";
    if (is_statistics(step.kind)) {
      kernel += " ->" + statistics;
    } else if (step.kind == TaskKind::forward) {
      kernel += statistics + " ->" + places(part.outputs);
    } else {
      kernel +=
          places(part.outputs) + places(part.output_gradients) + statistics + " ->" + places(part.input_gradients);
      for (size_t p = 0; p < part.parameters.size(); ++p)
        kernel += (part.accumulate[p] ? " added to " : " ") + place(part.parameter_gradients[p]);
    }
    line(kernel + (step.updates_state ? ", then its state" : ""));
    pack_and_send(step);
  }

  void wait_and_receive(const StepPlan& step) {
    if (!step.waits.empty()) line("  wait for sends:" + sends(step.waits));
    for (const int index : step.receives) {
      const TransferPlan& receive = plan_.receives[index];
      line("  receive " + std::to_string(receive.bytes) + " bytes from " + std::to_string(receive.peer) + " at " +
           place(receive.memory));
    }
  }

  void wait_and_gather(const StepPlan& step) {
    wait_and_receive(step);
    copies(step.zeros, step.gather);
  }

  void pack_and_send(const StepPlan& step) {
    copies({}, step.pack);
    for (const int index : step.sends) {
      const TransferPlan& send = plan_.sends[index];
      line("  send " + std::to_string(send.bytes) + " bytes to " + std::to_string(send.peer) + " from " +
           place(send.memory));
    }
  }

  void all_reduce(int group, Place memory, int64_t elements) {
    std::string ranks;
    for (const int rank : plan_.groups[group]) ranks += " " + std::to_string(rank);
    line("  all-reduce " + place(memory) + " " + std::to_string(elements) + " among" + ranks);
  }

  void reduce(const ReductionPlan& reduction) {
    if (!reduction.parts.empty()) line("  sum" + places(reduction.parts) + " to " + place(reduction.common));
    copies(reduction.zeros, {});
    if (reduction.group >= 0) all_reduce(reduction.group, reduction.common, reduction.elements);
  }

  void synchronize(const StepPlan& step, const UnitPlan& unit) {
    copies(step.zeros, {});
    copies(unit.zeros, unit.pack);
    if (unit.is_sharded())
      line("  reduce-scatter " + place(step.packed) + " to " + place(unit.shard.values) + " " +
           std::to_string(unit.shard.elements));
    else all_reduce(unit.group, unit.packed, unit.elements);
  }

  void all_gather(const StepPlan& step, const UnitPlan& unit) {
    line("  all-gather " + place(unit.has_sharded_weights() ? unit.shard.weights : unit.shard.values) + " " +
         std::to_string(unit.shard.elements) + " to " + place(step.packed));
  }

  void barrier(const StepPlan& step) {
    wait_and_gather(step);
    pack_and_send(step);
  }

  void update(const StepPlan& step, const UnitPlan& unit) {
    if (unit.group < 0) copies(unit.zeros, unit.pack);
    wait_and_receive(step);
    copies({}, step.gather);
    for (const UpdateRun& run : unit.updates) {
      line("  update " + place(run.weight) + " " + std::to_string(run.elements) + " by " + place(run.gradient) +
           (unit.shard.elements > 0 ? places(run.states) : ""));
    }
    copies({}, unit.spread);
    copies({}, unit.shard.updated);
    copies(step.zeros, {});
    pack_and_send(step);
  }

  const TaskGraphBuilder& builder_;
  const Graph& graph_;
  const TaskGraph& tasks_;
  const ProgramPlan& plan_;
  Vector<std::string> names_;  // of buffers
  std::string text_;
};

Json input(const std::string& name, int size) {
  if (size == 0) return {{"name", name}, {"shape", {"batch"}}, {"dtype", "i32"}};
  return {{"name", name}, {"shape", {"batch", size}}, {"dtype", "f32"}};
}

Json linear(const std::string& name, const std::string& from, int out_features, const std::string& parameters = "") {
  Json op = {{"name", name},
             {"type", "linear"},
             {"inputs", {from}},
             {"attributes", {{"out_features", out_features}, {"bias", false}}}};
  if (!parameters.empty()) op["parameters"] = parameters;
  return op;
}

// The operators on x [4, 6] (batch, features), and a loss of the last one.
Graph network(const Json& operators) {
  Json all = operators;
  const std::string last = operators.back()["name"];
  all.push_back({{"name", "loss"}, {"type", "softmax_cross_entropy"}, {"inputs", {last, "label"}}});
  const Json graph = {{"format", "ffgraph/1"},
                      {"name", "small"},
                      {"batch_size", 4},
                      {"inputs", {input("x", 6), input("label", 0)}},
                      {"operators", all}};
  return parse_graph(parse_json(graph.dump(), "small"));
}

std::string plan_text(const Graph& graph, const Strategy& strategy, PlanSettings settings,
                      Synchronization synchronization = Synchronization::all_reduce) {
  TaskGraphBuilder builder(graph, {.synchronization = synchronization});
  const TaskGraph tasks = builder.build(strategy);
  const ProgramPlan plan =
      plan_program(builder, strategy, tasks, default_issue_order(builder, tasks, settings.transfer_buffers), settings);
  return PlanText(builder, tasks, plan).text();
}

}  // namespace

// One device: every block is whole and read where it was written. a's output [4, 5] lies at @0 (20 floats, to the next
// multiple of 16: 32), b's output [4, 3] at @32, its gradient at @64. The loss does not read its logits again, so b
// writes the gradient of a's output over its own. Gradients of the two weights are packed by unit: 30 and 15 floats in
// 32 and 16. Nothing is copied.
TEST_CASE("in place: one device copies nothing") {
  const Graph graph = network({linear("a", "x", 5), linear("b", "a", 3)});
  CHECK(plan_text(graph, single_device(graph), {0, true}) ==
        "buffers: arena 80, x 24, a.weight 30, a.weight.velocity 30 of 0, b.weight 15, b.weight.velocity 15 of 0, "
        "label 4, loss 4, correct 4, sums0 32 of 0, sums1 16 of 0\n"
        R"(a/forward/0
  kernel x a.weight -> @0
b/forward/0
  kernel @0 b.weight -> @32
loss/forward/0
  kernel @32 label -> loss correct
loss/backward/0
  kernel @32 label loss correct -> @64 -
b/backward/0
  kernel @0 b.weight @32 @64 -> @32 sums1
b/update/0@0
  update b.weight 15 by sums1
a/backward/0
  kernel x a.weight @0 @32 -> - sums0
a/update/0@0
  update a.weight 30 by sums0
)");
}

// b on the other device: whole blocks are sent from and received into the kernels' own buffers. A step that overwrites
// what an iteration before has sent waits for that send first: a writes @0, from which its output was sent. So does a
// receive: b's output arrives where the gradient was sent from.
TEST_CASE("whole: blocks are sent and received in place") {
  const Graph graph = network({linear("a", "x", 5), linear("b", "a", 3)});
  Strategy strategy = single_device(graph);
  strategy[1].devices = {1};
  CHECK(plan_text(graph, strategy, {0}) ==
        R"(buffers: arena 80, x 24, a.weight 30, label 4, loss 4, correct 4, sums0 32 of 0
before receiving: loss:0->b/gradient/0-0
a/forward/0
  wait for sends: a->b:0/activation/0-0
  kernel x a.weight -> @0
  send 80 bytes to 1 from @0
loss/forward/0
  receive 48 bytes from 1 at @64
  kernel @64 label -> loss correct
loss/backward/0
  wait for sends: loss:0->b/gradient/0-0
  kernel @64 label loss correct -> @64 -
  send 48 bytes to 1 from @64
a/backward/0
  receive 80 bytes from 1 at @32
  kernel x a.weight @0 @32 -> - sums0
a/update/0@0
  update a.weight 30 by sums0
)");
  CHECK(plan_text(graph, strategy, {1}) ==
        R"(buffers: arena 96, b.weight 15, sums1 16 of 0
b/forward/0
  wait for sends: b->loss:0/activation/0-0
  receive 80 bytes from 0 at @0
  kernel @0 b.weight -> @64
  send 48 bytes to 0 from @64
b/backward/0
  wait for sends: b:0->a/gradient/0-0
  receive 48 bytes from 0 at @80
  kernel @0 b.weight @64 @80 -> @32 sums1
  send 80 bytes to 0 from @32
b/update/0@1
  update b.weight 15 by sums1
)");
  // A transport that follows the backend ends an iteration after its sends, so nothing waits for them; an ordered one
  // starts transfers in the order that both ranks share: a's output goes out after step 1, before b's comes in, and so
  // do the gradients after step 3. Those that depend on each other are no group.
  const std::string ordered = plan_text(graph, strategy, {0, false, true, true});
  CHECK(ordered.find("  send") == std::string::npos);
  CHECK(ordered.find("wait for sends") == std::string::npos);
  CHECK(ordered.substr(ordered.find("together")) ==
        R"(together before step 1: send a->b:0/activation/0-0
together before step 1: receive b->loss:0/activation/0-0
together before step 3: send loss:0->b/gradient/0-0
together before step 3: receive b:0->a/gradient/0-0
)");
}

// A relu takes a's output, which the other device has, a sample at a time. With preallocated buffers all four arrive
// @16 to @64 when the iteration begins. With on-demand ones a receive is posted a step ahead of need, and the gradient
// of the first sample @64 is sent before that of the fourth is written there.
TEST_CASE("on-demand transfer buffers: slices follow one another through the same memory") {
  const Graph graph =
      network({linear("a", "x", 5), {{"name", "relu"}, {"type", "relu"}, {"inputs", {"a"}}}, linear("b", "relu", 3)});
  Strategy strategy = single_device(graph);
  strategy[1] = {{4, 1}, {1, 1, 1, 1}};
  const std::string preallocated = plan_text(graph, strategy, {1}),
                    on_demand = plan_text(graph, strategy, {.rank = 1, .transfer_buffers = TransferBuffers::on_demand});
  CHECK(preallocated.find("post") == std::string::npos);
  const size_t second = on_demand.find("before receiving: relu->b:0/activation/3-0"),
               backward = on_demand.find("relu/backward/0");
  CHECK(on_demand.substr(second, on_demand.find("before receiving: relu:0->a/gradient/0-0") - second) ==
        R"(before receiving: relu->b:0/activation/3-0
post a->relu:0/activation/0-2
relu/forward/1
  wait for sends: relu->b:0/activation/1-0
  receive 20 bytes from 0 at @32
  kernel @32 -> @16
  send 20 bytes to 0 from @16
)");
  CHECK(on_demand.substr(backward) == R"(relu/backward/0
  wait for sends: relu:0->a/gradient/0-0 relu:0->a/gradient/3-0
  receive 20 bytes from 0 at @80
  kernel @16 @0 @80 -> @64
  send 20 bytes to 0 from @64
relu/backward/1
  wait for sends: relu:0->a/gradient/1-0
  receive 20 bytes from 0 at @96
  kernel @32 @16 @96 -> @80
  send 20 bytes to 0 from @80
relu/backward/2
  wait for sends: relu->b:0/activation/0-0 relu:0->a/gradient/2-0
  receive 20 bytes from 0 at @112
  kernel @48 @32 @112 -> @0
  send 20 bytes to 0 from @0
relu/backward/3
  wait for sends: relu:0->a/gradient/0-0 relu:0->a/gradient/3-0
  receive 20 bytes from 0 at @128
  kernel @64 @48 @128 -> @64
  send 20 bytes to 0 from @64
)");
}

// a split by channel, 2 and 3 of its 5 output channels: b reads all 5, so rank 0 copies its own two and the received
// three into b's input. Backward it copies its own two out of b's input gradient and packs the other three for rank 1,
// where all of the block is sent and received, so that nothing is copied.
TEST_CASE("packed: pieces of blocks are copied together and apart") {
  const Graph graph = network({linear("a", "x", 5), linear("b", "a", 3)});
  Strategy strategy = single_device(graph);
  strategy[0] = {{1, 2, 1}, {0, 1}};
  CHECK(plan_text(graph, strategy, {0}) ==
        "buffers: arena 96, x 24, a.weight[0:2, 0:6] 12, b.weight 15, label 4, loss 4, correct 4, sums0 16 of 0, "
        "sums2 16 of 0\n"
        R"(a/forward/0
  kernel x a.weight[0:2, 0:6] -> @64
b/forward/0
  receive 48 bytes from 1 at @48
  copy [0:4, 0:2] of @64[0:4, 0:2] to @0[0:4, 0:5]
  copy [0:4, 2:5] of @48[0:4, 2:5] to @0[0:4, 0:5]
  kernel @0 b.weight -> @32
loss/forward/0
  kernel @32 label -> loss correct
loss/backward/0
  kernel @32 label loss correct -> @64 -
b/backward/0
  wait for sends: b:0->a/gradient/0-1
  kernel @0 b.weight @32 @64 -> @32 sums2
  copy [0:4, 2:5] of @32[0:4, 0:5] to @80[0:4, 2:5]
  send 48 bytes to 1 from @80
b/update/0@0
  update b.weight 15 by sums2
a/backward/0
  copy [0:4, 0:2] of @32[0:4, 0:5] to @64[0:4, 0:2]
  kernel x a.weight[0:2, 0:6] @64 @64 -> - sums0
a/update/0@0
  update a.weight[0:2, 0:6] 12 by sums0
)");
  CHECK(plan_text(graph, strategy, {1}) ==
        R"(buffers: arena 32, x 24, a.weight[2:5, 0:6] 18, sums1 32 of 0
a/forward/1
  wait for sends: a->b:0/activation/1-0
  kernel x a.weight[2:5, 0:6] -> @0
  send 48 bytes to 0 from @0
a/backward/1
  receive 48 bytes from 0 at @16
  kernel x a.weight[2:5, 0:6] @0 @16 -> - sums1
a/update/1@1
  update a.weight[2:5, 0:6] 18 by sums1
)");
}

// Two readers of one output: their gradients are added up. The copy of the first one overwrites, as it covers all.
TEST_CASE("contributions of several readers are added up") {
  const Graph graph = network({linear("a", "x", 5),
                               linear("b", "a", 3),
                               linear("c", "a", 3),
                               {{"name", "sum"}, {"type", "add"}, {"inputs", {"b", "c"}}}});
  const std::string text = plan_text(graph, single_device(graph), {0});
  CHECK(text.substr(text.find("c/backward/0")) ==
        R"(c/backward/0
  kernel @0 c.weight @48 @32 -> @64 sums2
c/update/0@0
  update c.weight 15 by sums2
b/backward/0
  kernel @0 b.weight @32 @96 -> @32 sums1
b/update/0@0
  update b.weight 15 by sums1
a/backward/0
  copy [0:4, 0:5] of @32[0:4, 0:5] to @0[0:4, 0:5]
  add [0:4, 0:5] of @64[0:4, 0:5] to @0[0:4, 0:5]
  kernel x a.weight @0 @0 -> - sums0
a/update/0@0
  update a.weight 30 by sums0
)");
}

// Both halves of a's samples on one device: they share one weight and its gradient, which the first backward task
// writes and the second adds to. Their outputs are copied into b's input.
TEST_CASE("two parts on one device share a parameter") {
  const Graph graph = network({linear("a", "x", 5), linear("b", "a", 3)});
  Strategy strategy = single_device(graph);
  strategy[0] = {{2, 1, 1}, {0, 0}};
  CHECK(plan_text(graph, strategy, {0}) ==
        "buffers: arena 80, x[0:2, 0:6] 12, a.weight 30, x[2:4, 0:6] 12, b.weight 15, label 4, loss 4, correct 4, "
        "sums0 32 of 0, sums1 16 of 0\n"
        R"(a/forward/0
  kernel x[0:2, 0:6] a.weight -> @48
a/forward/1
  kernel x[2:4, 0:6] a.weight -> @64
b/forward/0
  copy [0:2, 0:5] of @48[0:2, 0:5] to @0[0:4, 0:5]
  copy [2:4, 0:5] of @64[2:4, 0:5] to @0[0:4, 0:5]
  kernel @0 b.weight -> @32
loss/forward/0
  kernel @32 label -> loss correct
loss/backward/0
  kernel @32 label loss correct -> @64 -
b/backward/0
  kernel @0 b.weight @32 @64 -> @32 sums1
b/update/0@0
  update b.weight 15 by sums1
a/backward/0
  copy [0:2, 0:5] of @32[0:4, 0:5] to @0[0:2, 0:5]
  kernel x[0:2, 0:6] a.weight @48 @0 -> - sums0
a/backward/1
  copy [2:4, 0:5] of @32[0:4, 0:5] to @0[2:4, 0:5]
  kernel x[2:4, 0:6] a.weight @64 @0 -> - added to sums0
a/update/0@0
  update a.weight 30 by sums0
)");
}

// a and b share w [6, 6]; a's rows 0 to 3 are on rank 0 and 3 to 6 on rank 1, b is whole on rank 0. Two pieces: rank 0
// alone holds rows 0 to 3 (unit 0), both hold rows 3 to 6 (unit 1). On rank 0 a's gradient is written to sums0 and b's
// to a buffer of its own (#9, [6, 6]), from which a half is added to sums0 and the other copied to sums1. The piece of
// unit 0 is updated in a's copy of the weight and copied to b's.
TEST_CASE("a shared parameter is cut into pieces by who holds them") {
  const Graph graph = network({linear("a", "x", 6, "w"), linear("b", "a", 6, "w")});
  Strategy strategy = single_device(graph);
  strategy[0] = {{1, 2, 1}, {0, 1}};
  const std::string text = plan_text(graph, strategy, {0});
  CHECK(text.substr(0, text.find("a/forward/0")) ==
        "buffers: arena 112, x 24, w.weight[0:3, 0:6] 18, w.weight 36, label 4, loss 4, correct 4, sums0 32 of 0, "
        "sums1 32 of 0, #9 36\n");
  CHECK(text.substr(text.find("b/backward/0")) ==
        R"(b/backward/0
  wait for sends: b:0->a/gradient/0-1
  kernel @32 w.weight @0 @64 -> @0 #9
  copy [0:4, 3:6] of @0[0:4, 0:6] to @96[0:4, 3:6]
  send 48 bytes to 1 from @96
a/backward/0
  copy [0:4, 0:3] of @0[0:4, 0:6] to @32[0:4, 0:3]
  kernel x w.weight[0:3, 0:6] @64 @32 -> - sums0
w/synchronization/1
  copy [3:6, 0:6] of #9[0:6, 0:6] to sums1[3:6, 0:6]
  all-reduce sums1 32 among 0 1
w/update/0@0
  add [0:3, 0:6] of #9[0:6, 0:6] to sums0[0:3, 0:6]
  update w.weight[0:3, 0:6] 18 by sums0
  copy [0:3, 0:6] of w.weight[0:3, 0:6][0:3, 0:6] to w.weight[0:6, 0:6]
w/update/1@0
  update w.weight@18 18 by sums1
)");
  const std::string other = plan_text(graph, strategy, {1});
  CHECK(other.substr(other.find("a/backward/1")) ==
        R"(a/backward/1
  receive 48 bytes from 0 at @16
  kernel x w.weight[3:6, 0:6] @0 @16 -> - sums1
w/synchronization/1
  all-reduce sums1 32 among 0 1
w/update/1@1
  update w.weight[3:6, 0:6] 18 by sums1
)");
}

// Half of the samples on each rank. The weight [6, 6] is 36 floats, packed in 48; its shards are 32 each, of which rank
// 1's has the last four and 28 that belong to nothing. Momentum is kept for them alone.
TEST_CASE("each rank updates its shard and gathers the others'") {
  const Graph graph = network(Json::array({linear("b", "x", 6)}));
  const Strategy strategy = {{{2, 1, 1}, {0, 1}}, {{2, 1}, {0, 1}}};
  const std::string plan =
      plan_text(graph, strategy, {.rank = 1, .state_buffers = 1}, Synchronization::sharded_optimizer);
  CHECK(plan.substr(0, plan.find('\n')) ==
        "buffers: arena 16, x[2:4, 0:6] 12, b.weight 36, label[2:4] 2, loss 2, correct 2, sums0 64 of 0, "
        "shard0.velocity 32 of 0, shard0 32 of 0");
  CHECK(plan.substr(plan.find("b/synchronization")) == R"(b/synchronization/0
  reduce-scatter sums0 to shard0 32
b/update/0@1
  update b.weight@32 4 by shard0 shard0.velocity
  copy [0:4] of b.weight@32[0:4] to shard0[0:4]
b/parameter_all_gather/0
  all-gather shard0 32 to sums0
b/parameter_copy/0@1
  copy [0:6, 0:6] of sums0[0:6, 0:6] to b.weight[0:6, 0:6]
)");
}

// Half of the samples on each rank; rank 0 owns the weight [3, 6]: 18 floats, packed in 32. What the ranks receive
// after the barrier lies where activations were. Rank 1 sends its gradient from where the next iteration's backward
// task writes it, which waits for that. On an ordered transport both ends start the gradient's transfer in front of the
// owner's update, and that of the values after it.
TEST_CASE("an owner gathers gradients and sends the values back") {
  const Graph graph = network(Json::array({linear("b", "x", 3)}));
  const Strategy strategy = {{{2, 1, 1}, {0, 1}}, {{2, 1}, {0, 1}}};
  CHECK(plan_text(graph, strategy, {0}, Synchronization::parameter_server) ==
        "buffers: arena 64, x[0:2, 0:6] 12, b.weight 18, label[0:2] 2, loss 2, correct 2, sums0 32 of 0\n"
        R"(b/forward/0
  kernel x[0:2, 0:6] b.weight -> @0
loss/forward/0
  kernel @0 label[0:2] -> loss correct
loss/backward/0
  kernel @0 label[0:2] loss correct -> @0 -
b/backward/0
  kernel x[0:2, 0:6] b.weight @0 @0 -> - sums0
post b/parameter_gradient/0@1-0
barrier/0
b/update/0@0
  wait for sends: b/parameter_values/0@0-1
  receive 128 bytes from 1 at @0
  add [0:32] of @0[0:32] to sums0[0:32]
  update b.weight 18 by sums0
  zero @50 14
  copy [0:3, 0:6] of b.weight[0:3, 0:6] to @32[0:3, 0:6]
  send 128 bytes to 1 from @32
)");
  CHECK(plan_text(graph, strategy, {1}, Synchronization::parameter_server) ==
        "buffers: arena 32, x[2:4, 0:6] 12, b.weight 18, label[2:4] 2, loss 2, correct 2, sums0 32 of 0\n"
        R"(b/forward/1
  kernel x[2:4, 0:6] b.weight -> @0
loss/forward/1
  kernel @0 label[2:4] -> loss correct
loss/backward/1
  kernel @0 label[2:4] loss correct -> @0 -
b/backward/1
  wait for sends: b/parameter_gradient/0@1-0
  kernel x[2:4, 0:6] b.weight @0 @0 -> - sums0
post b/parameter_values/0@0-1
barrier/1
  wait for sends: b/parameter_gradient/0@1-0
  send 128 bytes to 0 from sums0
b/update/0@1
  receive 128 bytes from 0 at @0
  copy [0:3, 0:6] of @0[0:3, 0:6] to b.weight[0:3, 0:6]
)");
  const std::string ordered = plan_text(graph, strategy, {1, false, true, true}, Synchronization::parameter_server);
  CHECK(ordered.substr(ordered.find("together")) == R"(together before step 5: send b/parameter_gradient/0@1-0
together before step 5: receive b/parameter_values/0@0-1
)");
}

// A batch normalization of 6 channels with a sample a part, two parts a rank: each part writes its own sums (two a
// channel: 12), which are added and reduced. The first forward task after waits for that and moves the
// running statistics, which both parts share.
TEST_CASE("statistics are summed over the parts of all ranks") {
  const Graph graph = network({{{"name", "norm"}, {"type", "batch_norm"}, {"inputs", {"x"}}}});
  Strategy strategy = single_device(graph);
  strategy[0] = {{4, 1}, {0, 0, 1, 1}};
  strategy[1] = {{4, 1}, {0, 0, 1, 1}};
  const std::string text = plan_text(graph, strategy, {0});
  CHECK(text.substr(text.find("norm/"), text.find("loss/forward/0") - text.find("norm/")) ==
        R"(norm/forward_statistics/0
  kernel x[0:1, 0:6] norm.weight norm.bias norm.running_mean norm.running_variance -> statistics #15
norm/forward_statistics/1
  kernel x[1:2, 0:6] norm.weight norm.bias norm.running_mean norm.running_variance -> statistics #16
norm/forward_reduction/0
  sum #15 #16 to #14
  all-reduce #14 12 among 0 1
norm/forward/0
  wait for reduction 0
  kernel x[0:1, 0:6] norm.weight norm.bias norm.running_mean norm.running_variance statistics #14 -> @0, then its state
norm/forward/1
  kernel x[1:2, 0:6] norm.weight norm.bias norm.running_mean norm.running_variance statistics #14 -> @16
)");
  // A single part on a rank writes its sums where they are reduced.
  strategy[0] = {{2, 1}, {0, 1}};
  strategy[1] = {{2, 1}, {0, 1}};
  const std::string single = plan_text(graph, strategy, {1});
  CHECK(single.substr(single.find("norm/"), single.find("loss/forward/1") - single.find("norm/")) ==
        R"(norm/forward_statistics/1
  kernel x[2:4, 0:6] norm.weight norm.bias norm.running_mean norm.running_variance -> statistics #10
norm/forward_reduction/0
  all-reduce #10 12 among 0 1
norm/forward/1
  wait for reduction 0
  kernel x[2:4, 0:6] norm.weight norm.bias norm.running_mean norm.running_variance statistics #10 -> @0, then its state
)");
}

// 4 samples and 3 classes by class, two parts on rank 0 and one on rank 1, each after the part of a that computes its
// logits, which stay where they are. Each part of the loss writes its own four floats a row to its slot of 16, those of
// the other rank's parts are zero, and the sum is what all of them wrote. The part with class 0 writes the outputs.
TEST_CASE("statistics of a loss by class are gathered from the parts of all ranks") {
  const Graph graph = network(Json::array({linear("a", "x", 3)}));
  const Strategy strategy = {{{1, 3, 1}, {0, 1, 0}}, {{1, 3}, {0, 1, 0}}};
  const std::string first = plan_text(graph, strategy, {0}), second = plan_text(graph, strategy, {1});
  CHECK(first.substr(first.find("loss/"), first.find("a/backward/0") - first.find("loss/")) ==
        R"(loss/forward_statistics/0
  kernel @0 label -> statistics #8
loss/forward_statistics/2
  kernel @16 label -> statistics #8@32
loss/forward_reduction/0
  zero #8@16 16
  all-reduce #8 48 among 0 1
loss/forward/0
  wait for reduction 0
  kernel @0 label statistics #8 of 3 parts -> loss correct
loss/forward/2
  kernel @16 label statistics #8 of 3 parts -> - -
loss/backward/0
  kernel @0 label loss correct -> @0 -
loss/backward/2
  kernel @16 label - - -> @16 -
)");
  CHECK(second.substr(second.find("loss/"), second.find("a/backward/1") - second.find("loss/")) ==
        R"(loss/forward_statistics/1
  kernel @0 label -> statistics #5@16
loss/forward_reduction/0
  zero #5 16
  zero #5@32 16
  all-reduce #5 48 among 0 1
loss/forward/1
  wait for reduction 0
  kernel @0 label statistics #5 of 3 parts -> - -
loss/backward/1
  kernel @0 label - - -> @0 -
)");
}

namespace {

std::string at(Place place) { return std::to_string(place.buffer) + "@" + std::to_string(place.offset); }

// What a rank exchanges, copies and keeps, whatever the task graph that the plan is from.
std::string exchanges(const TaskGraphBuilder& builder, const TaskGraph& tasks, const ProgramPlan& plan) {
  std::string text;
  for (const StepPlan& step : plan.steps) {
    text += task_name(builder, tasks, step.task) + " tag " + std::to_string(step.tag);
    for (const auto* copies : {&step.gather, &step.pack})
      for (const BlockCopy& copy : *copies)
        text += " " + at(copy.source) + to_string(copy.region) + (copy.add ? "+" : ">") + at(copy.destination);
    text += "\n";
  }
  for (const auto* transfers : {&plan.sends, &plan.receives})
    for (const TransferPlan& one : *transfers)
      text += task_name(builder, tasks, one.task) + " with " + std::to_string(one.peer) + " tag " +
              std::to_string(one.tag) + " " + std::to_string(one.bytes) + " " + at(one.memory) + "\n";
  for (const BufferPlan& buffer : plan.buffers) text += std::to_string(buffer.elements) + " ";
  for (const Vector<int>& group : plan.groups) {
    text += "| ";
    for (const int rank : group) text += std::to_string(rank) + " ";
  }
  for (const TransferGroup& group : plan.transfer_groups)
    text += "\n" + std::to_string(group.sends.size()) + " " + std::to_string(group.receives.size()) + " before " +
            std::to_string(group.steps_before);
  return text;
}

}  // namespace

TEST_CASE("a plan from the task graph of one rank is that from the task graph of all, and both ends share tags") {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    RandomSource random(seed);
    const Graph graph = random_graph(random);
    const int ranks = 1 + static_cast<int>(seed % 6);
    const auto [strategy, micro_batches] =
        random_expanded_strategy(graph, 1 + static_cast<int>(seed % 3), ranks, random);
    TaskGraphBuilder builder(graph, {.synchronization = synchronization_of(seed / 2), .micro_batches = micro_batches});
    const TaskGraph whole = builder.build(strategy);
    std::map<TaskKey, Vector<int>> tags;
    for (int rank = 0; rank < ranks; ++rank) {
      const PlanSettings settings{rank, true, false, seed % 2 == 1};
      const TaskGraph own = builder.build(strategy, rank);
      const ProgramPlan plan = plan_program(builder, strategy, own, default_issue_order(builder, own), settings);
      CHECK(exchanges(builder, own, plan) ==
            exchanges(builder, whole,
                      plan_program(builder, strategy, whole, default_issue_order(builder, whole), settings)));
      std::set<std::pair<int, int>> used;
      for (const auto* transfers : {&plan.sends, &plan.receives}) {
        used.clear();
        for (const TransferPlan& one : *transfers) {
          CHECK(used.emplace(one.peer, one.tag).second);
          tags[own.tasks[one.task].key].push_back(one.tag);
        }
      }
    }
    for (const auto& [key, both] : tags) {
      REQUIRE(both.size() == 2);
      CHECK(both[0] == both[1]);
    }
  }
}

}  // namespace ff
