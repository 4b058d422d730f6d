// Every strategy computes the same function: random networks with random strategies against one device.
#include <catch2/catch.hpp>
#include <mutex>
#include <numeric>
#include <set>

#include "executor/transport/in_process.h"
#include "executor/trainer.h"
#include "executor/verify.h"
#include "tests/support/random_network.h"

namespace ff {
namespace {

constexpr int iterations = 2;

struct Outcome {
  std::vector<double> losses;
  std::vector<HostTensors> gradients, weights;  // after each iteration
  HostTensors velocities;
  Evaluation evaluation;
};

// Task::copy_bytes is what the simulator charges: the program must copy exactly that.
void check_copies(const Program& program) {
  for (const Step& step : program.steps) {
    if (!is_compute(step.kind)) continue;
    int64_t bytes = 0;
    for (const auto* copies : {&step.gather, &step.pack})
      for (const BlockCopy& copy : *copies) bytes += copy.region.volume() * element_bytes;
    if (bytes != program.tasks.tasks[step.task].copy_bytes)
      throw MachineError(program.task_name(step.task) + " copies " + std::to_string(bytes) + " bytes, its task says " +
                         std::to_string(program.tasks.tasks[step.task].copy_bytes));
  }
}

Outcome train(const StrategyFile& file, int ranks) {
  Outcome outcome;
  outcome.losses.assign(iterations, 0);
  outcome.gradients.resize(iterations);
  outcome.weights.resize(iterations);
  std::mutex mutex;
  run_in_process(ranks, [&](Transport& transport) {
    const auto backend = make_cpu_backend(1);
    const TrainerSettings settings{{0.05f, 0.9f, 0.01f}, 7};
    const auto data = synthetic_data(file.graph, 7);
    std::vector<int64_t> samples(static_cast<size_t>(file.graph.batch_size));
    std::iota(samples.begin(), samples.end(), 0);
    Trainer trainer(file, *backend, transport, settings);
    check_copies(trainer.program());
    trainer.load_batch(*data, samples);
    for (size_t i = 0; i < iterations; ++i) {
      const double loss = trainer.run_iteration();
      HostTensors gradients = gather_parameters(trainer.program(), ParameterData::gradient);
      HostTensors weights = gather_parameters(trainer.program(), ParameterData::weight);
      const std::lock_guard lock(mutex);
      outcome.losses[i] += loss;
      if (transport.rank() != 0) continue;
      outcome.gradients[i] = std::move(gradients);
      outcome.weights[i] = std::move(weights);
    }
    HostTensors velocities = gather_parameters(trainer.program(), ParameterData::velocity);
    const Evaluation evaluation = trainer.evaluate(*data);
    if (transport.rank() != 0) return;
    outcome.velocities = std::move(velocities);
    outcome.evaluation = evaluation;
  });
  return outcome;
}

void check_equal(const HostTensors& found, const HostTensors& expected, const std::string& what) {
  REQUIRE(found.size() == expected.size());
  // Some gradients are zero but for rounding: of a bias in front of a batch normalization. They are compared with the others.
  float largest = 0;
  for (const auto& [name, values] : expected)
    for (float value : values) largest = std::max(largest, std::abs(value));
  for (const auto& [name, values] : expected) {
    INFO(what << " of " << name);
    const double error = relative_error(found.at(name), values, std::max(1e-3f, 1e-2f * largest));
    if (error <= 1e-4) continue;
    CHECK(error <= 1e-4);
  }
}

// A random order of the tasks that the task graph allows.
std::vector<std::string> random_issue_order(const Graph& graph, const Strategy& strategy, RandomSource& random) {
  TaskGraphBuilder builder(graph);
  const TaskGraph tasks = builder.build(strategy);
  std::vector<int32_t> waiting = tasks.predecessor_count;
  std::vector<int> ready, order;
  for (size_t t = 0; t < tasks.tasks.size(); ++t)
    if (waiting[t] == 0) ready.push_back(static_cast<int>(t));
  while (!ready.empty()) {
    std::swap(ready[std::uniform_int_distribution<size_t>(0, ready.size() - 1)(random)], ready.back());
    const int task = ready.back();
    ready.pop_back();
    order.push_back(task);
    for (int32_t s = tasks.successor_begin[task]; s < tasks.successor_begin[task + 1]; ++s)
      if (--waiting[tasks.successors[s]] == 0) ready.push_back(tasks.successors[s]);
  }
  return issue_order_names(builder, tasks, order);
}

void compare(const StrategyFile& one_device, const StrategyFile& split, int ranks) {
  const Outcome expected = train(one_device, 1), found = train(split, ranks);
  for (size_t i = 0; i < iterations; ++i) {
    CHECK(found.losses[i] == Approx(expected.losses[i]).epsilon(1e-4).margin(1e-6));
    check_equal(found.gradients[i], expected.gradients[i], "gradient in iteration " + std::to_string(i));
    check_equal(found.weights[i], expected.weights[i], "weight in iteration " + std::to_string(i));
  }
  check_equal(found.velocities, expected.velocities, "velocity");
  CHECK(found.evaluation.loss == Approx(expected.evaluation.loss).epsilon(1e-4).margin(1e-6));
}

void check_case(unsigned seed, std::set<std::string>& types) {
  RandomSource random(seed);
  const Json network = random_network(random);
  StrategyFile one_device{parse_graph(parse_json(network.dump(), "random")), {}, {}, {}, Json::object(), false};
  one_device.strategy = single_device(one_device.graph);
  for (const Operator& op : one_device.graph.operators) types.insert(op.definition->type());
  StrategyFile split = one_device;
  const int ranks = 1 + static_cast<int>(seed % 4);
  split.strategy = random_strategy(split.graph, ranks, random);
  if (seed % 3 == 0) split.issue_order = random_issue_order(split.graph, split.strategy, random);
  std::string configurations;
  for (size_t op = 0; op < split.strategy.size(); ++op) {
    configurations += "\n  " + split.graph.operators[op].name + ": degrees";
    for (int degree : split.strategy[op].degrees) configurations += " " + std::to_string(degree);
    configurations += " devices";
    for (DeviceId device : split.strategy[op].devices) configurations += " " + std::to_string(device);
  }
  INFO("seed " << seed << ", " << ranks << " ranks\n" << network.dump(1) << configurations);
  compare(one_device, split, ranks);
}

}  // namespace

TEST_CASE("random strategies compute what one device computes") {
  std::set<std::string> types;
  for (unsigned seed = 0; seed < 600; ++seed) check_case(seed, types);
  for (const std::string& type : operator_types()) {
    INFO("random_network.cpp draws no " << type);
    CHECK(types.count(type) == 1);
  }
}

TEST_CASE("a rank that holds a shared parameter without contributing to its gradient") {
  // "unused" leads to no loss, but shares the weights of "fc".
  const std::string graph = R"({"format": "ffgraph/1", "name": "shared", "batch_size": 4,
    "inputs": [{"name": "x", "shape": ["batch", 6], "dtype": "f32"}, {"name": "label", "shape": ["batch"], "dtype": "i32"}],
    "operators": [{"name": "fc", "type": "linear", "inputs": ["x"], "attributes": {"out_features": 5}, "parameters": "shared"},
                  {"name": "unused", "type": "linear", "inputs": ["x"], "attributes": {"out_features": 5}, "parameters": "shared"},
                  {"name": "loss", "type": "softmax_cross_entropy", "inputs": ["fc", "label"]}]})";
  StrategyFile one_device{parse_graph(parse_json(graph, "graph")), {}, {}, {}, Json::object(), false};
  one_device.strategy = single_device(one_device.graph);
  StrategyFile split = one_device;
  split.strategy[1] = {{1, 2}, {1, 1}};  // two parts on rank 1, whose blocks are pieces of rank 0's whole parameter
  compare(one_device, split, 2);
}

}  // namespace ff
