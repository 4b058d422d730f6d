#include "search/simulator/micro_batch_schedule.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "common/task_graph/issue_order.h"
#include "search/optimizer/baselines/pipeline.h"
#include "search/simulator/task_order.h"
#include "tests/support/random_network.h"
#include "tests/support/random_topology.h"
#include "tests/support/search_problem.h"

using namespace ff;

namespace {

// Linear layers of equal work, equally many on each device: consecutive ones. With `losses` each layer has a loss of
// its own, as those that balance experts: with the end of the network it has nothing to do.
struct Stages {
  Stages(int devices, int micro_batches, int layers_each = 1, bool losses = false)
      : whole(parse_graph(parse_json(network(devices * layers_each, losses), "graph"))),
        of_one(graph_of_micro_batch(whole, micro_batches)),
        topology(parse_topology(parse_json(machine(devices), "topology"))),
        problem{of_one,
                topology,
                kernels,
                nullptr,
                {.micro_batches = micro_batches},
                false,
                std::make_shared<const Graph>(whole)},
        strategy(single_device(of_one)) {
    const int operators = losses ? 2 : 1;  // of a layer
    for (const OperatorId op : of_one.operator_ids())
      strategy[op].devices = {std::min(op / operators / layers_each, devices - 1)};
  }

  static std::string network(int layers, bool losses) {
    std::string text = R"({"format":"ffgraph/1","name":"stages","batch_size":24,
      "inputs":[{"name":"x","shape":["batch",64],"dtype":"f32"},{"name":"label","shape":["batch"],"dtype":"i32"}],
      "operators":[)";
    for (int l = 0; l < layers; ++l)
      text += R"({"name":"l)" + std::to_string(l) + R"(","type":"linear","inputs":[")" +
              (l == 0 ? "x" : "l" + std::to_string(l - 1)) + R"("],"attributes":{"out_features":64}},)" +
              (losses ? R"({"name":"loss)" + std::to_string(l) + R"(","type":"softmax_cross_entropy","inputs":["l)" +
                            std::to_string(l) + R"(","label"]},)"
                      : "");
    return text + R"({"name":"loss","type":"softmax_cross_entropy","inputs":["l)" + std::to_string(layers - 1) +
           R"(","label"]}]})";
  }
  static std::string machine(int devices) {
    std::string text = R"({"format":"fftopology/1","name":"row",
      "device_models":{"flat":{"peak_tflops":1e6,"memory_gb_per_s":1e9,"launch_us":100}},"devices":[)";
    for (int d = 0; d < devices; ++d)
      text += std::string(d ? "," : "") + R"({"name":"d)" + std::to_string(d) + R"(","kind":"gpu","model":"flat"})";
    text += R"(],"switches":["s"],"links":[)";
    for (int d = 0; d < devices; ++d)
      text += std::string(d ? "," : "") + R"({"between":["d)" + std::to_string(d) +
              R"(","s"],"bandwidth_gb_per_s":1000,"latency_us":1})";
    return text + "]}";
  }

  Graph whole, of_one;
  Topology topology;
  KernelCosts kernels{topology, CostMode::analytic, {}};
  Problem problem;
  Strategy strategy;
};

// Most micro-batches of a device between the start of their first forward and the end of their last task.
Vector<int> most_in_flight(const Evaluator::Details& details, const MicroBatchSchedule& schedule) {
  std::map<std::pair<DeviceId, int>, std::pair<Nanoseconds, Nanoseconds>> lives;
  for (const int t : details.tasks.tasks.indices()) {
    if (schedule.micro_batch[t] < 0) continue;
    auto [life, added] = lives.try_emplace({details.tasks.tasks[t].device, schedule.micro_batch[t]},
                                           details.timeline.start[t], details.timeline.end[t]);
    life->second.first = std::min(life->second.first, details.timeline.start[t]);
    life->second.second = std::max(life->second.second, details.timeline.end[t]);
  }
  Vector<int> most(schedule.in_flight.size(), 0);
  for (const auto& [begun, of_begun] : lives) {
    int alive = 0;
    for (const auto& [other, life] : lives)
      alive += other.first == begun.first && life.first <= of_begun.first && of_begun.first < life.second;
    most[begun.first] = std::max(most[begun.first], alive);
  }
  return most;
}

MicroBatchSchedule schedule_of(const Problem& problem, const Evaluator::Details& details) {
  return micro_batch_schedule(problem.whole(), details.strategy, details.tasks, problem.settings.micro_batches,
                              problem.topology.devices.count());
}

// In the order in which the device's tasks run.
Vector<int32_t> passes_of(DeviceId device, const Evaluator::Details& details, const MicroBatchSchedule& schedule) {
  Vector<int32_t> seen;
  for (const int task : details.order)
    if (details.tasks.tasks[task].device == device && schedule.pass[task] >= 0 &&
        (seen.empty() || seen.back() != schedule.pass[task]))
      seen.push_back(schedule.pass[task]);
  return seen;
}

}  // namespace

TEST_CASE("1F1B: a device has as many micro-batches in flight as there are stages from it to the end") {
  for (const int devices : {1, 2, 4}) {
    CAPTURE(devices);
    Stages stages(devices, 8);
    Evaluator evaluator(stages.problem);
    const Evaluator::Details details = evaluator.details(stages.strategy, TaskOrder::one_forward_one_backward);
    const MicroBatchSchedule schedule = schedule_of(stages.problem, details);
    Vector<int> expected;
    for (int device = 0; device < devices; ++device) expected.push_back(devices - device);
    CHECK(schedule.in_flight == expected);
    CHECK(most_in_flight(details, schedule) == expected);
    const Evaluator::Details fifo = evaluator.details(stages.strategy, TaskOrder::fifo);
    CHECK(most_in_flight(fifo, schedule)[0] == 8);  // all forward work comes first
    CHECK(details.memory_bytes[0] < fifo.memory_bytes[0]);
  }
}

// Kernels take 100 us each: a layer's forward and backward 200 us per micro-batch, those of the last stage 400 us with
// the loss. The bubble of p stages in front of the last one and after it: (p - 1) * 200 us.
TEST_CASE("1F1B: with equal stages an iteration takes the time of the slowest stage and the way there and back") {
  Stages stages(4, 8);
  Evaluator evaluator(stages.problem);
  const Evaluator::Details details = evaluator.details(stages.strategy, TaskOrder::one_forward_one_backward);
  const double us = static_cast<double>(details.timeline.makespan) / 1e3;
  CHECK(us == Approx(8 * 400 + 3 * 200).epsilon(0.1));  // and updates and transfers
}

TEST_CASE("1F1B: a loss of a layer is computed in the passes of the layer") {
  Stages stages(2, 4, 1, true);
  Evaluator evaluator(stages.problem);
  const Evaluator::Details details = evaluator.details(stages.strategy, TaskOrder::one_forward_one_backward);
  const MicroBatchSchedule schedule = schedule_of(stages.problem, details);
  std::set<int> passes;  // of the first device
  for (const int t : details.tasks.tasks.indices())
    if (schedule.pass[t] >= 0 && details.tasks.tasks[t].device == 0) passes.insert(schedule.pass[t]);
  CHECK(passes.size() == 2 * 4);
}

// Its backward is ready when forward is: a device that began its backward pass with it would wait for the other stages,
// and they for the device's next forward pass. Kernels of 100 us: forward of two layers 400 us, backward 600 us, as a
// loss has no gradient to wait for; of the last stage 500 and 700.
TEST_CASE("1F1B: backward of a loss of a layer does not begin a backward pass") {
  Stages stages(4, 8, 2, true);
  Evaluator evaluator(stages.problem);
  const Evaluator::Details details = evaluator.details(stages.strategy, TaskOrder::one_forward_one_backward);
  const Timeline whole = schedule_one_forward_one_backward(details.tasks, details.costs,
                                                           schedule_of(stages.problem, details), Passes::whole);
  for (const Timeline& timeline : {whole, details.timeline})
    CHECK(static_cast<double>(timeline.makespan) / 1e3 < 8 * 1200 + 4 * 1000);
}

// p-1-r forward passes, then forward and backward in turn, whatever is ready.
TEST_CASE("1F1B: stages in a row take their passes in a fixed order, of unequal layers too") {
  Stages stages(4, 8, 2);
  stages.strategy[2].devices = {0};  // three layers, one, two, and two with the loss
  Evaluator evaluator(stages.problem);
  const Evaluator::Details details = evaluator.details(stages.strategy, TaskOrder::one_forward_one_backward);
  const MicroBatchSchedule schedule = schedule_of(stages.problem, details);
  REQUIRE(details.schedule);
  CHECK(details.schedule->chunks() == 1);
  for (DeviceId device = 0; device < 4; ++device) {
    std::string directions;
    for (const int32_t pass : details.schedule->passes()[device]) directions += pass / 4 % 2 == 0 ? 'F' : 'B';
    const auto behind = static_cast<size_t>(3 - device);
    std::string expected(behind, 'F');
    for (size_t k = behind; k < 8; ++k) expected += "FB";
    CHECK(directions == expected + std::string(behind, 'B'));
    CHECK(passes_of(device, details, schedule) == details.schedule->passes()[device]);
  }
}

// A relu of the network's input has no backward pass: its device does not wait for one.
TEST_CASE("1F1B: a stage that has no backward passes goes on with forward") {
  const Graph whole = parse_graph(parse_json(R"({"format":"ffgraph/1","name":"relu first","batch_size":24,
      "inputs":[{"name":"x","shape":["batch",64],"dtype":"f32"},{"name":"label","shape":["batch"],"dtype":"i32"}],
      "operators":[{"name":"relu","type":"relu","inputs":["x"]},
                   {"name":"first","type":"linear","inputs":["relu"],"attributes":{"out_features":64}},
                   {"name":"second","type":"linear","inputs":["first"],"attributes":{"out_features":64}},
                   {"name":"loss","type":"softmax_cross_entropy","inputs":["second","label"]}]})",
                                             "graph"));
  const Graph of_one = graph_of_micro_batch(whole, 8);
  const Topology topology = parse_topology(parse_json(Stages::machine(3), "topology"));
  KernelCosts kernels{topology, CostMode::analytic, {}};
  const Problem problem{
      of_one, topology, kernels, nullptr, {.micro_batches = 8}, false, std::make_shared<const Graph>(whole)};
  Strategy strategy = single_device(of_one);
  strategy[1].devices = {1}, strategy[2].devices = strategy[3].devices = {2};
  Evaluator evaluator(problem);
  const Evaluator::Details details = evaluator.details(strategy, TaskOrder::one_forward_one_backward);
  CHECK(details.schedule);
  CHECK(static_cast<double>(details.timeline.makespan) / 1e3 < 8 * 400 + 6 * 100);  // the last stage takes 400 us
}

// Two layers on each of four devices: in chunks of one layer the bubble is shorter, ideally 3 * 200 us and not 3 * 400.
TEST_CASE("1F1B: a bubble is shorter where devices have several chunks of layers in turn") {
  Stages stages(4, 8, 2);
  Evaluator evaluator(stages.problem);
  const auto us = [&](const Strategy& strategy, TaskOrder order) {
    return static_cast<double>(evaluator.details(strategy, order).timeline.makespan) / 1e3;
  };
  const auto one_forward_one_backward = TaskOrder::one_forward_one_backward;
  Strategy interleaved = stages.strategy;
  for (int layer = 0; layer < 8; ++layer) interleaved[layer].devices = {layer % 4};
  const double contiguous_us = us(stages.strategy, one_forward_one_backward);
  CHECK(contiguous_us == Approx(8 * 600 + 3 * 400).epsilon(0.05));
  CHECK(us(interleaved, one_forward_one_backward) == Approx(8 * 600 + 3 * 200).epsilon(0.05));
  CHECK(us(interleaved, TaskOrder::best) < us(stages.strategy, TaskOrder::best));
  const std::atomic<bool> stop = false;
  const std::optional<Pipeline> found = pipeline(evaluator, {.stop = stop});
  REQUIRE(found);
  CHECK(found->chunks > 1);
  CHECK(us(found->strategy, one_forward_one_backward) < contiguous_us);
}

// The order of Narayanan et al. 2021, SC, figure 4: 4 devices, 2 chunks, 8 micro-batches.
TEST_CASE("devices with several chunks take their passes in the interleaved order") {
  Stages stages(4, 8, 2);
  for (int layer = 0; layer < 8; ++layer) stages.strategy[layer].devices = {layer % 4};
  stages.strategy.back().devices = {3};
  Evaluator evaluator(stages.problem);
  const Evaluator::Details details = evaluator.details(stages.strategy, TaskOrder::one_forward_one_backward);
  const MicroBatchSchedule schedule = schedule_of(stages.problem, details);
  REQUIRE(details.schedule);
  const auto text = [&](DeviceId device, int count) {  // "F1", chunk and all: "F1'" in the second one
    std::string passes;
    for (int p = 0; p < count; ++p) {
      const int pass = details.schedule->passes()[device][p];
      passes += std::string(p > 0 ? " " : "") + (pass / 8 % 2 == 0 ? "F" : "B") + std::to_string(pass / 16 + 1) +
                (pass % 8 < 4 ? "'" : "");
    }
    return passes;
  };
  CHECK(text(0, 16) == "F1 F2 F3 F4 F1' F2' F3' F4' F5 F6 F7 B1' F8 B2' F5' B3'");
  CHECK(text(3, 12) == "F1 F2 F3 F4 F1' B1' F2' B2' F3' B3' F4' B4'");
  for (DeviceId device = 0; device < 4; ++device) {
    const Vector<int32_t>& passes = details.schedule->passes()[device];
    CHECK(std::set<int32_t>(passes.begin(), passes.end()).size() == 2 * 2 * 8);  // each once
    CHECK(passes_of(device, details, schedule) == passes);
  }
  // As many as there are devices: all forward passes come first. Another number: no such order.
  for (const int micro_batches : {4, 6}) {
    Stages other(4, micro_batches, 2);
    for (int layer = 0; layer < 8; ++layer) other.strategy[layer].devices = {layer % 4};
    other.strategy.back().devices = {3};
    Evaluator of_other(other.problem);
    const auto found = of_other.details(other.strategy, TaskOrder::one_forward_one_backward).schedule;
    REQUIRE((found != nullptr) == (micro_batches == 4));
    if (found)
      for (int pass = 0; pass < 8; ++pass) CHECK(found->passes()[0][pass] / 8 % 2 == 0);
  }
}

TEST_CASE("1F1B: micro-batches that wait for each other are let in") {
  // Batch normalization with statistics of the whole batch: no micro-batch can go on before all have come so far.
  const Graph whole = parse_graph(parse_json(R"({"format":"ffgraph/1","name":"bn","batch_size":8,
    "inputs":[{"name":"x","shape":["batch",2,4,4],"dtype":"f32"},{"name":"label","shape":["batch"],"dtype":"i32"}],
    "operators":[{"name":"norm","type":"batch_norm","inputs":["x"]},
    {"name":"flat","type":"flatten","inputs":["norm"]},
    {"name":"fc","type":"linear","inputs":["flat"],"attributes":{"out_features":3}},
    {"name":"loss","type":"softmax_cross_entropy","inputs":["fc","label"]}]})",
                                             "graph"));
  const Graph of_one = graph_of_micro_batch(whole, 4);
  const Topology topology = parse_topology(parse_json(Stages::machine(2), "topology"));
  KernelCosts kernels(topology, CostMode::analytic, {});
  Evaluator evaluator(
      {of_one, topology, kernels, nullptr, {.micro_batches = 4}, false, std::make_shared<const Graph>(whole)});
  const Evaluator::Details details =
      evaluator.details(data_parallel(of_one, topology), TaskOrder::one_forward_one_backward);
  for (const int t : details.tasks.tasks.indices()) REQUIRE(details.timeline.end[t] > details.timeline.start[t]);
  CHECK(std::set<int>(details.order.begin(), details.order.end()).size() == details.tasks.tasks.size());
}

TEST_CASE("1F1B of random plans is an order that the task graph allows, and its file is predicted alike") {
  int scheduled = 0;  // of the graphs that can be divided: about one in five
  for (uint32_t seed = 0; scheduled < 24; ++seed) {
    CAPTURE(seed);
    REQUIRE(seed < 1000);
    RandomSource random(seed);
    const Graph whole = random_graph(random);
    const Topology topology = random_topology(random, 1 + static_cast<int>(random.between(0, 3)));
    const int micro_batches = static_cast<int>(random.between(2, 4));
    const std::optional<Graph> of_one = micro_batch_graph(whole, micro_batches);
    if (!of_one) continue;
    KernelCosts kernels(topology, CostMode::analytic, {});
    const Problem problem{*of_one,
                          topology,
                          kernels,
                          nullptr,
                          {.micro_batches = micro_batches},
                          false,
                          std::make_shared<const Graph>(whole)};
    Evaluator evaluator(problem);
    const Strategy strategy = random_strategy(*of_one, topology.devices.count(), random);
    const Evaluator::Details found = evaluator.details(strategy, TaskOrder::one_forward_one_backward);
    const auto& [tasks, timeline] = std::tie(found.tasks, found.timeline);
    for (const int t : tasks.tasks.indices())
      for (int32_t s = tasks.successor_begin[t]; s < tasks.successor_begin[t + 1]; ++s)
        REQUIRE(timeline.start[tasks.successors[s]] >= timeline.end[t]);
    StrategyFile file{whole,           topology, strategy, issue_order_names(evaluator.builder(), tasks, found.order),
                      Json::object(),  false,    {},       found.transfer_buffers,
                      problem.settings};
    if (found.schedule) {
      file.issue_order.clear();
      file.settings.schedule = Schedule::one_forward_one_backward;
    }
    const Evaluator::Details again =
        evaluator.details_of_file(parse_strategy(parse_json(strategy_to_json(file).dump(), "strategy")));
    if (!found.fifo_order) CHECK(again.timeline.start == timeline.start);
    CHECK(again.memory_bytes == found.memory_bytes);
    ++scheduled;
  }
}
