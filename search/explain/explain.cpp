#include "search/explain/explain.h"

#include <algorithm>

#include "common/readable.h"
#include "common/sharding.h"
#include "common/strategy_configurations.h"
#include "search/explain/decisions.h"
#include "search/explain/memory_shortage.h"
#include "search/explain/sections.h"
#include "search/explain/what_if.h"

namespace ff {
namespace {

Json effect_to_json(const Graph& graph, const Effect& effect, const std::string& from, const std::string& to) {
  Json operators = Json::array();
  for (const OperatorId op : effect.decision.operators) operators.push_back(graph.operators[op].name);
  Json json = {{"what", effect.decision.name},
               {"operators", operators},
               {from, configuration_to_json(graph.operators[effect.decision.operators[0]], effect.decision.from)},
               {to, configuration_to_json(graph.operators[effect.decision.operators[0]], effect.decision.to)},
               {"predicted_us", to_us(effect.predicted)},
               {"change_us", to_us(effect.change)}};
  if (effect.fullness > 0) json["memory_share"] = effect.fullness;
  return json;
}

std::string effect_text(const Graph& graph, const Effect& effect, Nanoseconds whole, const std::string& arrow) {
  const OperatorId op = effect.decision.operators[0];
  const std::string fits = effect.fits() ? "" : with_number("; needs %.2f times the memory", effect.fullness);
  return "  " + column(effect.decision.name, 34) + change_text(effect.change, whole) + "  " +
         configuration_text(graph, op, effect.decision.from) + arrow +
         configuration_text(graph, op, effect.decision.to) + fits + "\n";
}

// In FIFO order more micro-batches are in flight than in a plan's own order: what they need says nothing of the plan.
Vector<Effect> effects_in_fifo_order(Evaluator& evaluator, const Strategy& from, const Strategy& to, bool either_way,
                                     const Evaluator::Details& plan) {
  Vector<Effect> result = effects(evaluator, from, to, either_way);
  if (!plan.fifo_order)
    for (Effect& effect : result) effect.fullness = 0;
  return result;
}

void explain_decisions(Evaluator& evaluator, const Strategy& strategy, const Evaluator::Details& plan, int limit,
                       Explanation& result) {
  const Problem& problem = evaluator.problem();
  const Nanoseconds makespan = plan.makespan_fifo;
  const Strategy plain = problem.keeping_annotations(data_parallel(problem.graph, problem.topology));
  const Vector<Effect> undone = effects_in_fifo_order(evaluator, strategy, plain, false, plan);
  // Its time as they become ready; does it fit in any order?
  const double fullness = evaluator.evaluate(plain).fullness;
  const Prediction all = Evaluator::prediction(evaluator.simulated(plain).makespan_fifo, fullness);
  result.json["data_parallel"] = {{"predicted_us", to_us(all.makespan)}, {"fits_memory", all.feasible()}};
  Json& json = result.json["decisions"] = Json::array();
  result.text += "\ndecisions that differ from data parallelism: predicted change if one of them is undone\n";
  for (const Effect& effect : undone)
    json.push_back(effect_to_json(problem.graph, effect, "configuration", "data_parallel"));
  for (const int e : undone.indices())
    if (e < limit) result.text += effect_text(problem.graph, undone[e], makespan, "; undone: ");
  if (undone.empty()) result.text += "  none: this is data parallelism\n";
  else
    result.text += more_text(undone.count(), limit, "decisions") + "  " + column("all of them", 34) +
                   change_text(all.makespan - makespan, makespan) +
                   (all.feasible() ? "" : with_number("  needs %.2f times the memory", all.fullness)) + "\n";
}

Vector<WhatIf> answers_of(const Problem& problem, const Strategy& strategy, const Vector<std::string>& questions) {
  Vector<WhatIf> answers;
  for (const std::string& question : questions) answers.push_back(what_if(problem, strategy, question));
  return answers;
}

void explain_memory(Evaluator& evaluator, const Strategy& strategy, const Evaluator::Details& details,
                    const ExplainSettings& settings, Explanation& result) {
  const bool fits = explain_peak(evaluator, details, settings.limit, result);
  if (fits || !settings.part.is_whole()) return;  // the changes are of whole batches
  result.text += "  smallest changes with which the strategy fits:\n";
  Json& remedies = result.json["memory"]["remedies"] = Json::array();
  for (const MemoryRemedy& remedy : memory_remedies(evaluator, strategy, details)) {
    result.text += "    " + column(remedy.what, 58) + right_aligned(time_text(remedy.predicted), 12) +
                   with_number(", needs %.1f %% of the memory", 100 * remedy.fullness) + "\n";
    remedies.push_back(
        {{"what", remedy.what}, {"predicted_us", to_us(remedy.predicted)}, {"memory_share", remedy.fullness}});
  }
  if (remedies.empty())
    result.text +=
        "    none was found: neither other configurations of a few operators, nor a smaller batch, nor other "
        "settings\n";
}

}  // namespace

void expect_answerable(const Problem& problem, const Strategy& strategy, const ExplainSettings& settings) {
  for (const std::string& question : settings.what_if) {
    const int64_t batch = changed_problem(problem.topology, question).batch;
    if (batch == 0) continue;
    if (!settings.part.is_whole())
      throw InputError("--what-if \"" + question + "\": of this plan only " +
                       std::to_string(settings.part.micro_batches) + " of " + std::to_string(settings.part.of_all) +
                       " micro-batches are simulated; use ffsearch simulate --settings with --batch");
    try {
      with_batch(problem, strategy, batch);
    } catch (const InputError& error) {
      throw InputError("--what-if \"" + question + "\": " + error.what());
    }
  }
}

Explanation explain_strategy(const Problem& problem, const StrategyFile& file, const ExplainSettings& settings) {
  Evaluator evaluator(problem);
  const Evaluator::Details details = evaluator.details_of_file(file);
  const Nanoseconds makespan = details.timeline.makespan;
  Explanation result;
  result.json = {{"graph", problem.graph.name}, {"topology", problem.topology.name}, {"predicted_us", to_us(makespan)}};
  result.text = heading(problem.whole(), problem.topology) + predicted_text(problem.whole().batch_size, makespan);
  describe_part(settings.part, "All numbers are of that", result);
  explain_path(evaluator, details, settings.limit, result);
  // What changes a strategy or a machine is compared with tasks as they become ready, whatever the file's order.
  const Nanoseconds fifo = details.makespan_fifo;
  result.json["predicted_fifo_us"] = to_us(fifo);
  if (!details.fifo_order)
    result.text += "\nThe plan has its own task order. In FIFO order the iteration takes " + time_text(fifo) +
                   "; the tables\nbelow compare with that.\n";
  explain_decisions(evaluator, file.strategy, details, settings.limit, result);
  describe_answers(answers_of(problem, file.strategy, settings.what_if), "strategy", fifo, result);
  explain_memory(evaluator, file.strategy, details, settings, result);
  return result;
}

namespace {

// "optimizer.momentum is 0.9 instead of 0": keys of objects one by one; of the operators the first that differs.
void add_differences(const std::string& key, const Json& a, const Json& b, Vector<std::string>& differences) {
  if (a == b) return;
  if (key == "operators" && a.is_array() && b.is_array()) {
    const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    const auto name = [](auto at, const Json& all) { return at == all.end() ? "none" : (*at)["name"].dump(); };
    const std::string name_a = name(in_a, a), name_b = name(in_b, b);
    if (a.size() != b.size())
      differences.push_back("the number of operators is " + std::to_string(b.size()) + " instead of " +
                            std::to_string(a.size()));
    if (name_a != name_b)
      differences.push_back("the first operator that differs is " + name_b + " instead of " + name_a);
    else add_differences("operator " + name_a, *in_a, *in_b, differences);
    return;
  }
  if (a.is_object() && b.is_object()) {
    Json keys = a;
    keys.update(b);
    const auto value = [](const Json& object, const std::string& inner) {
      return object.contains(inner) ? object[inner] : Json();
    };
    for (const auto& item : keys.items())
      add_differences((key.empty() ? "" : key + ".") + item.key(), value(a, item.key()), value(b, item.key()),
                      differences);
    return;
  }
  const auto text = [](const Json& value) {
    constexpr size_t most = 300;
    const std::string all = value.is_null() ? "not given" : value.dump();
    return all.size() > most ? all.substr(0, most) + " ..." : all;
  };
  differences.push_back(key + " is " + text(b) + " instead of " + text(a));
}

// What the name and the description of a graph say is not a difference.
Vector<std::string> graph_differences(Json a, Json b) {
  for (Json* graph : {&a, &b})
    for (const char* const key : {"$schema", "format", "description"}) graph->erase(key);
  Vector<std::string> differences;
  add_differences("", a, b, differences);
  const bool only_name = differences.size() == 1 && differences[0].starts_with("name is ");
  return only_name ? Vector<std::string>() : differences;
}

// Optimizers are a setting: graphs that differ in nothing else can be compared.
bool is_of_optimizer(const std::string& difference) { return difference.starts_with("optimizer"); }

// What a diff says of one of its plans.
struct ComparedPlan {
  Evaluator::Details details;
  int64_t memory_bytes;  // of the fullest device
  double fullness;
};

ComparedPlan compared_plan(Evaluator& evaluator, const StrategyFile& file) {
  ComparedPlan plan{evaluator.details_of_file(file), 0, 0};
  plan.memory_bytes = *std::max_element(plan.details.memory_bytes.begin(), plan.details.memory_bytes.end());
  plan.fullness = evaluator.fullness(plan.details.memory_bytes);
  return plan;
}

// With the memory, where settings differ.
void describe_plan(const char* which, const ComparedPlan& plan, bool with_memory, Explanation& result) {
  const Nanoseconds own = plan.details.timeline.makespan, fifo = plan.details.makespan_fifo;
  result.json[which] = {{"predicted_us", to_us(own)},
                        {"predicted_fifo_us", to_us(fifo)},
                        {"memory_bytes", plan.memory_bytes},
                        {"fits_memory", plan.fullness <= 1}};
  result.text += std::string(which) + ": predicted iteration " + time_text(own) +
                 (plan.details.fifo_order ? "" : ", in FIFO order " + time_text(fifo)) +
                 (with_memory ? "; " + bytes_text(plan.memory_bytes) + " on the fullest device" : "") +
                 (plan.fullness > 1 ? with_number(", needs %.2f times the memory", plan.fullness) : "") + "\n";
}

std::string operators_text(const Vector<Decision>& decisions, const Graph& graph) {
  int64_t operators = 0;
  for (const Decision& decision : decisions) operators += decision.operators.count();
  return "\n" + std::to_string(operators) + " of " + std::to_string(graph.operators.size()) + " operators differ; ";
}

void explain_effects(Evaluator& evaluator, const Strategy& a, const Strategy& b, const Evaluator::Details& plan_a,
                     Nanoseconds fifo_b, int limit, Explanation& result) {
  const Graph& graph = evaluator.problem().graph;
  const Vector<Effect> found = effects_in_fifo_order(evaluator, a, b, true, plan_a);
  Vector<Decision> decisions;
  for (const Effect& effect : found) decisions.push_back(effect.decision);
  const Nanoseconds makespan = plan_a.makespan_fifo;
  result.text += operators_text(decisions, graph) + "what each difference alone changes, from a towards b" +
                 (plan_a.fifo_order ? "" : ", in FIFO order") + "\n";
  for (const Effect& effect : found) result.json["differences"].push_back(effect_to_json(graph, effect, "a", "b"));
  for (const int e : found.indices())
    if (e < limit) result.text += effect_text(graph, found[e], makespan, " -> ");
  result.text += more_text(found.count(), limit, "differences") + "  " + column("all of them", 34) +
                 change_text(fifo_b - makespan, makespan) + "\n";
}

// Where settings differ too, no operator can be changed alone.
void list_differences(const Graph& graph, const Vector<Decision>& decisions, int limit, Explanation& result) {
  result.text += operators_text(decisions, graph) + "from a to b\n";
  for (const int d : decisions.indices()) {
    const Decision& decision = decisions[d];
    const OperatorId first = decision.operators[0];
    Json operators = Json::array();
    for (const OperatorId op : decision.operators) operators.push_back(graph.operators[op].name);
    result.json["differences"].push_back({{"what", decision.name},
                                          {"operators", operators},
                                          {"a", configuration_to_json(graph.operators[first], decision.from)},
                                          {"b", configuration_to_json(graph.operators[first], decision.to)}});
    if (d < limit)
      result.text += "  " + column(decision.name, 34) + configuration_text(graph, first, decision.from) + "  ->  " +
                     configuration_text(graph, first, decision.to) + "\n";
  }
  result.text += more_text(decisions.count(), limit, "differences");
}

// What strategies decide for the network as a whole.
Vector<std::string> settings_differences(const StrategyFile& a, const StrategyFile& b) {
  Vector<std::string> differences;
  const auto compare = [&](const std::string& what, const Json& in_a, const Json& in_b) {
    add_differences(what, in_a, in_b, differences);
  };
  compare("micro-batches", a.settings.micro_batches, b.settings.micro_batches);
  compare("recompute", Json(a.settings.recompute), Json(b.settings.recompute));
  const std::string sharding_a = written_sharding(a.settings), sharding_b = written_sharding(b.settings);
  compare("sharding", sharding_a, sharding_b);
  if (sharding_a == sharding_b)
    compare("synchronization", std::string(to_string(a.settings.synchronization)),
            std::string(to_string(b.settings.synchronization)));
  compare("reduction of gradients with backward", a.settings.overlaps_reductions, b.settings.overlaps_reductions);
  compare("precision", std::string(to_string(a.settings.precision)), std::string(to_string(b.settings.precision)));
  for (const std::string& difference : graph_differences(a.graph.file(), b.graph.file()))
    if (is_of_optimizer(difference)) differences.push_back(difference);
  return differences;
}

}  // namespace

void expect_comparable(const std::string& path_a, const StrategyFile& a, const std::string& path_b,
                       const StrategyFile& b) {
  Vector<std::string> differences = graph_differences(a.graph.file(), b.graph.file());
  std::erase_if(differences, is_of_optimizer);
  add_differences("the number of devices", a.topology.devices.size(), b.topology.devices.size(), differences);
  if (differences.empty()) return;
  std::string text = path_b + ": cannot be compared with " + path_a + ", because";
  for (const std::string& difference : differences) text += "\n  " + difference;
  throw InputError(text);
}

Explanation explain_difference(Evaluator& evaluator_a, const StrategyFile& a, Evaluator& evaluator_b,
                               const StrategyFile& b, int limit, const ExplainedPart& part) {
  const Problem& problem = evaluator_a.problem();
  Explanation result;
  result.text = heading(problem.whole(), problem.topology);
  describe_part(part, "All numbers are of that", result);
  const Vector<std::string> settings = settings_differences(a, b);
  const ComparedPlan plan_a = compared_plan(evaluator_a, a), plan_b = compared_plan(evaluator_b, b);
  describe_plan("a", plan_a, !settings.empty(), result);
  describe_plan("b", plan_b, !settings.empty(), result);
  result.json["settings"] = settings;
  result.json["differences"] = Json::array();
  if (!settings.empty()) result.text += "\nsettings of b that differ\n";
  for (const std::string& difference : settings) result.text += "  " + difference + "\n";
  const Vector<Decision> decisions = differences(problem.graph, a.strategy, b.strategy);
  if (decisions.empty()) result.text += "\nno operator differs\n";
  else if (settings.empty())
    explain_effects(evaluator_a, a.strategy, b.strategy, plan_a.details, plan_b.details.makespan_fifo, limit, result);
  else list_differences(problem.graph, decisions, limit, result);
  return result;
}

Explanation describe_edit(const Problem& problem, const Strategy& before, const Strategy& after,
                          Nanoseconds predicted_before, Nanoseconds predicted_after) {
  Explanation result;
  const Nanoseconds change = predicted_after - predicted_before;
  Json changes = Json::array();
  result.text = heading(problem.whole(), problem.topology);
  for (const Decision& decision : differences(problem.graph, before, after)) {
    const Operator& first = problem.graph.operators[decision.operators[0]];
    Json operators = Json::array();
    for (const OperatorId op : decision.operators) operators.push_back(problem.graph.operators[op].name);
    changes.push_back({{"what", decision.name},
                       {"operators", operators},
                       {"before", configuration_to_json(first, decision.from)},
                       {"after", configuration_to_json(first, decision.to)}});
    result.text += "  " + column(decision.name, 28) +
                   configuration_text(problem.graph, decision.operators[0], decision.from) + "  ->  " +
                   configuration_text(problem.graph, decision.operators[0], decision.to) + "\n";
  }
  if (changes.empty()) result.text += "  nothing changed: the operators have these configurations already\n";
  result.text += "predicted iteration  " + time_text(predicted_before) + " before, " + time_text(predicted_after) +
                 " after" + change_text(change, predicted_before) + "\n";
  result.json = {{"changes", changes},
                 {"before_us", to_us(predicted_before)},
                 {"predicted_us", to_us(predicted_after)},
                 {"change_us", to_us(change)}};
  return result;
}

}  // namespace ff
