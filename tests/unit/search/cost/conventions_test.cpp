// What training frameworks do otherwise than ffexec, in bytes and times worked by hand.
#include "search/cost/conventions.h"

#include <catch2/catch.hpp>
#include <limits>
#include <map>

#include "common/graph.h"
#include "common/operators/attention.h"
#include "common/task_graph/issue_order.h"
#include "search/cost/analytic.h"
#include "search/cost/memory.h"
#include "search/cost/task_costs.h"
#include "search/optimizer/evaluator.h"
#include "search/optimizer/parallelism.h"
#include "tests/support/committed_files.h"
#include "tests/support/graph_text.h"

using namespace ff;

namespace {

// 2 samples of 16 positions, 8 channels, 4 heads: operator 1. `causal`: its value, and perhaps more attributes.
Graph attention_graph(const std::string& causal) {
  return parse_graph(
      parse_json(
          graph_text(R"({"name":"embed","type":"embedding","inputs":["x"],"attributes":{"vocabulary":9,"channels":8}},
      {"name":"attention","type":"multi_head_attention","inputs":["embed"],"attributes":{"heads":4,"causal":)" +
                         causal + R"(}},
      {"name":"mean","type":"mean","inputs":["attention"]},
      {"name":"loss","type":"softmax_cross_entropy","inputs":["mean","label"]})",
                     R"({"name":"x","shape":["batch",16],"dtype":"i32"})"),
          "graph"),
      2, DataType::bf16);
}

// A norm of 4 samples of 8 channels, 32 elements: operator 1.
Graph norm_graph(const std::string& type) {
  const std::string norm = R"({"name":"norm","type":")" + type + R"(","inputs":["fc"]},)";
  return parse_graph(
      parse_json(graph_text(R"({"name":"fc","type":"linear","inputs":["x"],"attributes":{"out_features":8}},)" + norm +
                                R"({"name":"loss","type":"softmax_cross_entropy","inputs":["norm","label"]})",
                            R"({"name":"x","shape":["batch",8],"dtype":"f32"})"),
                 "graph"),
      4, DataType::bf16);
}

// A byte takes a nanosecond, an operation outside of products nearly nothing, one in a product a microsecond.
DeviceModel byte_a_nanosecond() {
  DeviceModel model;
  model.peak_tflops = 1e6;
  model.peak_bf16_tflops = 1e-6;
  model.memory_gb_per_s = 1;
  model.efficiency.products = {{1}, {1}, {{1}}, 1};
  return model;
}

// Of an operator's whole kernel, as bytes.
double bytes_of(const Graph& graph, int op, Phase phase, const FrameworkConventions& conventions,
                const DeviceModel& model = byte_a_nanosecond()) {
  const OperatorDefinition& definition = *graph.operators[op].definition;
  return 1e3 *
         analytic_kernel_us(model, definition, definition.whole(), phase, {true, 0}, Precision::bf16, conventions);
}

}  // namespace

// Of the 4 heads two parts have two each. A part projects to 2 * 16 * 3 * 4
// channels of two bytes, 768 bytes; its scores are 2 * 2 * 16 * 16 = 1024.
TEST_CASE("frameworks keep of attention queries, keys and values, and logarithms or probabilities") {
  const Graph graph = attention_graph("false");
  const OperatorDefinition& attention = *graph.operators[1].definition;
  const Block part = attention.part({1, 1, 2}, 0);
  FrameworkConventions conventions;
  CHECK(framework_workspace_bytes(attention, part, conventions) == 768 + 2 * 2 * 16 * 4);
  CHECK(framework_scratch_bytes(attention, part, conventions) == 768);
  conventions.stored_attention = true;
  CHECK(framework_workspace_bytes(attention, part, conventions) == 768 + 1024 * 2);
  CHECK(framework_scratch_bytes(attention, part, conventions) == 768 + 2 * 1024 * 2);
  conventions.recomputes_attention = true;
  CHECK(framework_workspace_bytes(attention, part, conventions) == 768);
  CHECK(framework_scratch_bytes(attention, part, conventions) == 768 + 3 * 1024 * 2);
}

// Of two parts by length each has 8 positions. What it projects are 2 * 8 * 3 * 8 channels; keys and values of all 16
// positions are 2 * 16 * 2 * 8. With equal work each part has half of the 2 * 4 * 16 * 16 scores.
TEST_CASE("attention of frameworks exchanges keys and values in place of computing them again") {
  Graph graph = attention_graph("true");
  FrameworkConventions conventions = conventions_of(parse_parallelism("cp=2,framework=megatron"));
  CHECK(conventions.exchanges_keys);
  CHECK(!conventions_of(parse_parallelism("cp=2")).exchanges_keys);
  CHECK(!conventions_of(parse_parallelism("framework=megatron")).exchanges_keys);
  const OperatorDefinition& own = *graph.operators[1].definition;
  const Graph exchanging = with_conventions(graph, conventions);
  const auto& attention = dynamic_cast<const MultiHeadAttention&>(*exchanging.operators[1].definition);
  for (int p = 0; p < 2; ++p) {
    const Block part = attention.part({1, 2, 1}, p);
    CHECK(attention.input_block(0, part) == own.output_block(0, part));
    CHECK(attention.projected(part).size() == 2 * 8 * 3 * 8);
    CHECK(attention.scores(part) == 2 * 4 * 16 * 16 / 2);
    CHECK(attention.statistics_bytes(part, true) == 2 * 8 * 2 * 8 * 2);  // each part's own, of two bytes
    CHECK(attention.statistics_bytes(part, false) == 2 * 8 * 2 * 8);
    CHECK(framework_workspace_bytes(attention, part, conventions) == 2 * 8 * 3 * 8 * 2 + 2 * 4 * 8 * 4);
    CHECK(framework_scratch_bytes(attention, part, conventions) == 2 * 8 * 3 * 8 * 2 + 2 * 2 * 16 * 2 * 8 * 2);
  }
  CHECK(attention.kinds_of_parts({1, 2, 1}) == Vector<int>{0, 0});
  CHECK(attention.statistics_bytes(attention.whole(), true) == 0);
  CHECK(own.statistics_bytes(own.part({1, 2, 1}, 0), true) == 0);
}

// Logits [4, 8]: 32.
TEST_CASE("an unfused loss keeps logarithms of probabilities and has two gradients, a fused one nothing") {
  const Graph graph = parse_graph(parse_json(two_linear_layers, "graph"), 0, DataType::bf16);
  const OperatorDefinition& loss = *graph.operators.back().definition;
  FrameworkConventions conventions;
  CHECK(framework_workspace_bytes(loss, loss.whole(), conventions) == 0);
  CHECK(framework_scratch_bytes(loss, loss.whole(), conventions) == 0);
  conventions.unfused_loss = true;
  CHECK(framework_workspace_bytes(loss, loss.whole(), conventions) == 32 * 4);
  CHECK(framework_scratch_bytes(loss, loss.whole(), conventions) == 2 * 32 * 4);
}

// Logits [4, 8] in four parts by class. Gathered ones are in bf16, their f32 copies and gradients of all classes.
TEST_CASE("with gathered logits each device has all of them, and computes the loss of all") {
  const Graph graph = parse_graph(parse_json(two_linear_layers, "graph"), 0, DataType::bf16);
  const OperatorDefinition& loss = *graph.operators.back().definition;
  const Block part = loss.part({1, 4}, 1);
  FrameworkConventions conventions;
  conventions.unfused_loss = true;
  CHECK(logits_of_loss(loss, part, conventions) == 8);
  CHECK(framework_scratch_bytes(loss, part, conventions) == 2 * 8 * 4);
  conventions.gathers_logits = true;
  CHECK(logits_of_loss(loss, part, conventions) == 32);
  CHECK(framework_workspace_bytes(loss, part, conventions) == 32 * 4);
  CHECK(framework_scratch_bytes(loss, part, conventions) == 32 * 2 + 2 * 32 * 4);
  CHECK(framework_scratch_bytes(loss, loss.whole(), conventions) == 2 * 32 * 4);
  DeviceModel model;
  model.peak_tflops = model.peak_bf16_tflops = 1000;
  model.memory_gb_per_s = 1;
  CHECK(analytic_kernel_us(model, loss, part, Phase::forward, {}, Precision::bf16, conventions) ==
        Approx(32 * 14 / 1000.0));
}

TEST_CASE("Scaling gathers logits with tp, and sums the gradients of a gated layer's inputs twice without length") {
  const auto of = [](const std::string& settings) { return conventions_of(parse_parallelism(settings)); };
  CHECK(!of("framework=scaling").gathers_logits);
  CHECK(of("tp=2,framework=scaling").gathers_logits);
  CHECK(!of("tp=2,framework=deepspeed").gathers_logits);
  CHECK(of("tp=2,framework=scaling").shares_gate_inputs);
  CHECK(!of("tp=2,framework=scaling,sequence_parallel=off").shares_gate_inputs);
  CHECK(of("framework=scaling").reduced_share == 1);
  CHECK(of("framework=scaling").gradient_copy_bytes == 24);
  CHECK(of("framework=scaling,reduce=bf16").gradient_copy_bytes == 12);
  CHECK(of("framework=scaling").whole_gradient_bytes == 2);
  CHECK(of("framework=scaling").all_reduces_gradients);
  CHECK(of("pp=2,framework=scaling").waits_for_stages);
  CHECK(!overlaps_reductions(parse_parallelism("framework=scaling")));
}

// Logits [4, 8], at one byte a nanosecond. The loss alone reads and writes its work's bytes.
TEST_CASE("losses that are logged read the logits, and read and write f32 copies of them, in the forward pass") {
  const Graph graph = parse_graph(parse_json(two_linear_layers, "graph"), 0, DataType::bf16);
  const OperatorDefinition& loss = *graph.operators.back().definition;
  DeviceModel model;
  model.peak_tflops = model.peak_bf16_tflops = 1000;
  model.memory_gb_per_s = 1;
  FrameworkConventions conventions;
  const auto us = [&](Phase phase) {
    return analytic_kernel_us(model, loss, loss.whole(), phase, {}, Precision::bf16, conventions);
  };
  const double forward = us(Phase::forward), backward = us(Phase::backward);
  conventions.logged_losses = 2;
  CHECK(us(Phase::forward) == Approx(forward + 2 * 32 * 14 / 1000.0));
  CHECK(us(Phase::backward) == backward);
  conventions.unfused_loss = true;
  CHECK(us(Phase::forward) == Approx(3 * 32 * 14 / 1000.0));
  CHECK(us(Phase::backward) == Approx(32 * 22 / 1000.0));
}

// Rates of both passes together; forward's two products at `forward` times these, backward's five take the rest.
TEST_CASE("fused attention has a rate for each pass, and one for each kind of kernel") {
  KernelEfficiency::Attention known;
  known.by_length = {{512, 0.3}, {2048, 0.5}};
  CHECK(known.share_of(1024, false) == Approx(0.4));
  CHECK(known.share_of(1024, true) == Approx(0.4));
  known.forward = 1.25;
  CHECK(known.share_of(512, false) == Approx(0.375));
  CHECK(2 / known.share_of(4096, false) + 5 / known.share_of(4096, true) == Approx(7 / 0.5));
  CHECK(known.most_over_both() == 1.25);
}

TEST_CASE("attention says whose kernels' rates count, and with Megatron-LM they are cuDNN's where these are known") {
  const Graph graph = attention_graph("true");
  const OperatorDefinition& attention = *graph.operators[1].definition;
  DeviceModel model;
  model.peak_tflops = model.peak_bf16_tflops = 1;
  model.memory_gb_per_s = 1e6;
  const auto add = [&](int generation, bool triton, bool cudnn, double share) {
    model.efficiency.attention.push_back({2, true, {{16, share}}, generation, triton, cudnn, 1});
  };
  add(2, false, false, 0.5);
  add(1, false, false, 0.25);
  add(1, true, false, 0.125);
  const double flops = attention.attention_work(attention.whole(), false).flops / 2;
  const auto us = [&](const std::string& settings) {
    return analytic_kernel_us(model, attention, attention.whole(), Phase::forward, {}, Precision::bf16,
                              conventions_of(parse_parallelism(settings)));
  };
  CHECK(us("attention=flash1") - us("attention=fused") == Approx(flops * (4 - 2) / 1e6));
  CHECK(us("attention=triton") - us("attention=fused") == Approx(flops * (8 - 2) / 1e6));
  CHECK(us("attention=cudnn") == us("attention=fused"));  // of which nothing is known yet
  add(2, false, true, 1);
  CHECK(us("attention=fused") - us("attention=cudnn") == Approx(flops * (2 - 1) / 1e6));
  CHECK(us("attention=flash2") == us("attention=fused"));
  CHECK(us("attention=flash1") - us("attention=flash2") == Approx(flops * (4 - 2) / 1e6));
  CHECK(us("attention=triton") - us("attention=flash2") == Approx(flops * (8 - 2) / 1e6));
  CHECK(us("framework=megatron") == us("framework=megatron,attention=cudnn"));
  CHECK(us("framework=megatron,attention=flash2") - us("framework=megatron") == Approx(flops * (2 - 1) / 1e6));
  CHECK(us("framework=deepspeed") - us("framework=megatron") == Approx(flops * (2 - 1) / 1e6));
}

// On two devices, of a plan for a framework.
MemoryModel::Needs needs_on_two(const Graph& graph, const Strategy& strategy, const StrategySettings& settings,
                                FrameworkConventions conventions) {
  TaskGraphBuilder builder(graph, settings);
  const TaskGraph tasks = builder.build(strategy);
  conventions.framework_memory = true;
  return MemoryModel(builder, 2, 2, {}, conventions)
      .needs(strategy, tasks, default_issue_order(builder, tasks), TransferBuffers::preallocated);
}

// Two weights of 64 elements, data-parallel on two devices, Adam in bf16. Both have the weights in bf16, 2 bytes, and
// shards of 32 elements: two moments and the master weights, 12 bytes; gradients whole in f32 or bf16, or in shards.
TEST_CASE("frameworks shard master weights with the optimizer's state") {
  const Graph graph = parse_graph(parse_json(two_linear_layers, "graph"), 0, DataType::bf16);
  const Strategy strategy = {{{2, 1, 1}, {0, 1}}, {{2, 1, 1}, {0, 1}}, {{2, 1}, {0, 1}}};
  const auto parameters = [&](Synchronization synchronization, int whole_gradient_bytes) {
    FrameworkConventions conventions;
    conventions.whole_gradient_bytes = whole_gradient_bytes;
    const auto needs = needs_on_two(graph, strategy, {.synchronization = synchronization}, conventions);
    CHECK(needs.parameters[0] == needs.parameters[1]);
    return needs.parameters[0];
  };
  // Whole: weights in f32 with a bf16 copy, two moments, and gradients.
  CHECK(parameters(Synchronization::all_reduce, 4) == 2 * 64 * (4 + 2 + 8 + 4));
  CHECK(parameters(Synchronization::all_reduce, 2) == 2 * 64 * (4 + 2 + 8 + 2));
  CHECK(parameters(Synchronization::sharded_optimizer, 4) == 2 * (64 * (2 + 4) + 32 * 12));
  CHECK(parameters(Synchronization::sharded_optimizer, 2) == 2 * (64 * (2 + 2) + 32 * 12));
  CHECK(parameters(Synchronization::sharded_gradients, 4) == 2 * (64 * 2 + 32 * 16));
  CHECK(parameters(Synchronization::sharded_parameters, 4) == 2 * (32 * 16));
}

// A residual [2, 4, 8], kept for the norm behind it, and the norm's output, which a product alone reads: in bf16 halves
// of the length of 2 x 2 x 8 x 2 bytes.
TEST_CASE("without sequence parallelism devices keep whole residuals, and with it their share of the length") {
  const Graph graph = parse_graph(
      parse_json(
          graph_text(R"({"name":"embed","type":"embedding","inputs":["x"],"attributes":{"vocabulary":9,"channels":8}},
        {"name":"residual","type":"add","inputs":["embed","embed"]},
        {"name":"norm","type":"rms_norm","inputs":["residual"]},
        {"name":"fc","type":"linear","inputs":["norm"],"attributes":{"out_features":8}},
        {"name":"mean","type":"mean","inputs":["fc"]},
        {"name":"loss","type":"softmax_cross_entropy","inputs":["mean","label"]})",
                     R"({"name":"x","shape":["batch",4],"dtype":"i32"})"),
          "graph"),
      2, DataType::bf16);
  Strategy strategy;
  for (const Operator& op : graph.operators) {
    const bool by_length = op.definition->outputs()[0].shape.count() == 3;
    Degrees degrees(op.definition->dimensions().size(), 1);
    if (by_length) degrees[1] = 2;
    strategy.push_back({degrees, by_length ? Vector<DeviceId>{0, 1} : Vector<DeviceId>{0}});
  }
  for (const bool whole : {false, true}) {
    FrameworkConventions conventions;
    conventions.replicates_length = whole;
    const auto needs = needs_on_two(graph, strategy, {}, conventions);
    int64_t residual = 0, norm = 0;
    for (const PlannedBuffer& buffer : needs.plans[0].buffers)
      if (buffer.key.kind == BufferKey::Kind::output && buffer.key.what == 1) residual += buffer.bytes;
      else if (buffer.key.kind == BufferKey::Kind::output && buffer.key.what == 2) norm += buffer.bytes;
    CHECK(residual == 2 * 2 * 8 * 2 * (whole ? 2 : 1));
    CHECK(norm == 2 * 2 * 8 * 2);
  }
}

// The synchronization of fc1, 256 bytes, occupies a quarter of each device, whose memory moves its gradients 2.5 times
// at one byte a nanosecond.
TEST_CASE("collectives of parameters occupy a part of the devices that compute") {
  const Graph graph = parse_graph(parse_json(two_linear_layers, "graph"));
  const Topology topology = parse_topology(parse_json(R"({"format":"fftopology/1","name":"t",
    "device_models":{"m":{"peak_tflops":1,"memory_gb_per_s":1,"launch_us":1,"efficiency":{"collectives":0.25}}},
    "devices":[{"name":"d0","kind":"gpu","model":"m"},{"name":"d1","kind":"gpu","model":"m"}],
    "links":[{"between":["d0","d1"],"bandwidth_gb_per_s":1,"latency_us":5}]})",
                                                      "topology"));
  KernelCosts kernels(topology, CostMode::analytic, {});
  FrameworkConventions conventions;
  conventions.overlapped_collectives = true;
  conventions.gradient_copy_bytes = 10;
  kernels.follow(conventions);
  TaskCostModel model(graph, topology, kernels);
  TaskGraphBuilder builder(graph);
  const Strategy strategy = {{{2, 1, 1}, {0, 1}}, {{1, 1, 1}, {1}}, {{1, 1}, {1}}};
  const TaskGraph tasks = builder.build(strategy);
  const TaskCosts costs = model.costs(tasks, strategy);
  TaskGraphBuilder late(graph, {.overlaps_reductions = false});
  const TaskCosts after = model.costs(late.build(strategy), strategy);
  int reduced = 0;
  CHECK(costs.slowed == Vector<double>{0.25, 0.25});
  for (const int t : tasks.tasks.indices()) {
    CHECK((costs.collectives[t] == BesideKernels::runs) == (tasks.tasks[t].kind == TaskKind::synchronization));
    if (tasks.tasks[t].kind != TaskKind::synchronization) {
      CHECK(costs.beside_of(t).empty());
      continue;
    }
    ++reduced;
    REQUIRE(costs.beside_of(t).size() == 2);
    for (const WorkBeside& work : costs.beside_of(t)) CHECK(work.work == 640);
    CHECK(after.beside_of(t).empty());
    CHECK(after.duration[t] == costs.duration[t] + 640);
  }
  CHECK(reduced == 1);
}

// The gather is of the logits' bytes in bf16, in place of the statistics'.
TEST_CASE("gathered logits take the time of an all-gather") {
  const Graph graph = parse_graph(parse_json(two_linear_layers, "graph"));
  const Topology topology = load_topology(FF_SOURCE_DIR "/topologies/p100-1x4.json");
  const Strategy strategy = {{{1, 1, 1}, {0}}, {{1, 1, 1}, {0}}, {{1, 4}, {0, 1, 2, 3}}};
  TaskGraphBuilder builder(graph);
  const TaskGraph tasks = builder.build(strategy);
  KernelCosts kernels(topology, CostMode::analytic, {});
  FrameworkConventions conventions;
  conventions.gathers_logits = true;
  kernels.follow(conventions);
  TaskCostModel model(graph, topology, kernels);
  const TaskCosts costs = model.costs(tasks, strategy);
  CommunicationModel communication(topology);
  CommunicationCost expected;
  communication.collective(CollectiveKind::all_gather, {0, 1, 2, 3}, 32 * 2, expected);
  int found = 0;
  for (const int t : tasks.tasks.indices())
    if (is_reduction(tasks.tasks[t].kind)) {
      ++found;
      CHECK(costs.duration[t] == expected.duration);
    }
  CHECK(found == 1);
}

// A product behind an all-gather is recomputed: with recomputes_exchanges that takes the gather's time longer.
TEST_CASE("recomputation by frameworks repeats what is exchanged for a layer") {
  const Graph graph = parse_graph(parse_json(two_linear_layers, "graph"));
  const Topology topology = load_topology(FF_SOURCE_DIR "/topologies/p100-1x4.json");
  const Strategy strategy = {{{1, 4, 1}, {0, 1, 2, 3}}, {{1, 4, 1}, {0, 1, 2, 3}}, {{4, 1}, {0, 1, 2, 3}}};
  TaskGraphBuilder builder(graph, {.recompute = {"fc*"}});
  const TaskGraph tasks = builder.build(strategy);
  const auto costs_of = [&](bool repeats) {
    KernelCosts kernels(topology, CostMode::analytic, {});
    FrameworkConventions conventions;
    conventions.recomputes_whole_segments = true;
    conventions.recomputes_exchanges = repeats;
    kernels.follow(conventions);
    return TaskCostModel(graph, topology, kernels).costs(tasks, strategy);
  };
  const TaskCosts kept = costs_of(false), repeated = costs_of(true);
  Nanoseconds gather = 0;
  for (const int t : tasks.tasks.indices())
    if (const Task& task = tasks.tasks[t]; is_edge_collective(task.kind) &&
                                           direction_of(task.kind) == Direction::forward &&
                                           builder.edges()[task.edge].consumer == 1)
      gather = kept.duration[t];
  REQUIRE(gather > 0);
  int longer = 0;
  for (const int t : tasks.tasks.indices()) {
    const Task& task = tasks.tasks[t];
    const bool repeats = task.kind == TaskKind::recompute && task.op == 1;
    CHECK(repeated.duration[t] == kept.duration[t] + (repeats ? gather : 0));
    if (!repeats) continue;
    ++longer;
    CHECK(repeated.uses_of(t)[0].occupancy == repeated.duration[t]);
  }
  CHECK(longer == 4);
}

TEST_CASE("full recomputation of frameworks repeats exchanges, and keeps nothing that is gathered") {
  const auto of = [](const std::string& settings) { return conventions_of(parse_parallelism(settings)); };
  for (const std::string framework : {"megatron", "fsdp", "deepspeed", "scaling"}) {
    CHECK(of("tp=2,recompute=full,framework=" + framework).recomputes_exchanges);
    CHECK(of("tp=2,recompute=full,framework=" + framework).gathers_inputs_again);
    CHECK(!of("tp=2,framework=" + framework).recomputes_exchanges);
  }
  CHECK(!of("tp=2,recompute=full").recomputes_exchanges);
  CHECK(!of("tp=2,framework=deepspeed").gathers_inputs_again);
}

// Of the network of the next test: backward the sum of the gradients of fc2's input hides behind half of fc2's kernel,
// and with sequence parallelism the input is gathered again behind the other half; while both run, kernels lose a
// quarter. What is gathered in front of fc3 hides without sequence parallelism alone, behind fc4, which is in front of
// the loss: not at all.
void check_tp_grad_overlap(Topology topology, const TaskGraphBuilder& builder, const TaskGraph& tasks,
                           const Strategy& strategy, const TaskCosts& all) {
  for (DeviceModel& model : topology.models) model.efficiency.collectives = 0.25;
  for (const bool whole_length : {false, true}) {
    FrameworkConventions conventions;
    conventions.overlaps_input_gradients = true;
    conventions.replicates_length = whole_length;
    KernelCosts kernels(topology, CostMode::analytic, {});
    kernels.follow(conventions);
    TaskCostModel model(builder.graph(), topology, kernels);
    const TaskCosts hidden = model.costs(tasks, strategy);
    const double half = static_cast<double>(model.part_cost(1, strategy[1].degrees, 0, 0).backward.ns) / 2;
    int beside = 0;
    for (const int t : tasks.tasks.indices()) {
      const Task& task = tasks.tasks[t];
      if (!is_edge_collective(task.kind)) continue;
      const auto whole = static_cast<double>(all.duration[t]);
      if (task.kind == TaskKind::activation_collective || builder.edges()[task.edge].consumer != 1) {
        CHECK(hidden.duration[t] == all.duration[t]);
        continue;
      }
      ++beside;
      const double behind = std::min(whole, whole_length ? half / 2 : half);
      CHECK(static_cast<double>(hidden.duration[t]) ==
            Approx((whole_length ? 1 : 2) * (whole - behind + behind / 4)).margin(2));
    }
    CHECK(beside == 1);
  }
}

// On four devices fc1 is split by samples, fc2 by output channels, fc3 by input channels and fc4 by samples: an
// all-gather in front of fc2, a reduce-scatter behind fc3, forward; the reverse backward. Backward a gather of half the
// time of fc3's kernel hides, and so on. Between fc4 and the loss nothing is exchanged.
TEST_CASE("tp_comm_overlap hides exchanges behind their products, but for a chunk or what they last longer") {
  const Graph graph = parse_graph(
      parse_json(graph_text(R"({"name":"fc1","type":"linear","inputs":["x"],"attributes":{"out_features":512}},
      {"name":"fc2","type":"linear","inputs":["fc1"],"attributes":{"out_features":512}},
      {"name":"fc3","type":"linear","inputs":["fc2"],"attributes":{"out_features":512}},
      {"name":"fc4","type":"linear","inputs":["fc3"],"attributes":{"out_features":8}},
      {"name":"loss","type":"softmax_cross_entropy","inputs":["fc4","label"]})",
                            R"({"name":"x","shape":["batch",512],"dtype":"f32"})"),
                 "graph"),
      64);
  const Vector<DeviceId> devices = {0, 1, 2, 3};
  const Strategy strategy = {
      {{4, 1, 1}, devices}, {{1, 4, 1}, devices}, {{1, 1, 4}, devices}, {{4, 1, 1}, devices}, {{4, 1}, devices}};
  TaskGraphBuilder builder(graph);
  const TaskGraph tasks = builder.build(strategy);
  for (const bool long_products : {false, true}) {  // that hide a part, and all but a chunk
    std::string text = R"({"format":"fftopology/1","name":"t","switches":["s"],"device_models":{"m":{"peak_tflops":)" +
                       std::string(long_products ? "0.001" : "1") +
                       R"(,"memory_gb_per_s":100,"launch_us":1}},"devices":[)";
    for (int d = 0; d < 4; ++d)
      text += std::string(d > 0 ? "," : "") + R"({"name":"d)" + std::to_string(d) + R"(","kind":"gpu","model":"m"})";
    text += R"(],"links":[)";
    for (int d = 0; d < 4; ++d)
      text += std::string(d > 0 ? "," : "") + R"({"between":["d)" + std::to_string(d) +
              R"(","s"],"bandwidth_gb_per_s":1,"latency_us":5})";
    const Topology topology = parse_topology(parse_json(text + "]}", "topology"));
    KernelCosts kernels(topology, CostMode::analytic, {});
    TaskCostModel plain(graph, topology, kernels);
    const TaskCosts all = plain.costs(tasks, strategy);
    FrameworkConventions conventions;
    conventions.overlaps_tensor_parallel = true;
    kernels.follow(conventions);
    TaskCostModel model(graph, topology, kernels);
    const TaskCosts hidden = model.costs(tasks, strategy);
    int exchanges = 0;
    for (const int t : tasks.tasks.indices()) {
      const Task& task = tasks.tasks[t];
      if (!is_edge_collective(task.kind)) {
        CHECK(hidden.duration[t] == all.duration[t]);
        continue;
      }
      ++exchanges;
      const OperatorId product = builder.edges()[task.edge].consumer == 1 ? 1 : 2;
      const auto& cost = model.part_cost(product, strategy[product].degrees, 0, 0);
      const auto ns =
          static_cast<double>(task.kind == TaskKind::activation_collective ? cost.forward.ns : cost.backward.ns / 2);
      const auto whole = static_cast<double>(all.duration[t]);
      CHECK(hidden.duration[t] == static_cast<Nanoseconds>(std::max(whole / 4, whole - ns * 3 / 4)));
      CHECK(long_products == (hidden.duration[t] == static_cast<Nanoseconds>(whole / 4)));
      for (const ResourceUse& use : hidden.uses_of(t)) CHECK(use.occupancy <= hidden.duration[t]);
    }
    CHECK(exchanges == 4);
    check_tp_grad_overlap(topology, builder, tasks, strategy, all);
  }
  CHECK_THROWS_WITH(parse_parallelism("tp=4,tp_comm_overlap=on"), Catch::Contains("needs framework=megatron"));
  CHECK_THROWS_WITH(parse_parallelism("tp=4,tp_grad_overlap=off"), Catch::Contains("framework is not megatron"));
  CHECK(conventions_of(parse_parallelism("tp=4,framework=megatron")).overlaps_input_gradients);
  CHECK(!conventions_of(parse_parallelism("tp=4,framework=megatron,tp_grad_overlap=off")).overlaps_input_gradients);
  CHECK(!conventions_of(parse_parallelism("tp=4,framework=deepspeed")).overlaps_input_gradients);
  CHECK(to_string(parse_parallelism("tp=4,framework=megatron,tp_grad_overlap=off")).ends_with(",tp_grad_overlap=off"));
  CHECK(to_string(parse_parallelism("tp=4,framework=megatron,tp_grad_overlap=on")).find("tp_grad") ==
        std::string::npos);
  CHECK(to_string(parse_parallelism("tp=4,framework=megatron,tp_comm_overlap=on")).ends_with(",tp_comm_overlap=on"));
  CHECK(conventions_of(parse_parallelism("tp=4,framework=megatron,tp_comm_overlap=on")).overlaps_tensor_parallel);
  CHECK(!conventions_of(parse_parallelism("tp=1,framework=megatron,tp_comm_overlap=on")).overlaps_tensor_parallel);
}

TEST_CASE("overlap_param_gather is for Megatron-LM's sharded optimizer") {
  const std::string settings =
      "tp=1,framework=megatron,sharding=optimizer,overlap_grad_reduce=on,overlap_param_gather=on";
  CHECK(conventions_of(parse_parallelism(settings)).gathers_for_forward);
  CHECK(to_string(parse_parallelism(settings)).ends_with(",overlap_param_gather=on"));
  CHECK(!conventions_of(parse_parallelism("tp=1,framework=megatron,sharding=optimizer")).gathers_for_forward);
  for (const char* other : {"tp=1,sharding=optimizer", "tp=1,framework=megatron,sharding=parameters",
                            "tp=1,framework=fsdp,sharding=optimizer"})
    CHECK_THROWS_WITH(parse_parallelism(std::string(other) + ",overlap_param_gather=on"),
                      Catch::Contains("needs framework=megatron and sharding=optimizer"));
  CHECK_THROWS_WITH(parse_parallelism("tp=1,framework=megatron,sharding=optimizer,overlap_param_gather=on"),
                    Catch::Contains("with overlap_grad_reduce=on alone"));
}

TEST_CASE("where norms are alike on tensor-parallel ranks their gradients are reduced late") {
  const auto beyond = [](const char* settings) {
    Parallelism parallelism = parse_parallelism(settings);
    parallelism.data = 4;
    return conventions_of(parallelism).late_reductions_beyond;
  };
  CHECK(beyond("tp=2,framework=megatron") == 4);
  CHECK(beyond("tp=2,cp=2,framework=megatron") == 8);
  CHECK(beyond("tp=1,framework=megatron") == 0);
  CHECK(beyond("tp=2,framework=fsdp") == 0);
}

TEST_CASE("buckets of gradients are those of the framework") {
  const auto of = [](const char* settings) {
    Parallelism parallelism = parse_parallelism(settings);
    parallelism.data = 64;
    return conventions_of(parallelism);
  };
  CHECK(of("tp=2").bucket_elements == 0);
  CHECK(of("tp=1,framework=fsdp").bucket_elements == 0);
  CHECK(of("tp=1,pp=2,framework=deepspeed").bucket_elements == 500'000'000);
  CHECK(of("tp=1,pp=2,framework=megatron").bucket_elements == std::numeric_limits<int64_t>::max());
  CHECK(of("tp=1,pp=2,framework=megatron,overlap_grad_reduce=on").bucket_elements == 64'000'000);
  CHECK(of("tp=1,pp=2,framework=megatron,overlap_grad_reduce=on").buckets_of_first_chunk);
  CHECK_FALSE(of("tp=1,pp=2,framework=deepspeed").buckets_of_first_chunk);
}

// fc1 is on d0, fc2 and the loss on d1. The output of fc1, [4, 8], takes 5 us and 128 bytes each way.
TEST_CASE("stages that wait for each other's tensors do not compute meanwhile") {
  const Graph graph = parse_graph(parse_json(two_linear_layers, "graph"));
  const Topology topology = parse_topology(parse_json(R"({"format":"fftopology/1","name":"t",
    "device_models":{"m":{"peak_tflops":1,"memory_gb_per_s":1,"launch_us":1}},
    "devices":[{"name":"d0","kind":"gpu","model":"m"},{"name":"d1","kind":"gpu","model":"m"}],
    "links":[{"between":["d0","d1"],"bandwidth_gb_per_s":1,"latency_us":5}]})",
                                                      "topology"));
  KernelCosts kernels(topology, CostMode::analytic, {});
  TaskGraphBuilder builder(graph);
  const Strategy strategy = {{{1, 1, 1}, {0}}, {{1, 1, 1}, {1}}, {{1, 1}, {1}}};
  const TaskGraph tasks = builder.build(strategy);
  for (const bool waits : {false, true}) {
    FrameworkConventions conventions;
    conventions.overlapped_collectives = true;
    conventions.waits_for_stages = waits;
    kernels.follow(conventions);
    const TaskCosts costs = TaskCostModel(graph, topology, kernels).costs(tasks, strategy);
    int transfers = 0;
    for (const int t : tasks.tasks.indices()) {
      if (!is_transfer(tasks.tasks[t].kind)) continue;
      ++transfers;
      CHECK(costs.duration[t] == 5128);
      REQUIRE(costs.beside_of(t).size() == (waits ? 2 : 0));
      for (const WorkBeside& work : costs.beside_of(t)) CHECK(work.work == 5128);
    }
    CHECK(transfers == 2);
  }
  CHECK(conventions_of(parse_parallelism("pp=2,framework=deepspeed")).waits_for_stages);
  CHECK(conventions_of(parse_parallelism("pp=2,framework=megatron")).waits_for_stages);
  CHECK(!conventions_of(parse_parallelism("pp=2,vp=2,framework=megatron")).waits_for_stages);
  CHECK(!conventions_of(parse_parallelism("framework=megatron")).waits_for_stages);
}

namespace {

// Four GPUs on two nodes, each of which computes one of the four samples of two linear layers, 64 weights each.
struct FourSamples {
  Graph graph = parse_graph(parse_json(two_linear_layers, "graph"));
  Topology topology = parse_topology(parse_json(R"({"format":"fftopology/1","name":"t",
    "device_models":{"m":{"peak_tflops":1,"memory_gb_per_s":1,"launch_us":0.001}},
    "devices":[{"name":"d0","kind":"gpu","model":"m","node":"a"},{"name":"d1","kind":"gpu","model":"m","node":"a"},
               {"name":"d2","kind":"gpu","model":"m","node":"b"},{"name":"d3","kind":"gpu","model":"m","node":"b"}],
    "switches":["s"],"links":[{"between":["d0","s"],"bandwidth_gb_per_s":1,"latency_us":5},
      {"between":["d1","s"],"bandwidth_gb_per_s":1,"latency_us":5},
      {"between":["d2","s"],"bandwidth_gb_per_s":1,"latency_us":5},
      {"between":["d3","s"],"bandwidth_gb_per_s":1,"latency_us":5}]})",
                                                "topology"));
  // Of the first layer's unit.
  std::map<TaskKind, Nanoseconds> durations(const FrameworkConventions& conventions) const {
    KernelCosts kernels(topology, CostMode::analytic, {});
    kernels.follow(conventions);
    TaskCostModel model(graph, topology, kernels);
    TaskGraphBuilder builder(graph, {.synchronization = Synchronization::sharded_optimizer});
    const Strategy strategy = {{{4, 1, 1}, {0, 1, 2, 3}}, {{4, 1, 1}, {0, 1, 2, 3}}, {{4, 1}, {0, 1, 2, 3}}};
    const TaskGraph tasks = builder.build(strategy);
    const TaskCosts costs = model.costs(tasks, strategy);
    std::map<TaskKind, Nanoseconds> result;
    for (const int t : tasks.tasks.indices())
      if (tasks.tasks[t].unit == 0) result[tasks.tasks[t].kind] = costs.duration[t];
    return result;
  }
  Nanoseconds collective(CollectiveKind kind, const Vector<DeviceId>& holders, int64_t bytes) const {
    CommunicationModel model(topology);
    CommunicationCost cost;
    model.collective(kind, holders, bytes, cost);
    return cost.duration;
  }
};

}  // namespace

// A quarter of 256 bytes is 64, of which SGD moves five arrays. Each of the two parameters has one owner, which updates
// all of it: half of all parameters, so that each unit's part of the work is half of the unit.
TEST_CASE(
    "where parameters have whole owners gradients are all-reduced, and each owner updates and broadcasts its own") {
  const FourSamples four;
  FrameworkConventions conventions;
  const auto shards = four.durations(conventions);
  CHECK(shards.at(TaskKind::synchronization) == four.collective(CollectiveKind::reduce_scatter, {0, 1, 2, 3}, 256));
  CHECK(shards.at(TaskKind::parameter_all_gather) == four.collective(CollectiveKind::all_gather, {0, 1, 2, 3}, 256));
  CHECK(shards.at(TaskKind::parameter_copy) == 2 * 256);
  CHECK(shards.at(TaskKind::update) == 5 * 64 + 2 * 64);
  conventions.whole_parameter_owners = conventions.all_reduces_gradients = conventions.gathers_in_place = true;
  const auto owners = four.durations(conventions);
  CHECK(owners.at(TaskKind::synchronization) == four.collective(CollectiveKind::all_reduce, {0, 1, 2, 3}, 256));
  CHECK(owners.at(TaskKind::parameter_all_gather) == 3 * 10000 + 256);
  CHECK(owners.at(TaskKind::parameter_copy) == 1);
  CHECK(owners.at(TaskKind::update) == 5 * 128 + 2 * 64);
}

// Groups of two: gathering within each, at once; gradients are reduced there, and then each half among the groups.
TEST_CASE("a shard group has all of the state, and gradients are reduced within it and among groups") {
  const FourSamples four;
  FrameworkConventions conventions;
  conventions.shard_group = 2;
  const auto of_two = four.durations(conventions);
  CHECK(of_two.at(TaskKind::parameter_all_gather) == four.collective(CollectiveKind::all_gather, {0, 1}, 256));
  CHECK(of_two.at(TaskKind::synchronization) == four.collective(CollectiveKind::reduce_scatter, {0, 1}, 256) +
                                                    four.collective(CollectiveKind::all_reduce, {0, 2}, 128));
  CHECK(of_two.at(TaskKind::update) == 5 * 128 + 2 * 64);
  conventions.all_reduces_gradients = true;
  CHECK(four.durations(conventions).at(TaskKind::synchronization) ==
        four.collective(CollectiveKind::all_reduce, {0, 1, 2, 3}, 256));
}

TEST_CASE("shard_group says among how many ranks sharded state is split") {
  const std::string refused =
      "shard_group: says among how many ranks a framework splits sharded state, and framework or sharding is not given";
  CHECK_THROWS_WITH(parse_parallelism("shard_group=8,sharding=optimizer"), refused);
  CHECK_THROWS_WITH(parse_parallelism("shard_group=8,framework=fsdp"), refused);
  Parallelism given = parse_parallelism("sharding=optimizer,shard_group=8,framework=internevo");
  CHECK(to_string(given).find(",sharding=optimizer,shard_group=8,") != std::string::npos);
  given.data = 16;
  CHECK(conventions_of(given).shard_group == 8);
  CHECK(conventions_of(given).whole_parameter_owners);
  check_shard_group(given);
  given.data = 12;
  CHECK_THROWS_WITH(check_shard_group(given), "shard_group=8 does not divide the 12 data-parallel ranks");
  CHECK(conventions_of(given).shard_group == 0);
  CHECK(!conventions_of(parse_parallelism("sharding=optimizer,framework=deepspeed")).whole_parameter_owners);
}

// Adam's 22 arrays and clipping's 3, and in bytes of four: 10 to look for overflow and 10 for the norm, each with a
// copy to f32, 4 to flatten, 6 to convert and 8 to scale; the norm and the scaling of clipping are among them.
TEST_CASE("InternEvo's step reads and writes gradients more often than clipping does") {
  DeviceModel model = byte_a_nanosecond();
  const auto streams = [&](const std::string& framework) {
    const FrameworkConventions conventions = conventions_of(parse_parallelism("framework=" + framework));
    return analytic_update_us(model, 4000, OptimizerKind::adamw, conventions) / 4;
  };
  CHECK(streams("fsdp") == Approx(22 + 3));
  CHECK(streams("internevo") == Approx(22 + 38 / 4.0));
}

// All tensors are [4, 8] in bf16: 64 bytes.
TEST_CASE("autograd sums gradients of biases and of tensors that are read twice, and has two kernels for a product") {
  const auto graph_of = [](const std::string& bias) {
    const std::string linear = R"("type":"linear","inputs":["x"],"attributes":{"out_features":8,"bias":)" + bias + "}}";
    return parse_graph(parse_json(graph_text(R"({"name":"a",)" + linear + R"(,{"name":"b",)" + linear +
                                                 R"(,{"name":"sum","type":"add","inputs":["a","b"]},
      {"name":"product","type":"mul","inputs":["sum","b"]},
      {"name":"loss","type":"softmax_cross_entropy","inputs":["product","label"]})",
                                             R"({"name":"x","shape":["batch",8],"dtype":"f32"})"),
                                  "graph"),
                       4, DataType::bf16);
  };
  const Graph biased = graph_of("true"), plain = graph_of("false");
  FrameworkConventions none, autograd;
  autograd.autograd_copies = true;
  const auto more = [&](const Graph& graph, const FrameworkConventions& conventions) {
    return bytes_of(graph, 0, Phase::backward, conventions) - bytes_of(graph, 0, Phase::backward, none);
  };
  CHECK(more(biased, autograd) == Approx(64).epsilon(1e-3));
  CHECK(more(plain, autograd) == 0);
  CHECK(bytes_of(biased, 2, Phase::backward, none) == Approx(1.5 * 3 * 64));
  CHECK(bytes_of(biased, 2, Phase::backward, autograd) == Approx(3 * 64));
  CHECK(bytes_of(biased, 3, Phase::backward, none) == Approx(1.5 * 3 * 64));
  CHECK(bytes_of(biased, 3, Phase::backward, autograd) == Approx(2 * 3 * 64));
}

// All tensors are [4, 8] in bf16: 64 bytes. Operators: 0 and 1 linear, 2 the activation, 3 the product.
TEST_CASE("a gated layer is one kernel with Megatron-LM and torch.compile, else the activation and the product") {
  const auto graph_of = [](const std::string& activation, const std::string& inputs, const std::string& last) {
    const std::string linear = R"("type":"linear","inputs":["x"],"attributes":{"out_features":8,"bias":false}})";
    return parse_graph(parse_json(graph_text(R"({"name":"gate",)" + linear + R"(,{"name":"up",)" + linear +
                                                 R"(,{"name":"act","type":")" + activation +
                                                 R"(","inputs":["gate"]},{"name":"product","type":"mul","inputs":[)" +
                                                 inputs + R"(]},{"name":"last",)" + last +
                                                 R"(},{"name":"loss","type":"softmax_cross_entropy",
                                                 "inputs":["last","label"]})",
                                             R"({"name":"x","shape":["batch",8],"dtype":"f32"})"),
                                  "graph"),
                       4, DataType::bf16);
  };
  const std::string once = R"("type":"identity","inputs":["product"])",
                    twice = R"("type":"add","inputs":["product","act"])";
  const Graph plain = graph_of("silu", R"("act","up")", once);
  const auto arrays = [](const Graph& graph, int op, Phase phase, const std::string& settings) {
    const FrameworkConventions conventions = conventions_of(parse_parallelism(settings));
    return bytes_of(with_conventions(graph, conventions), op, phase, conventions) / 64;
  };
  for (const std::string settings : {"framework=megatron", "framework=fsdp", "framework=deepspeed,swiglu_fusion=on"}) {
    CAPTURE(settings);
    CHECK(arrays(plain, 2, Phase::forward, settings) == 0);
    CHECK(arrays(plain, 2, Phase::backward, settings) == 0);
    CHECK(arrays(plain, 3, Phase::forward, settings) == Approx(3));
    CHECK(arrays(plain, 3, Phase::backward, settings) == Approx(5));
  }
  for (const std::string settings : {"framework=megatron,swiglu_fusion=off", "framework=deepspeed"}) {
    CAPTURE(settings);
    CHECK(arrays(plain, 2, Phase::forward, settings) == Approx(2));
    CHECK(arrays(plain, 2, Phase::backward, settings) == Approx(3));
    CHECK(arrays(plain, 3, Phase::forward, settings) == Approx(3));
    CHECK(arrays(plain, 3, Phase::backward, settings) == Approx(6 + 4));  // two kernels, and a copy into one array
  }
  CHECK(arrays(plain, 3, Phase::backward, "framework=fsdp,compile=off") == Approx(6));
  CHECK(arrays(plain, 3, Phase::backward, "framework=composer") == Approx(6));

  const FrameworkConventions fused = conventions_of(parse_parallelism("framework=megatron"));
  for (const std::string activation : {"silu", "gelu", "relu", "sigmoid"})
    for (const int input : {0, 1}) {
      CAPTURE(activation, input);
      const Graph graph =
          with_conventions(graph_of(activation, input == 0 ? R"("act","up")" : R"("up","act")", once), fused);
      const OperatorDefinition &act = *graph.operators[2].definition, &product = *graph.operators[3].definition;
      CHECK(act.backward_reads_input(0));
      CHECK(!act.backward_reads_output());
      CHECK(product.backward_reads_input(1 - input));
      CHECK(!product.backward_reads_input(input));
    }
  // What something else reads is written.
  CHECK(arrays(graph_of("silu", R"("act","up")", twice), 2, Phase::forward, "framework=megatron") == Approx(2));
  CHECK(arrays(graph_of("tanh", R"("act","up")", once), 2, Phase::forward, "framework=megatron") == Approx(2));
}

TEST_CASE("norm_fusion, rope_fusion and swiglu_fusion are settings of frameworks, and follow compile") {
  CHECK(to_string(parse_parallelism("framework=megatron,rope_fusion=off,swiglu_fusion=off"))
            .ends_with(",rope_fusion=off,swiglu_fusion=off"));
  CHECK(to_string(parse_parallelism("framework=deepspeed,rope_fusion=on,swiglu_fusion=on"))
            .ends_with(",rope_fusion=on,swiglu_fusion=on"));
  CHECK(to_string(parse_parallelism("framework=fsdp,compile=off,norm_fusion=on")).ends_with(",norm_fusion=on"));
  for (const std::string same :
       {"framework=megatron,norm_fusion=on,rope_fusion=on,swiglu_fusion=on",
        "framework=deepspeed,norm_fusion=on,rope_fusion=off,swiglu_fusion=off",
        "framework=fsdp,compile=off,norm_fusion=off,rope_fusion=off,swiglu_fusion=off", "framework=composer"})
    CHECK(to_string(parse_parallelism(same)).find("fusion") == std::string::npos);
  for (const std::string without : {"", "framework=internevo,"})
    CHECK_THROWS_WITH(
        parse_parallelism(without + "swiglu_fusion=on"),
        "swiglu_fusion: says which kernels a framework has, and framework is none of megatron, deepspeed, "
        "fsdp, composer, scaling");
  CHECK_THROWS_WITH(parse_parallelism("framework=megatron,rope_fusion=yes"),
                    "rope_fusion: found \"yes\", expected one of on, off");
}

// Queries, keys and values are 2 * 16 * 3 * 8 = 768 elements, the output is 256, queries and keys are 512.
TEST_CASE("padded sequences are gathered and scattered, queries and keys turned, by kernels of their own") {
  const Graph graph = attention_graph("true"), turned = attention_graph(R"(true,"rotary_base":10000)");
  const auto moved = [](const Graph& of, bool backward, const std::string& settings) {
    const OperatorDefinition& attention = *of.operators[1].definition;
    return framework_attention_bytes(attention, attention.whole(), backward,
                                     conventions_of(parse_parallelism(settings)));
  };
  CHECK(moved(graph, false, "attention=fused,framework=fsdp") == 0);
  CHECK(moved(graph, false, "attention=varlen,framework=fsdp") == 2 * (2 * 768 + 3 * 256));
  CHECK(moved(graph, true, "attention=varlen,framework=fsdp") == 2 * (3 * 768 + 2 * 256));
  CHECK(moved(turned, false, "framework=fsdp") == 2 * 2 * 512);
  CHECK(moved(turned, true, "framework=fsdp") == 2 * 2 * 512);
  CHECK(moved(turned, false, "framework=none") == 0);
  CHECK(moved(turned, false, "framework=fsdp,compile=off") == 20 * 512);
  CHECK(moved(turned, true, "framework=fsdp,compile=off") == 20 * 512);
  CHECK(moved(turned, true, "framework=fsdp,compile=off,recompute=selective") == 2 * 20 * 512);
  CHECK(moved(turned, true, "framework=megatron") == 2 * 2 * 512);
  CHECK(moved(turned, false, "framework=megatron,rope_fusion=off") == 24 * 512);
  CHECK(moved(turned, true, "framework=deepspeed") == 34 * 512);
  const OperatorDefinition& attention = *graph.operators[1].definition;
  FrameworkConventions conventions;
  const int64_t kept = framework_workspace_bytes(attention, attention.whole(), conventions);
  conventions.gathers_padded = true;
  CHECK(framework_workspace_bytes(attention, attention.whole(), conventions) == kept + 256 * 2);
  const FrameworkConventions before = conventions_of(parse_parallelism("framework=fsdp")),
                             after = conventions_of(parse_parallelism("framework=fsdp,attention=varlen"));
  CHECK(bytes_of(graph, 1, Phase::forward, after) - bytes_of(graph, 1, Phase::forward, before) ==
        Approx(2 * (2 * 768 + 3 * 256)).epsilon(1e-3));
}

TEST_CASE("reduce says in which type a framework reduces gradients, and so what FSDP copies in front of it") {
  const auto of = [](const std::string& settings) { return conventions_of(parse_parallelism(settings)); };
  CHECK(of("framework=composer").reduced_share == 1);
  CHECK(of("framework=composer").gradient_copy_bytes == 4 + 6 + 8);
  CHECK(of("framework=composer,reduce=bf16").reduced_share == 0.5);
  CHECK(of("framework=composer,reduce=bf16").gradient_copy_bytes == 4 + 4);
  CHECK(of("framework=megatron,reduce=bf16").reduced_share == 0.5);
  CHECK(of("framework=megatron,reduce=bf16").whole_gradient_bytes == 2);
  CHECK(of("framework=megatron").whole_gradient_bytes == 4);
  CHECK(of("framework=deepspeed").reduced_share == 0.5);
  CHECK(of("framework=deepspeed,reduce=f32").reduced_share == 1);
  CHECK(to_string(parse_parallelism("framework=fsdp,reduce=bf16")).ends_with(",framework=fsdp,reduce=bf16"));
  CHECK_THROWS_WITH(parse_parallelism("reduce=bf16"),
                    "reduce: says in which type a framework reduces gradients, and framework is not given");
  CHECK_THROWS_WITH(parse_parallelism("framework=fsdp,reduce=fp8"), "reduce: found \"fp8\", expected one of f32, bf16");
}

TEST_CASE("reduce=f32 is DeepSpeed's BF16_Optimizer, which adds up and reduces f32 gradients") {
  const FrameworkConventions own = conventions_of(parse_parallelism("pp=2,framework=deepspeed")),
                             f32 = conventions_of(parse_parallelism("pp=2,framework=deepspeed,reduce=f32"));
  CHECK(own.accumulated_bytes == 0);  // of one micro-batch
  CHECK(f32.accumulated_bytes == 18);
  CHECK(own.reduced_share == 0.5);
  CHECK(f32.reduced_share == 1);
  CHECK(f32.all_reduces_gradients);
  CHECK(f32.gradient_copy_bytes == 32);
  CHECK(f32.whole_gradient_bytes == 6);
  CHECK(!own.all_reduces_gradients);
}

TEST_CASE("with stages FSDP has weights and gradients whole from the first micro-batch to the last") {
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/llama-tiny.json", 32);
  const auto sharding = [&](const std::string& settings) {
    Parallelism parallelism = parse_parallelism(settings + ",micro_batch=1,sharding=parameters");
    const ParallelPlan plan = plan_of(parallelism, graph, committed_topology("dgx-a100-1"));
    CHECK(parallelism.synchronization == Synchronization::sharded_parameters);
    return plan.settings.synchronization;
  };
  CHECK(sharding("pp=2,framework=fsdp") == Synchronization::sharded_optimizer);
  CHECK(sharding("tp=2,framework=fsdp") == Synchronization::sharded_parameters);
  CHECK(sharding("pp=2,framework=megatron") == Synchronization::sharded_parameters);
  CHECK(sharding("pp=2") == Synchronization::sharded_parameters);
  const auto conventions = [](const std::string& settings) {
    Parallelism parallelism = parse_parallelism(settings + ",framework=fsdp,micro_batch=1");
    parallelism.data = 4;
    return conventions_of(parallelism, 16);  // 4 micro-batches
  };
  CHECK(conventions("pp=2,sharding=parameters").gathers_for_forward);
  CHECK(conventions("pp=2,sharding=parameters").accumulated_bytes == 10 * 3 / 4.0);
  for (const char* const settings : {"tp=2,sharding=parameters", "pp=2"}) {
    CHECK(!conventions(settings).gathers_for_forward);
    CHECK(conventions(settings).accumulated_bytes == 0);
  }
}

TEST_CASE(
    "gradients are reduced after backward in pipelines, and by Megatron-LM and DeepSpeed, unless settings say else") {
  const auto overlaps = [](const std::string& settings) { return overlaps_reductions(parse_parallelism(settings)); };
  CHECK(!overlaps("framework=megatron"));
  CHECK(overlaps("framework=megatron,overlap_grad_reduce=on"));
  CHECK(overlaps("pp=2,framework=deepspeed,overlap_grad_reduce=on"));
  for (const char* const framework : {"none", "fsdp", "composer", "internevo"}) {
    const std::string of = std::string(",framework=") + framework;
    CHECK(overlaps("tp=2" + of));
    CHECK(!overlaps("pp=2" + of));
    CHECK(overlaps("pp=2,overlap_grad_reduce=on" + of));
    CHECK(!overlaps("tp=2,overlap_grad_reduce=off" + of));
  }
  CHECK(to_string(parse_parallelism("framework=megatron,overlap_grad_reduce=on"))
            .ends_with(",framework=megatron,overlap_grad_reduce=on"));
  CHECK(to_string(parse_parallelism("overlap_grad_reduce=off")).ends_with(",overlap_grad_reduce=off"));
  CHECK(to_string(parse_parallelism("pp=2,overlap_grad_reduce=off")).find("overlap") == std::string::npos);
}

// Two stages of two groups: in a pipeline no reduction starts before its devices' last backward task.
TEST_CASE("reductions after backward start when a device has no backward pass left") {
  const Graph of_one = parse_graph(parse_json(two_linear_layers, "graph"));
  const auto whole = std::make_shared<const Graph>(graph_of_batch(of_one, 3));
  const Topology topology = load_topology(FF_SOURCE_DIR "/topologies/p100-1x4.json");
  const Strategy strategy = {{{2, 1, 1}, {0, 1}}, {{2, 1, 1}, {2, 3}}, {{2, 1}, {2, 3}}};
  Nanoseconds makespan[2];
  for (const bool after : {false, true}) {
    KernelCosts kernels(topology, CostMode::analytic, {});
    StrategySettings settings;
    settings.micro_batches = 3;
    settings.overlaps_reductions = !after;
    Evaluator evaluator({of_one, topology, kernels, nullptr, settings, false, whole});
    const Evaluator::Details details = evaluator.simulated_one_forward_one_backward(strategy);
    std::map<DeviceId, Nanoseconds> last;
    for (const int t : details.tasks.tasks.indices())
      if (const Task& task = details.tasks.tasks[t]; task.kind == TaskKind::backward)
        last[task.device] = std::max(last[task.device], details.timeline.end[t]);
    int reductions = 0, early = 0;
    for (const int t : details.tasks.tasks.indices()) {
      const Task& task = details.tasks.tasks[t];
      if (task.kind != TaskKind::synchronization) continue;
      ++reductions;
      for (const DeviceId holder : details.tasks.holders(task)) early += details.timeline.start[t] < last[holder];
    }
    CHECK(reductions == 2);
    CHECK((after ? early == 0 : true));
    makespan[after] = details.timeline.makespan;
  }
  CHECK(makespan[1] >= makespan[0]);
}

TEST_CASE("early_stop says where FSDP's recomputation of a layer ends") {
  const auto whole = [](const std::string& settings) {
    return conventions_of(parse_parallelism("recompute=full," + settings)).recomputes_whole_segments;
  };
  CHECK(!whole("framework=fsdp"));
  CHECK(!whole("framework=composer,early_stop=on"));
  CHECK(whole("framework=fsdp,early_stop=off"));
  CHECK(whole("framework=composer,early_stop=off"));
  CHECK(whole("framework=megatron"));
  const Parallelism given = parse_parallelism("framework=composer,recompute=full,early_stop=off");
  CHECK(to_string(given).find(",recompute=full,early_stop=off,") != std::string::npos);
  const std::string refused =
      "early_stop=off: says where recomputation of framework=fsdp or composer ends, and neither is given";
  CHECK_THROWS_WITH(parse_parallelism("recompute=full,early_stop=off"), refused);
  CHECK_THROWS_WITH(parse_parallelism("framework=megatron,recompute=full,early_stop=off"), refused);
  CHECK_THROWS_WITH(parse_parallelism("early_stop=never"), "early_stop: found \"never\", expected one of on, off");
}

TEST_CASE("compile=off makes RMS norms sequences of elementwise kernels, and no other norms") {
  const auto bytes = [](const std::string& norm, Phase phase, const std::string& settings) {
    return bytes_of(norm_graph(norm), 1, phase, conventions_of(parse_parallelism(settings)));
  };
  CHECK(bytes("rms_norm", Phase::forward, "framework=fsdp,compile=off") == Approx(32 * 36).epsilon(1e-3));
  CHECK(bytes("rms_norm", Phase::backward, "framework=fsdp,compile=off") == Approx(32 * 92).epsilon(1e-3));
  CHECK(bytes("rms_norm", Phase::forward, "framework=megatron,norm_fusion=off") == Approx(32 * 36).epsilon(1e-3));
  CHECK(bytes("rms_norm", Phase::forward, "framework=fsdp,compile=off,norm_fusion=on") ==
        bytes("rms_norm", Phase::forward, "framework=fsdp"));
  const Graph graph = norm_graph("rms_norm");
  const auto kept = [&](const std::string& settings) {
    const OperatorDefinition& norm = *graph.operators[1].definition;
    return framework_workspace_bytes(norm, norm.whole(), conventions_of(parse_parallelism(settings)));
  };
  CHECK(kept("framework=fsdp,compile=off") == kept("framework=fsdp") + 32 * 4);
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    CHECK(bytes("rms_norm", phase, "framework=fsdp") < 32 * 20);
    CHECK(bytes("layer_norm", phase, "framework=composer,compile=off") ==
          bytes("layer_norm", phase, "framework=composer"));
  }
  const Parallelism given = parse_parallelism("framework=deepspeed,compile=off");
  CHECK(to_string(given).find(",compile=off,framework=deepspeed") != std::string::npos);
  CHECK(to_string(parse_parallelism("framework=fsdp,compile=on")).find("compile") == std::string::npos);
  for (const std::string without : {"", "framework=megatron,", "framework=internevo,"})
    CHECK_THROWS_WITH(parse_parallelism(without + "compile=off"),
                      "compile=off: says that a model runs without torch.compile, and framework is none of fsdp, "
                      "composer, deepspeed, scaling");
}

TEST_CASE("norms of frameworks have a rate of their own, and InternEvo's read f32 copies") {
  const Graph graph = norm_graph("layer_norm");
  DeviceModel model = byte_a_nanosecond();
  const auto of = [&](Phase phase, const std::string& settings) {
    return bytes_of(graph, 1, phase, conventions_of(parse_parallelism(settings)), model);
  };
  const double streamed = of(Phase::forward, "framework=deepspeed"), own = of(Phase::forward, "framework=none");
  model.efficiency.norms = 0.5;
  CHECK(of(Phase::forward, "framework=none") == Approx(own));
  CHECK(of(Phase::forward, "framework=deepspeed") == Approx(2 * streamed));
  const auto more = [&](Phase phase, const std::string& settings) {
    return of(phase, settings) - of(phase, "framework=deepspeed");
  };
  CHECK(more(Phase::forward, "framework=internevo") == Approx(32 * (2 / 0.5 + 6)));
  CHECK(more(Phase::backward, "framework=internevo,recompute=full") == Approx(32 * (6 / 0.5 + 6)));
  CHECK(more(Phase::backward, "framework=internevo") == Approx(32 * ((6 + 6) / 0.5 + 6 + 9)));
}

// A weight of 64 elements; 16 samples are 4 micro-batches of one on each of 4 groups.
TEST_CASE("autograd adds a micro-batch's gradients to the others' in bf16, where no product does it") {
  const Graph graph = parse_graph(parse_json(two_linear_layers, "graph"), 0, DataType::bf16);
  const auto added = [&](const std::string& settings, int64_t batch) {
    Parallelism parallelism = parse_parallelism(settings);
    parallelism.data = 4;
    return bytes_of(graph, 1, Phase::backward, conventions_of(parallelism, batch)) -
           bytes_of(graph, 1, Phase::backward, conventions_of(parallelism));
  };
  CHECK(added("micro_batch=1,framework=deepspeed", 16) == Approx(64 * 6 * 3 / 4.0).epsilon(1e-3));
  CHECK(added("micro_batch=4,framework=deepspeed", 16) == 0);
  CHECK(added("micro_batch=1,framework=megatron", 16) == 0);
}
