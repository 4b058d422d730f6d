// What the search predicts of memory and what the program plan allocates.
#include <catch2/catch.hpp>
#include <set>

#include "common/kernels/backend.h"
#include "common/task_graph/issue_order.h"
#include "executor/plan/program_plan.h"
#include "search/cost/memory.h"
#include "tests/support/committed_files.h"
#include "tests/support/random_network.h"

using namespace ff;

namespace {

// What kernels on processors allocate, and what these share: Program makes them so. Parts share a kernel only when they
// are alike but for their samples, and no other part uses it between a part's forward, or its repetition, and its
// backward.
int64_t workspaces(const Graph& graph, const ProgramPlan& plan) {
  int64_t bytes = 0;
  const std::unique_ptr<Backend> backend = make_cpu_backend();
  Vector<Vector<const PartPlan*>> users(plan.kernels);
  std::set<std::pair<OperatorId, int>> recomputed;
  for (const PartPlan& part : plan.parts) {
    users[part.kernel].push_back(&part);
  }
  for (const StepPlan& step : plan.steps)
    if (step.kind == TaskKind::recompute) recomputed.emplace(plan.parts[step.part].op, plan.parts[step.part].part);
  for (const Vector<const PartPlan*>& parts : users) {
    const Operator& op = graph.operators[parts.at(0)->op];
    Vector<bool> wanted;
    for (int input = 0; input < op.inputs.count(); ++input)
      wanted.push_back(graph.input_has_gradient(parts[0]->op, input));
    const int64_t kernel_bytes =
        backend->make_kernel({*op.definition, parts[0]->block, wanted, op.name, 0})->workspace_bytes();
    INFO(op.definition->signature(parts[0]->block));
    CHECK(kernel_bytes == op.definition->workspace_bytes(parts[0]->block));
    bytes += kernel_bytes;
    for (const PartPlan* a : parts)
      for (const PartPlan* b : parts) {
        CHECK(graph.operators[a->op].function == graph.operators[b->op].function);
        if (a->op != b->op) CHECK((recomputed.contains({a->op, a->part}) && recomputed.contains({b->op, b->part})));
        CHECK(a->block[0].size() == b->block[0].size());
        for (int d = 1; d < a->block.rank(); ++d) CHECK(a->block[d] == b->block[d]);
      }
  }
  const std::pair<OperatorId, int> nobody{-1, -1};
  Vector<std::pair<OperatorId, int>> keeps(plan.kernels, nobody);  // for whose backward a kernel keeps something
  for (const StepPlan& step : plan.steps) {
    if (step.part < 0) continue;
    const PartPlan& part = plan.parts[step.part];
    const std::pair<OperatorId, int> mine{part.op, part.part};
    std::pair<OperatorId, int>& kept = keeps[part.kernel];
    CHECK((kept == nobody || kept == mine));
    if (step.kind == TaskKind::backward) {
      CHECK(kept == mine);
      kept = nobody;
    } else if (step.kind == TaskKind::recompute) {
      kept = mine;
    } else if (graph.operators[part.op].has_backward && !recomputed.contains(mine)) {
      kept = mine;
    }
  }
  return bytes + backend->shared_workspace_bytes();
}

int64_t allocated(const ProgramPlan& plan) {
  int64_t bytes = 0;
  for (const BufferPlan& buffer : plan.buffers) bytes += buffer.bytes();
  return bytes;
}

void check_memory(const Graph& graph, const Strategy& strategy, int devices, Synchronization synchronization,
                  TransferBuffers buffers, const Vector<std::string>& recompute = {}, int micro_batches = 1,
                  bool overlaps_reductions = true) {
  TaskGraphBuilder builder(graph, {.synchronization = synchronization,
                                   .micro_batches = micro_batches,
                                   .recompute = recompute,
                                   .overlaps_reductions = overlaps_reductions});
  const TaskGraph tasks = builder.build(strategy);
  const Vector<int> order = default_issue_order(builder, tasks, buffers);
  Vector<int64_t> of_kernels;  // by device
  for (const int state_buffers : {0, 1, 2}) {
    CAPTURE(state_buffers);
    MemoryModel model(builder, devices, state_buffers);
    const Vector<int64_t> predicted = model.bytes(strategy, tasks, order, buffers);
    for (DeviceId device = 0; device < devices; ++device) {
      CAPTURE(device);
      const TaskGraph own = builder.build(strategy, device);
      const ProgramPlan plan = plan_program(
          builder, strategy, own, default_issue_order(builder, own, buffers),
          {.rank = device, .state_buffers = state_buffers, .follows_backend = false, .transfer_buffers = buffers});
      if (state_buffers == 0) of_kernels.push_back(workspaces(graph, plan));
      CHECK(predicted[device] == allocated(plan) + of_kernels[device]);
    }
  }
}

// How many parameters have blocks on a device that are neither equal nor disjoint.
int overlapping(const Graph& graph, const Strategy& strategy, int devices) {
  TaskGraphBuilder builder(graph);
  int found = 0;
  for (DeviceId device = 0; device < devices; ++device) {
    const TaskGraph own = builder.build(strategy, device);
    const ProgramPlan plan =
        plan_program(builder, strategy, own, default_issue_order(builder, own), {.rank = device, .state_buffers = 0});
    for (const ParameterBuffer& a : plan.parameters)
      for (const ParameterBuffer& b : plan.parameters)
        if (a.parameter == b.parameter && a.block != b.block && !intersect(a.block, b.block).empty()) ++found;
  }
  return found;
}

}  // namespace

TEST_CASE("predicted memory is what the program plan allocates, for random networks and strategies", "[slow]") {
  int cut = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    RandomSource random(seed);
    const Graph graph = random_graph(random);
    const int devices = 1 + static_cast<int>(seed % 4);
    const auto [strategy, micro_batches] =
        random_expanded_strategy(graph, 1 + static_cast<int>(seed % 3), devices, random);
    check_memory(graph, strategy, devices, synchronization_of(seed / 4),
                 seed / 12 % 2 ? TransferBuffers::on_demand : TransferBuffers::preallocated,
                 seed / 2 % 3 == 1 ? Vector<std::string>{"*"} : Vector<std::string>(), micro_batches,
                 synchronization_of(seed / 4) == Synchronization::parameter_server || seed % 3 > 0);
    cut += overlapping(graph, strategy, devices) > 0;
  }
  CHECK(cut > 10);  // strategies whose shared parameters are split differently
}

TEST_CASE("predicted memory is what the program plan allocates, in bf16", "[slow]") {
  for (unsigned seed = 300; seed < 500; ++seed) {
    CAPTURE(seed);
    RandomSource random(seed);
    const Graph graph = with_activation_type(random_graph(random), DataType::bf16);
    const int devices = 1 + static_cast<int>(seed % 4);
    check_memory(graph, random_strategy(graph, devices, random), devices, synchronization_of(seed / 4),
                 seed / 12 % 2 ? TransferBuffers::on_demand : TransferBuffers::preallocated,
                 seed % 3 == 1 ? Vector<std::string>{"*"} : Vector<std::string>());
  }
}

// x and label: 4 x 8 f32 and 4 i32. fc: weight 8 x 8 and bias 8, of each 4 bytes of the master, 2 of the copy and 4 of
// the gradient, whose sum is a multiple of 64 bytes. Its output, 4 x 8 bf16, lives until the loss has run, and the
// loss's input gradient, as large, takes its place. The losses are 2 x 4 f32. Kernels' workspaces and the largest
// conversion come on top.
TEST_CASE("bytes of a layer in bf16") {
  const Graph graph = parse_graph(parse_json(R"({"format":"ffgraph/1","name":"one","batch_size":4,"inputs":[
      {"name":"x","shape":["batch",8],"dtype":"f32"},{"name":"label","shape":["batch"],"dtype":"i32"}],"operators":[
      {"name":"fc","type":"linear","inputs":["x"],"attributes":{"out_features":8}},
      {"name":"loss","type":"softmax_cross_entropy","inputs":["fc","label"]}]})",
                                             "graph"),
                                  0, DataType::bf16);
  const Strategy strategy = single_device(graph);
  TaskGraphBuilder builder(graph);
  const TaskGraph tasks = builder.build(strategy);
  const Vector<int> order = default_issue_order(builder, tasks);
  MemoryModel::Needs needs = MemoryModel(builder, 1, 0).needs(strategy, tasks, order, TransferBuffers::preallocated);
  lay_out(needs.plans);
  CHECK(needs.parameters[0] == (64 + 8) * (4 + 2) + 4 * (64 + 16));
  CHECK(needs.plans[0].arena_bytes == 4 * 8 * 2);
  // forward: x, weight, bias, output; backward: x, weight, bias, output gradient; the loss has less
  const int64_t conversions = 4 * 32 + 4 * 64 + 64 + 4 * 32;
  int64_t workspaces = 0;
  for (const Operator& op : graph.operators) workspaces += op.definition->workspace_bytes(op.definition->whole());
  CHECK(needs.other[0] == 4 * 32 + 4 * 4 + 2 * 4 * 4 + conversions + workspaces);
  check_memory(graph, strategy, 1, Synchronization::all_reduce, TransferBuffers::preallocated);
}

TEST_CASE("predicted memory is what the program plan allocates, for networks with shared parameters") {
  for (const char* name : {"rnnlm-2step", "moe-tiny", "llama-tiny"}) {
    CAPTURE(name);
    const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/" + std::string(name) + ".json");
    for (unsigned seed = 0; seed < 3; ++seed) {
      CAPTURE(seed);
      RandomSource random(seed);
      check_memory(graph, random_strategy(graph, 4, random), 4, synchronization_of(seed),
                   TransferBuffers::preallocated);
    }
  }
}

// What ffsearch import makes of a small image network. Copies in blocks of 16 channels: of c1 the input, 4 x 3 x 8 x 8
// floats, and the output's gradient, 4 x 16 x 8 x 8; of c2 4 x 16 x 4 x 4 and 4 x 32 x 4 x 4. The pixels that c3 reads
// are 4 x 32 x 2 x 2. Kernels use them in turn: c1 needs most.
TEST_CASE("a device has one scratch memory for its convolutions") {
  const Graph graph = parse_graph(parse_json(
      R"({"format":"ffgraph/1","name":"images","batch_size":4,
      "inputs":[{"name":"x","shape":["batch",3,8,8],"dtype":"f32"},{"name":"label","shape":["batch"],"dtype":"i32"}],
      "operators":[
      {"name":"c1","type":"conv2d","inputs":["x"],"attributes":{"out_channels":16,"kernel":[3,3],"padding":[1,1]}},
      {"name":"norm","type":"batch_norm","inputs":["c1"],"attributes":{"activation":"relu"}},
      {"name":"pool","type":"pool2d","inputs":["norm"],"attributes":{"kernel":[2,2]}},
      {"name":"c2","type":"conv2d","inputs":["pool"],"attributes":{"out_channels":32,"kernel":[3,3],"padding":[1,1]}},
      {"name":"c3","type":"conv2d","inputs":["c2"],"attributes":{"out_channels":4,"kernel":[1,1],"stride":[2,2]}},
      {"name":"flat","type":"flatten","inputs":["c3"]},
      {"name":"fc","type":"linear","inputs":["flat"],"attributes":{"out_features":5}},
      {"name":"loss","type":"softmax_cross_entropy","inputs":["fc","label"]}]})",
      "graph"));
  const Strategy strategy = single_device(graph);
  TaskGraphBuilder builder(graph);
  const TaskGraph tasks = builder.build(strategy);
  const auto scratch = [&](const Vector<bool>& gpus) {
    return MemoryModel(builder, 1, 0, gpus)
        .needs(strategy, tasks, default_issue_order(builder, tasks), TransferBuffers::preallocated)
        .scratch[0];
  };
  CHECK(scratch({}) == 4 * (4 * 3 * 8 * 8 + 4 * 16 * 8 * 8));
  CHECK(scratch({true}) == 0);
  check_memory(graph, strategy, 1, Synchronization::all_reduce, TransferBuffers::preallocated);
}

// Two layers on one device share a weight of 8 x 8; one is split by channel, the other is not. So the weight is held
// whole, and in halves: 2 x 64 elements. Each gradient of a half is a piece and lies in the gradient sums, 2 x 32
// elements; that of the whole is a buffer of its own, 64.
TEST_CASE("a block that other operators cut has a gradient besides the gradient sums") {
  const Graph graph = parse_graph(parse_json(
      R"({"format":"ffgraph/1","name":"tied","batch_size":4,"inputs":[{"name":"x","shape":["batch",8],"dtype":"f32"},
      {"name":"label","shape":["batch"],"dtype":"i32"}],"operators":[
      {"name":"a","type":"linear","inputs":["x"],"attributes":{"out_features":8,"bias":false},"parameters":"w"},
      {"name":"b","type":"linear","inputs":["a"],"attributes":{"out_features":8,"bias":false},"parameters":"w"},
      {"name":"loss","type":"softmax_cross_entropy","inputs":["b","label"]}]})",
      "graph"));
  Strategy strategy = single_device(graph);
  strategy[1].degrees[1] = 2;
  strategy[1].devices = {0, 0};
  TaskGraphBuilder builder(graph);
  const TaskGraph tasks = builder.build(strategy);
  const auto parameters = [&](int state_buffers) {
    return MemoryModel(builder, 1, state_buffers)
        .needs(strategy, tasks, default_issue_order(builder, tasks), TransferBuffers::preallocated)
        .parameters[0];
  };
  CHECK(parameters(0) == 4 * (2 * 64 + 2 * 32 + 64));
  CHECK(parameters(1) == parameters(0) + 4 * 2 * 64);
  CHECK(parameters(2) == parameters(0) + 2 * 4 * 2 * 64);
  check_memory(graph, strategy, 1, Synchronization::all_reduce, TransferBuffers::preallocated);
}
