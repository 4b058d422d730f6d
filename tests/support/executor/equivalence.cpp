#include "tests/support/executor/equivalence.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "common/micro_batches.h"
#include "common/recomputation.h"
#include "common/sharding.h"
#include "common/task_graph/issue_order.h"
#include "executor/verify.h"
#include "search/optimizer/evaluator.h"
#include "search/optimizer/mcmc/mcmc.h"
#include "search/problem_files.h"
#include "tests/support/random_network.h"

namespace ff {
namespace {

Vector<std::string> random_issue_order(const StrategyFile& file, RandomSource& random) {
  TaskGraphBuilder builder(file.graph, file.settings);
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

// None, all that can be, or half of them.
Vector<std::string> drawn_recomputation(unsigned seed, const Graph& graph) {
  if (seed % 5 == 1) return {"*"};
  Vector<std::string> names;
  if (seed / 7 % 4 == 3)
    for (const OperatorId op : graph.operator_ids())
      if (why_not_recomputed(graph, op).empty() && (static_cast<unsigned>(op) * 2654435761u + seed) / 64 % 2 == 0)
        names.push_back(graph.operators[op].name);
  return names;
}

// Adam divides by the root of the second moment: near 0, where a gradient is but rounding, epsilon keeps the step
// small.
OptimizerSettings drawn_optimizer(unsigned seed, bool may_clip) {
  OptimizerSettings optimizer{0.05, 0.9, 0.01};
  if (seed % 7 == 2 || seed % 7 == 5)
    optimizer = {.learning_rate = 0.01,
                 .weight_decay = 0.1,
                 .kind = seed % 7 == 2 ? OptimizerKind::adam : OptimizerKind::adamw,
                 .beta2 = 0.99,
                 .epsilon = 0.1};
  if (seed % 7 == 3) optimizer.momentum = 0;
  if (may_clip && seed % 3 == 1) optimizer.clip_norm = 0.05;
  if (seed % 11 == 4) optimizer.schedule = {.warmup_iterations = 1, .iterations = 3, .minimum = 0.001};
  return optimizer;
}

// Of each parameter group its own, by the name of an operator.
Vector<OperatorSharding> drawn_sharding(unsigned seed, const Graph& graph) {
  constexpr Synchronization stages[] = {Synchronization::all_reduce, Synchronization::sharded_optimizer,
                                        Synchronization::sharded_gradients, Synchronization::sharded_parameters};
  Vector<OperatorSharding> drawn;
  std::set<OperatorId> named;  // an operator may have several groups
  for (const ParameterGroup& group : parameter_groups(graph)) {
    if (!group.trained) continue;
    const bool again =
        std::any_of(group.operators.begin(), group.operators.end(), [&](OperatorId op) { return named.contains(op); });
    named.insert(group.operators.begin(), group.operators.end());
    if (again) continue;
    const unsigned choice = (static_cast<unsigned>(group.operators[0]) * 2654435761u + seed * 40503u) / 64 % 4;
    drawn.push_back({graph.operators[group.operators[0]].name, stages[choice]});
  }
  return drawn;
}

// What ffsearch knows of a plan on so many processors.
class OnProcessors {
 public:
  OnProcessors(StrategyFile file, int ranks)
      : file_(std::move(file)), loaded_(load({file_.graph, topology(ranks), {}, file_.settings}, costs())),
        evaluator_(loaded_.problem()) {
    file_.topology = topology(ranks);
  }
  Evaluator& evaluator() { return evaluator_; }
  const StrategyFile& file() const { return file_; }

 private:
  static CostOptions costs() {
    CostOptions options;
    options.mode = CostMode::analytic;
    return options;
  }
  static Topology topology(int ranks) {
    Json json = {{"format", "fftopology/1"}, {"name", "processors"}, {"switches", {"s"}}, {"links", Json::array()}};
    json["device_models"]["cpu"] = {
        {"peak_tflops", 0.1}, {"peak_bf16_tflops", 0.2}, {"memory_gb_per_s", 10}, {"launch_us", 1}};
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string name = "cpu" + std::to_string(rank);
      json["devices"].push_back({{"name", name}, {"kind", "cpu"}, {"model", "cpu"}});
      json["links"].push_back({{"between", {name, "s"}}, {"bandwidth_gb_per_s", 8}, {"latency_us", 1}});
    }
    return parse_topology(parse_json(json.dump(), "topology"));
  }

  StrategyFile file_;
  Loaded loaded_;
  Evaluator evaluator_;
};

Vector<std::string> one_forward_one_backward_order(const StrategyFile& file, int ranks) {
  OnProcessors plan(file, ranks);
  const Evaluator::Details details = plan.evaluator().details(file.strategy, TaskOrder::one_forward_one_backward);
  return issue_order_names(plan.evaluator().builder(), details.tasks, details.order);
}

}  // namespace

Vector<int64_t> predicted_memory(StrategyFile file, int ranks) {
  OnProcessors plan(std::move(file), ranks);
  return plan.evaluator().details_of_file(plan.file()).memory_bytes;
}

int64_t check_delta_simulation(StrategyFile file, int ranks, unsigned seed) {
  OnProcessors plan(std::move(file), ranks);
  McmcSettings settings;
  settings.proposals = 20;
  settings.seed = seed;
  settings.chains = 1;
  settings.simulator = SimulatorKind::checked;
  const std::atomic<bool> stop{false};
  const McmcResult found = search_mcmc(plan.evaluator().problem(), {{"drawn", plan.file().strategy}}, settings, {stop});
  const CheckStatistics& checks = found.statistics.checks;
  return checks.rejections + checks.predictions + checks.timelines;
}

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
  result.split.settings.synchronization = synchronization_of(seed / 4);
  result.split.settings.overlaps_reductions =
      result.split.settings.synchronization == Synchronization::parameter_server || seed / 3 % 3 > 0;
  result.split.settings.recompute = drawn_recomputation(seed, result.split.graph);
  if (is_sharded(result.split.settings.synchronization) && seed % 3 == 1) {
    StrategySettings& settings = result.split.settings;
    settings.sharding = drawn_sharding(seed, result.split.graph);
    settings.synchronization = Synchronization::all_reduce;
    for (const OperatorSharding& one : settings.sharding)
      settings.synchronization = std::max(settings.synchronization, one.synchronization);
  }
  if (seed % 3 == 0) result.split.issue_order = random_issue_order(result.split, random);
  else if (of_one && seed % 2 == 0) result.split.issue_order = one_forward_one_backward_order(result.split, ranks);
  const OptimizerSettings optimizer =
      drawn_optimizer(seed, result.split.settings.synchronization != Synchronization::parameter_server);
  for (StrategyFile* file : {&result.one_device, &result.split}) set_optimizer(file->graph, optimizer);
  result.text = "seed " + std::to_string(seed) + ", " + std::to_string(ranks) + " ranks, " +
                std::string(to_string(result.split.settings.synchronization)) + " (" +
                written_sharding(result.split.settings) + "), " + std::to_string(result.split.settings.micro_batches) +
                " micro-batches, reductions " + (result.split.settings.overlaps_reductions ? "with" : "after") +
                " backward, " + optimizer_to_json(optimizer).dump() + ", recomputes";
  for (const std::string& name : result.split.settings.recompute) result.text += " " + name;
  result.text += "\n" + network.dump(1);
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
  outcome.has_gradients = !is_sharded(file.settings.synchronization);
  const TrainerSettings settings{file.graph.optimizer.value_or(OptimizerSettings{0.05, 0.9, 0.01}), 7};
  const auto data = synthetic_data(file.graph, 7);
  Vector<int64_t> samples(file.graph.batch_size);
  std::iota(samples.begin(), samples.end(), 0);
  Trainer trainer(file, backend, transport, settings);
  if (look) look(trainer.program());
  trainer.load_batch(*data, samples);
  for (int i = 0; i < iterations; ++i) {
    outcome.losses.push_back(sum(transport, trainer.run_iteration()));
    if (outcome.has_gradients)
      outcome.gradients.push_back(gather_parameters(trainer.program(), ParameterData::gradient));
    outcome.weights.push_back(gather_parameters(trainer.program(), ParameterData::weight));
  }
  outcome.states = gather_states(trainer.program());
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
    if (found.has_gradients) compare(found.gradients[i], expected.gradients[i], tolerance, "gradient" + when, text);
    compare(found.weights[i], expected.weights[i], tolerance, "weight" + when, text);
  }
  for (const auto& [name, values] : expected.states) compare(found.states.at(name), values, tolerance, name, text);
  compare(found.evaluation.loss, expected.evaluation.loss, tolerance, "evaluation", text);
  return text;
}

}  // namespace ff
