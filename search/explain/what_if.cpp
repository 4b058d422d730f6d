#include "search/explain/what_if.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "common/first_devices.h"
#include "common/strategy_configurations.h"
#include "search/explain/link_kinds.h"
#include "search/optimizer/device_nodes.h"

namespace ff {
namespace {

constexpr double least_factor = 1e-3, most_factor = 1e3;

std::string joined(const Vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

[[noreturn]] void fail(const std::string& text, const std::string& why) {
  std::string forms;
  for (const std::string& form : what_if_forms()) forms += "\n  " + form;
  throw InputError("--what-if \"" + text + "\": " + why + "; the forms are:" + forms);
}

// "x2", "x0.5"
double factor(const std::string& text, const std::string& word) {
  size_t used = 0;
  double value = 0;
  try {
    if (word.size() > 1 && word[0] == 'x') value = std::stod(word.substr(1), &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used + 1 != word.size() || !(value >= least_factor && value <= most_factor))
    fail(text, "found \"" + word + "\", expected a factor from x0.001 to x1000, such as x2");
  return value;
}

int64_t number(const std::string& text, const std::string& word, int64_t least, int64_t most) {
  int64_t value = 0;
  bool digits = !word.empty() && word.size() < 16;
  for (const char letter : word) {
    digits = digits && letter >= '0' && letter <= '9';
    if (digits) value = 10 * value + (letter - '0');
  }
  if (!digits || value < least || value > most)
    fail(text, "found \"" + word + "\", expected a whole number from " + std::to_string(least) + " to " +
                   std::to_string(most));
  return value;
}

// Channels and models may be another's; routes are looked for anew.
Topology refreshed(const Topology& topology) { return topology.with_devices(first_devices(topology.devices.count())); }

WhatIf evaluated(const std::string& text, const Problem& problem, const Strategy& strategy) {
  Evaluator evaluator(problem);
  const Prediction prediction = evaluator.evaluate(strategy);
  return {text, prediction.makespan, prediction.fullness, problem.whole().batch_size};
}

Topology with_links(const std::string& text, const Vector<std::string>& words, const Topology& original) {
  const LinkKinds links(original);
  const Vector<int> kinds = links.matching(words[1]);
  if (kinds.empty())
    fail(text, "this machine has no link of kind \"" + words[1] + "\", it has " + joined(links.names()));
  const double by = factor(text, words[3]);
  Topology topology = original;
  for (const int kind : kinds)
    for (const ChannelId id : links.channels_of(kind)) {
      Channel& channel = topology.channels[id];
      (words[2] == "bandwidth" ? channel.bandwidth_gb_per_s : channel.latency_us) *= by;
      (words[2] == "bandwidth" ? channel.all_reduce_gb_per_s : channel.all_reduce_latency_us) *= by;
    }
  return refreshed(topology);
}

Topology with_memory(double by, const Topology& original) {
  Topology topology = original;
  for (DeviceModel& model : topology.models)
    model.memory_bytes = static_cast<int64_t>(std::llround(static_cast<double>(model.memory_bytes) * by));
  return topology;
}

// "device D" or "node N", each by number or name.
Vector<DeviceId> devices_of(const std::string& text, const Vector<std::string>& words, const Topology& topology) {
  const std::string& name = words[1];
  if (words[0] == "node") {
    const Vector<Vector<DeviceId>> nodes = devices_by_node(topology);
    for (const Vector<DeviceId>& node : nodes)
      if (topology.devices[node[0]].node == name) return node;
    return nodes[static_cast<int>(number(text, name, 0, nodes.count() - 1))];
  }
  for (const DeviceId d : topology.devices.indices())
    if (topology.devices[d].name == name) return {d};
  return {static_cast<DeviceId>(number(text, name, 0, topology.devices.count() - 1))};
}

Topology with_slower_devices(const std::string& text, const Vector<std::string>& words, const Topology& original) {
  const Vector<DeviceId> devices = devices_of(text, words, original);
  const double by = factor(text, words[2]);
  Topology topology = original;
  std::map<int, int> slower;  // by model: of those that are changed
  for (const DeviceId device : devices) {
    int& own = topology.devices[device].model;
    const auto [found, is_new] = slower.try_emplace(own, topology.models.count());
    if (is_new) {
      DeviceModel model = topology.models[own];
      model.name += " " + words[2];
      for (double* const rate :
           {&model.peak_tflops, &model.peak_tf32_tflops, &model.peak_bf16_tflops, &model.memory_gb_per_s})
        *rate *= by;
      model.launch_us /= by;
      topology.models.push_back(std::move(model));
    }
    own = found->second;
  }
  return refreshed(topology);
}

// Their kernels stay what they are, measured or not: each takes 1/F of the time.
WhatIf with_devices(const std::string& text, const Vector<std::string>& words, const Problem& problem,
                    const Strategy& strategy) {
  const Vector<DeviceId> devices = devices_of(text, words, problem.topology);
  const double by = factor(text, words[2]);
  Evaluator evaluator(problem);
  const Prediction prediction = evaluator.evaluate(strategy);
  const Strategy all = evaluator.expanded(strategy);
  const TaskGraph tasks = evaluator.builder().build(all);
  TaskCosts costs = evaluator.cost_model().costs(tasks, all);
  const auto scaled = [&](Nanoseconds time) {
    return std::max<Nanoseconds>(1, std::llround(static_cast<double>(time) / by));
  };
  for (const int t : tasks.tasks.indices()) {
    const Task& task = tasks.tasks[t];
    const bool changes = std::find(devices.begin(), devices.end(), task.device) != devices.end();
    if (!changes || !occupies_device(task.kind)) continue;
    costs.duration[t] = scaled(costs.duration[t]);
    for (ResourceUse& use : costs.use_ranges[t].of(std::span(costs.uses))) use.occupancy = scaled(use.occupancy);
  }
  return {text, simulate_full(tasks, costs).makespan, prediction.fullness, problem.whole().batch_size};
}

}  // namespace

const Vector<std::string>& what_if_forms() {
  static const Vector<std::string> forms = {
      "link KIND bandwidth xF   (KIND: such as gpu-host, or one end of it: network)",
      "link KIND latency xF",
      "memory xF",
      "batch N",
      "device D xF              (D: number or name; x0.5: half as fast)",
      "node N xF                (all devices of a node; N: its number or name)",
  };
  return forms;
}

Graph with_batch(const Problem& problem, const Strategy& strategy, int64_t batch) {
  const int micro_batches = problem.settings.micro_batches;
  if (batch % micro_batches != 0)
    throw InputError("batch " + std::to_string(batch) + ": is not divisible by " + std::to_string(micro_batches) +
                     " micro-batches");
  Graph graph = with_batch_size(problem.graph, batch / micro_batches, "batch " + std::to_string(batch));
  const Json configurations = configurations_to_json(problem.graph, strategy, {});
  parse_configurations(
      JsonPlace(std::make_shared<Json>(configurations), "the strategy with batch " + std::to_string(batch)), graph,
      problem.topology);
  return graph;
}

namespace {

// The words of a form; it fails for anything else.
Vector<std::string> words_of_form(const std::string& text) {
  std::istringstream stream(text);
  Vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  const std::string first = words.empty() ? "" : words[0];
  const bool known = (first == "link" && words.size() == 4 && (words[2] == "bandwidth" || words[2] == "latency")) ||
                     ((first == "memory" || first == "batch") && words.size() == 2) ||
                     ((first == "device" || first == "node") && words.size() == 3);
  if (!known) fail(text, "not understood");
  return words;
}

int64_t batch_of(const std::string& text, const std::string& word) { return number(text, word, 1, int64_t{1} << 32); }

}  // namespace

ChangedProblem changed_problem(const Topology& topology, const std::string& text) {
  const Vector<std::string> words = words_of_form(text);
  if (words[0] == "link") return {with_links(text, words, topology)};
  if (words[0] == "memory") return {with_memory(factor(text, words[1]), topology)};
  if (words[0] == "batch") return {topology, batch_of(text, words[1])};
  return {with_slower_devices(text, words, topology)};
}

WhatIf what_if(const Problem& problem, const Strategy& strategy, const std::string& text) {
  const Vector<std::string> words = words_of_form(text);
  if (words[0] == "device" || words[0] == "node") return with_devices(text, words, problem, strategy);
  if (words[0] == "batch") {
    const Graph graph = with_batch(problem, strategy, batch_of(text, words[1]));
    return evaluated(text, problem.with(graph, problem.topology), strategy);
  }
  const Topology topology = words[0] == "link" ? with_links(text, words, problem.topology)
                                               : with_memory(factor(text, words[1]), problem.topology);
  return evaluated(text, problem.with(topology), strategy);
}

}  // namespace ff
