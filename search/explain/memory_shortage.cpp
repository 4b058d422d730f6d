#include "search/explain/memory_shortage.h"

#include <algorithm>
#include <map>

#include "common/task_graph/issue_order.h"
#include "common/task_graph/live_memory.h"
#include "common/task_graph/shared_kernels.h"
#include "search/explain/critical_path.h"
#include "search/explain/decisions.h"
#include "search/explain/settings_remedies.h"
#include "search/explain/what_if.h"
#include "search/optimizer/search_space.h"

namespace ff {
namespace {

constexpr const char *whole_gradients = "gradients of parameters, not yet reduced", *whole_weights = "gathered weights";

std::string kind_name(BufferKey::Kind kind) {
  using enum BufferKey::Kind;
  switch (kind) {
    case output:
    case recomputed_output:
    case input:
    case input_gathered_again: return "activations";
    case input_gradient:
    case output_gradient: return "gradients of activations";
    case packed_activation:
    case received_activation:
    case packed_gradient:
    case received_gradient:
    case received_parameter_gradient:
    case packed_parameter_values:
    case received_parameter_values: return "transfers";
    case packed_parameter_gradient: return whole_gradients;
    case gathered_parameters: return whole_weights;
  }
  return "";
}

std::string buffer_owner(const TaskGraphBuilder& builder, const BufferKey& key) {
  const auto& operators = builder.graph().operators;
  if (key.kind <= BufferKey::Kind::output_gradient || key.kind == BufferKey::Kind::recomputed_output ||
      key.kind == BufferKey::Kind::input_gathered_again)
    return operators[key.what].name;
  if (key.kind > BufferKey::Kind::received_gradient) return builder.groups()[key.what].name;
  const Edge& edge = builder.edges()[key.what];
  return operators[edge.producer].name + "->" + operators[edge.consumer].name;
}

DeviceId fullest_device(const Topology& topology, const Vector<int64_t>& bytes) {
  const auto share = [&](DeviceId device) {
    const int64_t capacity = topology.model_of(device).memory_bytes;
    return capacity > 0 ? static_cast<double>(bytes[device]) / static_cast<double>(capacity) : 0;
  };
  DeviceId fullest = 0;
  for (const DeviceId device : bytes.indices())
    if (std::pair(share(device), bytes[device]) > std::pair(share(fullest), bytes[fullest])) fullest = device;
  return fullest;
}

// What kernels on the device keep from the forward to the backward pass and use as scratch memory, by operator type:
// the largest first, those after the third together.
Vector<MemoryItem> workspaces(const Graph& graph, MemoryModel& memory, const Evaluator::Details& details,
                              const MemoryPlan& plan) {
  std::map<std::string, int64_t> by_type;
  for (const auto& [op, part] : shared_kernels(graph, details.strategy, details.tasks, plan.steps).kernels) {
    by_type[graph.operators[op].definition->type()] += memory.workspace_bytes(op, details.strategy[op].degrees, part);
  }
  Vector<MemoryItem> items;
  for (const auto& [type, bytes] : by_type)
    if (bytes > 0) items.push_back({"saved by " + type + " (workspace)", bytes});
  std::stable_sort(items.begin(), items.end(),
                   [](const MemoryItem& a, const MemoryItem& b) { return a.bytes > b.bytes; });
  constexpr int most_types = 3;
  if (items.count() <= most_types + 1) return items;
  MemoryItem others{"saved by other operators (workspace)", 0};
  for (int i = most_types; i < items.count(); ++i) others.bytes += items[i].bytes;
  items.resize(most_types);
  items.push_back(others);
  return items;
}

}  // namespace

MemoryPeak memory_peak(Evaluator& evaluator, const Evaluator::Details& details) {
  MemoryPeak peak;
  const Topology& topology = evaluator.problem().topology;
  peak.device = fullest_device(topology, details.memory_bytes);
  peak.needed = details.memory_bytes[peak.device];
  peak.capacity = topology.model_of(peak.device).memory_bytes;
  MemoryModel::Needs needs =
      evaluator.memory_model().needs(details.strategy, details.tasks, details.order, details.transfer_buffers);
  Vector<bool> fullest(needs.plans.size(), false);
  fullest[peak.device] = true;
  lay_out(needs.plans, fullest);
  const MemoryPlan& plan = needs.plans[peak.device];
  const Vector<int64_t> by_step = live_bytes(plan);
  const int step = static_cast<int>(std::max_element(by_step.begin(), by_step.end()) - by_step.begin());
  const TaskGraphBuilder& builder = evaluator.builder();
  if (step < plan.steps.count()) peak.task = task_name(builder, details.tasks, plan.steps[step]);
  std::map<std::string, int64_t> live;
  std::map<std::pair<std::string, std::string>, std::pair<Vector<std::string>, int64_t>> alike;
  int64_t all = 0;
  for (const PlannedBuffer& buffer : plan.buffers) {
    if (buffer.first > step || buffer.last < step) continue;
    const std::string kind = kind_name(buffer.key.kind), owner = buffer_owner(builder, buffer.key);
    live[kind] += aligned(buffer.bytes);
    all += aligned(buffer.bytes);
    auto& [names, bytes] = alike[{kind, without_numbers(owner)}];
    names.push_back(owner);
    bytes += aligned(buffer.bytes);
  }
  peak.kinds = {{evaluator.problem().state_buffers > 0 ? "parameters, their gradients and optimizer states"
                                                       : "parameters and their gradients",
                 needs.parameters[peak.device]}};
  for (const char* kind : {"activations", "gradients of activations", "transfers"})
    peak.kinds.push_back({kind, live[kind]});
  if (shards_gradients(builder.synchronization())) peak.kinds.push_back({whole_gradients, live[whole_gradients]});
  if (shards_parameters(builder.synchronization())) peak.kinds.push_back({whole_weights, live[whole_weights]});
  int64_t rest = needs.other[peak.device];
  for (const MemoryItem& item : workspaces(builder.graph(), evaluator.memory_model(), details, plan)) {
    peak.kinds.push_back(item);
    rest -= item.bytes;
  }
  if (needs.scratch[peak.device] > 0) peak.kinds.push_back({"scratch memory of kernels", needs.scratch[peak.device]});
  peak.kinds.push_back({"inputs, losses, statistics", rest});
  peak.kinds.push_back({"gaps between buffers", plan.arena_bytes - all});
  for (auto& [key, value] : alike)
    peak.largest.push_back({key.first + " of " + joined_names(std::move(value.first)), value.second});
  std::stable_sort(peak.largest.begin(), peak.largest.end(),
                   [](const MemoryItem& a, const MemoryItem& b) { return a.bytes > b.bytes; });
  return peak;
}

namespace {

// Looks for another configuration of some operators with which the strategy fits.
class ChangeFinder {
 public:
  ChangeFinder(Evaluator& evaluator, const Strategy& strategy)
      : evaluator_(evaluator), strategy_(strategy), problem_(evaluator.problem()),
        space_(problem_.graph, problem_.topology, false, problem_.annotations) {}

  // The fastest that fits among the changes of one operator, else among those of operators that are alike.
  std::optional<MemoryRemedy> find() {
    Vector<Decision> alike = differences(problem_.graph, strategy_, Strategy(strategy_.size()));
    Vector<Decision> single;
    for (const Decision& decision : alike) {  // the layers of a decision are alike: the first stands for them
      single.push_back(decision);
      single.back().operators.resize(1);
      single.back().name = problem_.graph.operators[decision.operators[0]].name;
    }
    for (const Vector<Decision>& decisions : {single, alike})
      if (auto found = fastest(decisions)) return found;
    return several();
  }

 private:
  static constexpr int most_judged = 24;         // exactly
  static constexpr int most_tried_together = 8;  // configurations of operators that change together
  static constexpr int most_together = 8;        // changes, where one is not enough

  struct Candidate {
    Decision decision;
    double fullness;
  };

  std::string text_of(const Decision& decision) const {
    return decision.name + ": " + configuration_text(problem_.graph, decision.operators[0], decision.to);
  }

  std::optional<MemoryRemedy> fastest(const Vector<Decision>& decisions) {
    Vector<Candidate> candidates;
    const Vector<double> least = least_fullness(decisions);
    for (const int d : decisions.indices())
      if (least[d] <= 1) add_candidates(decisions[d], candidates);
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.fullness < b.fullness; });
    if (candidates.count() > most_judged) candidates.resize(most_judged);
    std::optional<MemoryRemedy> best;
    for (const Candidate& candidate : candidates) {
      const Decision& decision = candidate.decision;
      const Prediction prediction = evaluator_.evaluate(with_decision(strategy_, decision));
      if (!prediction.feasible() || (best && best->predicted <= prediction.makespan)) continue;
      best = {text_of(decision), prediction.makespan, prediction.fullness};
    }
    return best;
  }

  // Where no one change is enough: change upon change, each the one that then saves most.
  std::optional<MemoryRemedy> several() {
    const Strategy start = strategy_;
    std::optional<MemoryRemedy> result;
    for (int changes = 0; changes < most_together && !result; ++changes) {
      const double now = evaluator_.fullness(evaluator_.estimated_memory(strategy_));
      std::optional<Candidate> best;
      double most_saved = 0;
      for (const auto& [can_be_saved, decision] : largest_first(now)) {
        if (can_be_saved <= most_saved) break;
        const Vector<Candidate> candidates = changes_of_first(decision, /*slices=*/false);
        if (candidates.empty()) continue;
        const double saved = (now - candidates[0].fullness) * static_cast<double>(decision.operators.size());
        if (saved <= most_saved) continue;
        most_saved = saved;
        best = candidates[0];
      }
      if (!best) break;
      strategy_ = with_decision(std::move(strategy_), best->decision);
      if (evaluator_.fullness(evaluator_.estimated_memory(strategy_)) > 1) continue;
      const Prediction prediction = evaluator_.evaluate(strategy_);
      if (prediction.feasible()) result = {"", prediction.makespan, prediction.fullness};
    }
    if (result)
      for (const Decision& decision : differences(problem_.graph, start, strategy_))
        result->what += (result->what.empty() ? "" : "; ") + text_of(decision);
    strategy_ = start;
    return result;
  }

  // [decision]: how full the fullest device is at least, whatever the operators' configuration.
  Vector<double> least_fullness(const Vector<Decision>& decisions) {
    MemoryModel& memory = evaluator_.memory_model();
    memory.reset(evaluator_.expanded(strategy_));
    Vector<double> least;
    for (const Decision& decision : decisions) {
      least.push_back(evaluator_.fullness(memory.without(decision.operators)));
      memory.undo();
    }
    return least;
  }

  // What the first operator of each decision can save at most, times how many there are: the most first.
  Vector<std::pair<double, Decision>> largest_first(double now) {
    Vector<std::pair<double, Decision>> result;
    Vector<Decision> first;
    for (Decision& decision : differences(problem_.graph, strategy_, Strategy(strategy_.size()))) {
      first.push_back(decision);
      first.back().operators.resize(1);
      result.emplace_back(static_cast<double>(decision.operators.size()), std::move(decision));
    }
    const Vector<double> least = least_fullness(first);
    for (const int d : least.indices()) result[d].first *= now - least[d];
    std::stable_sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    return result;
  }

  // Those that may fit, as far as is known from the estimate of memory.
  void add_candidates(const Decision& decision, Vector<Candidate>& candidates) {
    for (Candidate& candidate : changes_together(decision))
      if (candidate.fullness <= 1) candidates.push_back(std::move(candidate));
  }

  // Those of operators that change together: the best of what helps the first of them.
  Vector<Candidate> changes_together(const Decision& decision) {
    Vector<Candidate> own = changes_of_first(decision, /*slices=*/true);
    if (decision.operators.count() == 1) return own;
    if (own.count() > most_tried_together) own.resize(most_tried_together);
    for (Candidate& candidate : own)
      candidate.fullness =
          evaluator_.fullness(evaluator_.estimated_memory(with_decision(strategy_, candidate.decision)));
    return own;
  }

  // On consecutive devices, by the memory that is needed when the first operator alone changes.
  Vector<Candidate> changes_of_first(const Decision& decision, bool slices) {
    const OperatorId op = decision.operators[0];
    Vector<Candidate> result;
    if (space_.fixed_devices(op)) return result;
    Vector<Degrees> all = space_.degrees(op);
    if (slices)
      for (Degrees& degrees : space_.sliced_degrees(op)) all.push_back(std::move(degrees));
    evaluator_.memory_model().reset(evaluator_.expanded(strategy_));
    for (const Degrees& degrees : all) {
      Candidate candidate{decision, 0};
      candidate.decision.to = {degrees, {}};
      for (int part = 0; part < parts_of(degrees); ++part)
        candidate.decision.to.devices.push_back(part % problem_.topology.devices.count());
      if (candidate.decision.to == decision.from) continue;
      Strategy changed = strategy_;
      changed[op] = candidate.decision.to;
      candidate.fullness =
          evaluator_.fullness(evaluator_.memory_model().change({{op, changed[op]}}, evaluator_.expanded(changed)));
      evaluator_.memory_model().undo();
      result.push_back(std::move(candidate));
    }
    std::stable_sort(result.begin(), result.end(),
                     [](const Candidate& a, const Candidate& b) { return a.fullness < b.fullness; });
    return result;
  }

  Evaluator& evaluator_;
  Strategy strategy_;
  const Problem problem_;
  const SearchSpace space_;
};

std::optional<MemoryRemedy> smaller_batch(Evaluator& evaluator, const Strategy& strategy) {
  const Problem& problem = evaluator.problem();
  const auto with = [&](int64_t batch) -> std::optional<Prediction> {
    try {
      const Graph graph = with_batch(problem, strategy, batch);
      return Evaluator(problem.with(graph, problem.topology)).evaluate(strategy);
    } catch (const InputError&) {  // the strategy cannot split so few samples
      return std::nullopt;
    }
  };
  // Memory grows with the batch: bisection, over the samples of a micro-batch.
  const int64_t micro_batches = problem.settings.micro_batches;
  int64_t fits = 0, too_large = problem.graph.batch_size;
  Prediction best;
  while (too_large - fits > 1) {
    const int64_t batch = fits + (too_large - fits) / 2;
    const auto prediction = with(batch * micro_batches);
    if (prediction && !prediction->feasible()) too_large = batch;
    else fits = batch;  // what cannot be split is smaller than all that can
    if (prediction && prediction->feasible()) best = *prediction;
  }
  if (best.makespan == 0) return std::nullopt;
  return MemoryRemedy{
      "batch " + std::to_string(fits * micro_batches) + " instead of " + std::to_string(problem.whole().batch_size),
      best.makespan, best.fullness};
}

}  // namespace

Vector<MemoryRemedy> memory_remedies(Evaluator& evaluator, const Strategy& strategy,
                                     const Evaluator::Details& details) {
  Vector<MemoryRemedy> remedies;
  const Prediction own_order = evaluator.evaluate(strategy);
  if (own_order.feasible()) {
    if (evaluator.fullness(details.memory_bytes) > 1)
      remedies.push_back({"the order and transfer buffers that ffsearch simulate --out writes", own_order.makespan,
                          own_order.fullness});
    return remedies;
  }
  if (auto change = ChangeFinder(evaluator, strategy).find()) remedies.push_back(std::move(*change));
  if (auto batch = smaller_batch(evaluator, strategy)) remedies.push_back(std::move(*batch));
  for (MemoryRemedy& remedy : settings_remedies(evaluator.problem(), strategy, details.tasks.tasks.count()))
    remedies.push_back(std::move(remedy));
  return remedies;
}

}  // namespace ff
