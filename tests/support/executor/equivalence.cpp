#include "tests/support/executor/equivalence.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "common/micro_batches.h"
#include "common/task_graph/issue_order.h"
#include "executor/verify.h"
#include "tests/support/random_network.h"

namespace ff {
namespace {

Vector<std::string> random_issue_order(const StrategyFile& file, RandomSource& random) {
  TaskGraphBuilder builder(file.graph, file.settings.synchronization);
  const TaskGraph tasks = builder.build(expanded(file));
  return issue_order_names(builder, tasks, random_task_order(tasks, random));
}

void compare(const HostTensors& found, const HostTensors& expected, double tolerance, const std::string& what,
             std::string& text) {
  if (found.size() != expected.size())
    text += what + ": " + std::to_string(found.size()) + " tensors, expected " + std::to_string(expected.size()) + "\n";
  // Some gradients are zero but for rounding: of a bias in front of a batch normalization. They are compared with the
  // others.
  float largest = 0;
  for (const auto& [name, values] : expected)
    for (float value : values) largest = std::max(largest, std::abs(value));
  for (const auto& [name, values] : expected) {
    const auto it = found.find(name);
    const double error =
        it == found.end() ? HUGE_VAL : relative_error(it->second, values, std::max(1e-3f, 3e-2f * largest));
    if (!(error <= tolerance)) text += what + " of " + name + ": relative error " + std::to_string(error) + "\n";
  }
}

void compare(double found, double expected, double tolerance, const std::string& what, std::string& text) {
  if (!(std::abs(found - expected) <= tolerance * std::abs(expected) + 1e-6))
    text += what + ": " + std::to_string(found) + ", expected " + std::to_string(expected) + "\n";
}

// Rank 0: the sum over the ranks.
double sum(Transport& transport, double mine) {
  double total = 0;
  for (const std::string& bytes : transport.gather(std::string(reinterpret_cast<const char*>(&mine), sizeof mine))) {
    double one = 0;
    std::memcpy(&one, bytes.data(), sizeof one);
    total += one;
  }
  return total;
}

}  // namespace

EquivalenceCase random_case(unsigned seed, int ranks) {
  RandomSource random(seed);
  const Json network = random_network(random);
  EquivalenceCase result;
  result.ranks = ranks;
  result.one_device = {parse_graph(parse_json(network.dump(), "random")), {}, {}, {}, Json::object(), false};
  result.one_device.strategy = single_device(result.one_device.graph);
  result.split = result.one_device;
  const int micro_batches = seed % 5 < 2 ? static_cast<int>(2 + seed % 3) : 1;
  const std::optional<Graph> of_one = micro_batch_graph(result.split.graph, micro_batches);
  if (of_one) result.split.settings.micro_batches = micro_batches;
  result.split.strategy = random_strategy(of_one ? *of_one : result.split.graph, ranks, random);
  if (seed % 2 == 0) result.split.transfer_buffers = TransferBuffers::on_demand;
  if (seed / 4 % 2 == 1) result.split.settings.synchronization = Synchronization::parameter_server;
  if (seed % 3 == 0) result.split.issue_order = random_issue_order(result.split, random);
  result.text = "seed " + std::to_string(seed) + ", " + std::to_string(ranks) + " ranks, " +
                std::string(to_string(result.split.settings.synchronization)) + ", " +
                std::to_string(result.split.settings.micro_batches) + " micro-batches\n" + network.dump(1);
  for (size_t op = 0; op < result.split.strategy.size(); ++op) {
    result.text += "\n  " + result.split.graph.operators[op].name + ": degrees";
    for (int degree : result.split.strategy[op].degrees) result.text += " " + std::to_string(degree);
    result.text += " devices";
    for (DeviceId device : result.split.strategy[op].devices) result.text += " " + std::to_string(device);
  }
  return result;
}

EquivalenceOutcome train_for_comparison(const StrategyFile& file, Backend& backend, Transport& transport,
                                        const std::function<void(Program&)>& look, int iterations) {
  EquivalenceOutcome outcome;
  const TrainerSettings settings{{0.05f, 0.9f, 0.01f}, 7};
  const auto data = synthetic_data(file.graph, 7);
  Vector<int64_t> samples(file.graph.batch_size);
  std::iota(samples.begin(), samples.end(), 0);
  Trainer trainer(file, backend, transport, settings);
  if (look) look(trainer.program());
  trainer.load_batch(*data, samples);
  for (int i = 0; i < iterations; ++i) {
    outcome.losses.push_back(sum(transport, trainer.run_iteration()));
    outcome.gradients.push_back(gather_parameters(trainer.program(), ParameterData::gradient));
    outcome.weights.push_back(gather_parameters(trainer.program(), ParameterData::weight));
  }
  outcome.velocities = gather_parameters(trainer.program(), ParameterData::velocity);
  outcome.evaluation = trainer.evaluate(*data);
  if (transport.rank() != 0) return {};
  return outcome;
}

std::string differences(const EquivalenceOutcome& found, const EquivalenceOutcome& expected, double tolerance) {
  std::string text;
  if (found.losses.size() != expected.losses.size()) return "not as many losses\n";
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    const std::string when = " in iteration " + std::to_string(i);
    compare(found.losses[i], expected.losses[i], tolerance, "loss" + when, text);
    compare(found.gradients[i], expected.gradients[i], tolerance, "gradient" + when, text);
    compare(found.weights[i], expected.weights[i], tolerance, "weight" + when, text);
  }
  compare(found.velocities, expected.velocities, tolerance, "velocity", text);
  compare(found.evaluation.loss, expected.evaluation.loss, tolerance, "evaluation", text);
  return text;
}

}  // namespace ff
