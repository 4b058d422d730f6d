#include "search/explain/explain.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "common/readable.h"
#include "common/sharding.h"
#include "common/strategy_configurations.h"
#include "search/explain/critical_path.h"
#include "search/explain/decisions.h"
#include "search/explain/memory_shortage.h"
#include "search/explain/what_if.h"

namespace ff {
namespace {

std::string column(std::string text, size_t width) {
  text.resize(std::max(text.size() + 1, width), ' ');
  return text;
}

std::string right(const std::string& text, size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

std::string share_text(Nanoseconds part, Nanoseconds whole) {
  return right(with_number("%.1f %%", 100 * static_cast<double>(part) / static_cast<double>(whole)), 8);
}

std::string signed_time(Nanoseconds time) { return (time < 0 ? "-" : "+") + time_text(std::abs(time)); }

std::string change_text(Nanoseconds change, Nanoseconds whole) {
  return right(signed_time(change), 13) +
         right(with_number("(%+.1f %%)", 100 * static_cast<double>(change) / static_cast<double>(whole)), 12);
}

std::string heading(const Problem& problem) {
  return problem.graph.name + ", batch " + std::to_string(problem.whole().batch_size) + ", on " +
         problem.topology.name + " (" + std::to_string(problem.topology.devices.size()) +
         (problem.topology.devices.size() == 1 ? " device)\n" : " devices)\n");
}

std::string more_text(int64_t all, int limit, const std::string& what) {
  return all > limit ? "  and " + std::to_string(all - limit) + " more " + what + " (--limit)\n" : "";
}

std::string piece_kind(const PathPiece& piece, const LinkKinds& links) {
  return std::string(to_string(piece.kind)) + (piece.link_kind < 0 ? "" : " over " + links.names()[piece.link_kind]);
}

Json piece_to_json(const PathPiece& piece, const LinkKinds& links, bool with_begin) {
  Json json = {{"what", joined_names(piece.names)}, {"kind", std::string(to_string(piece.kind))}};
  if (piece.link_kind >= 0) json["link"] = links.names()[piece.link_kind];
  if (with_begin) json["begin_us"] = to_us(piece.begin);
  json.update({{"us", to_us(piece.time)},
               {"tasks", piece.tasks},
               {"waited_for_us",
                {{"data", to_us(piece.after_data)},
                 {"device busy", to_us(piece.after_device)},
                 {"link busy", to_us(piece.after_link)}}}});
  return json;
}

// "data", "link busy", or with their shares where there are several.
std::string waits_text(const PathPiece& piece) {
  std::string text;
  for (const auto& [wait, time] : {std::pair{Wait::data, piece.after_data}, std::pair{Wait::device, piece.after_device},
                                   std::pair{Wait::link, piece.after_link}}) {
    if (time == 0) continue;
    text += (text.empty() ? "" : ", ") + std::string(to_string(wait));
    if (time < piece.time)
      text += with_number(" %.0f %%", 100 * static_cast<double>(time) / static_cast<double>(piece.time));
  }
  return text.empty() ? "nothing" : text;
}

void explain_path(Evaluator& evaluator, const Evaluator::Details& details, int limit, Explanation& result) {
  const Topology& topology = evaluator.problem().topology;
  const LinkKinds links(topology);
  const TimelineCauses causes(details.tasks, details.costs, details.timeline, details.fifo_order);
  const Vector<PathPiece> pieces =
      path_pieces(evaluator.builder(), details.tasks, details.costs, details.timeline, causes, links);
  const Vector<PathPiece> merged = merged_pieces(pieces);
  const Nanoseconds makespan = details.timeline.makespan;
  std::map<std::string, Nanoseconds> kinds;
  for (const PathPiece& piece : merged) kinds[piece_kind(piece, links)] += piece.time;
  Vector<std::pair<std::string, Nanoseconds>> by_time(kinds.begin(), kinds.end());
  std::stable_sort(by_time.begin(), by_time.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  result.text += "\ncritical path: the chain of tasks that sets the iteration time\n";
  Json& json = result.json["critical_path"] = {{"kinds", Json::object()}, {"pieces", Json::array()}};
  for (const auto& [kind, time] : by_time) {
    result.text += "  " + column(kind, 44) + right(time_text(time), 12) + share_text(time, makespan) + "\n";
    json["kinds"][kind] = to_us(time);
  }
  for (const PathPiece& piece : pieces) json["pieces"].push_back(piece_to_json(piece, links, true));
  result.text += "\nits pieces, merged by operator and kind, and what they waited for\n";
  for (const int p : merged.indices()) {
    if (p == limit) break;
    result.text += "  " + column(joined_names(merged[p].names), 44) + right(time_text(merged[p].time), 12) +
                   share_text(merged[p].time, makespan) + "  " + column(piece_kind(merged[p], links), 36) +
                   std::to_string(merged[p].tasks) + (merged[p].tasks == 1 ? " task" : " tasks") +
                   "; waited for: " + waits_text(merged[p]) + "\n";
  }
  result.text += more_text(merged.count(), limit, "pieces");
}

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

void explain_decisions(Evaluator& evaluator, const Strategy& strategy, Nanoseconds makespan, int limit,
                       Explanation& result) {
  const Problem& problem = evaluator.problem();
  const Strategy plain = problem.keeping_annotations(data_parallel(problem.graph, problem.topology));
  const Vector<Effect> undone = effects(evaluator, strategy, plain, false);
  const Prediction all = evaluator.evaluate(plain);
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

void explain_what_if(const Problem& problem, const Strategy& strategy, const Vector<std::string>& questions,
                     Nanoseconds makespan, Explanation& result) {
  if (questions.empty()) return;
  result.text += "\nwhat if: the same strategy\n";
  Json& json = result.json["what_if"] = Json::array();
  for (const std::string& question : questions) {
    const WhatIf answer = what_if(problem, strategy, question);
    const double rate = static_cast<double>(answer.batch_size) * 1e9 / static_cast<double>(answer.predicted);
    result.text += "  " + column(answer.text, 34) + change_text(answer.predicted - makespan, makespan) + "  " +
                   time_text(answer.predicted) + with_number(", %.1f samples/s", rate) +
                   (answer.fullness > 0 ? with_number(", needs %.0f %% of the memory", 100 * answer.fullness) : "") +
                   "\n";
    json.push_back({{"what_if", answer.text},
                    {"predicted_us", to_us(answer.predicted)},
                    {"change_us", to_us(answer.predicted - makespan)},
                    {"samples_per_s", rate},
                    {"fits_memory", answer.fullness <= 1},
                    {"memory_share", answer.fullness}});
  }
}

Json items_to_json(const Vector<MemoryItem>& items) {
  Json json = Json::object();
  for (const MemoryItem& item : items) json[item.name] = item.bytes;
  return json;
}

void explain_memory(Evaluator& evaluator, const Strategy& strategy, const Evaluator::Details& details,
                    const ExplainSettings& settings, Explanation& result) {
  const int limit = settings.limit;
  const Topology& topology = evaluator.problem().topology;
  const MemoryPeak peak = memory_peak(evaluator, details);
  const bool fits = peak.fullness() <= 1;
  Json& json = result.json["memory"] = {{"fits", fits},
                                        {"device", peak.device},
                                        {"bytes", peak.needed},
                                        {"capacity_bytes", peak.capacity},
                                        {"peak_task", peak.task},
                                        {"kinds", items_to_json(peak.kinds)},
                                        {"largest", items_to_json(peak.largest)}};
  const std::string at = "device " + std::to_string(peak.device) + " (" + topology.devices[peak.device].name + ")";
  result.text += "\nmemory: " + at + " needs " + bytes_text(peak.needed);
  if (peak.capacity > 0)
    result.text += " of " + bytes_text(peak.capacity) + with_number(", %.1f %%", 100 * peak.fullness()) +
                   (fits ? "" : ": exceeds device memory by " + bytes_text(peak.needed - peak.capacity));
  result.text += "\n  at the peak, during " + (peak.task.empty() ? "the end of the iteration" : peak.task) + ":\n";
  for (const MemoryItem& item : peak.kinds)
    if (item.bytes > 0) result.text += "  " + column(item.name, 52) + right(bytes_text(item.bytes), 12) + "\n";
  if (fits) return;
  result.text += "  largest temporary buffers:\n";
  for (const int i : peak.largest.indices())
    if (i < limit)
      result.text += "    " + column(peak.largest[i].name, 58) + right(bytes_text(peak.largest[i].bytes), 12) + "\n";
  if (!settings.part.is_whole()) return;  // the changes are of whole batches
  result.text += "  smallest changes with which the strategy fits:\n";
  Json& remedies = json["remedies"] = Json::array();
  for (const MemoryRemedy& remedy : memory_remedies(evaluator, strategy, details)) {
    result.text += "    " + column(remedy.what, 58) + right(time_text(remedy.predicted), 12) +
                   with_number(", needs %.1f %% of the memory", 100 * remedy.fullness) + "\n";
    remedies.push_back(
        {{"what", remedy.what}, {"predicted_us", to_us(remedy.predicted)}, {"memory_share", remedy.fullness}});
  }
  if (remedies.empty())
    result.text +=
        "    none was found: neither other configurations of a few operators, nor a smaller batch, nor other "
        "settings\n";
}

void describe_part(const ExplainedPart& part, Explanation& result) {
  if (part.is_whole()) return;
  result.json["explained_micro_batches"] = part.micro_batches;
  result.json["micro_batches"] = part.of_all;
  result.text += "explained            an iteration with " + std::to_string(part.micro_batches) + " of " +
                 std::to_string(part.of_all) +
                 " micro-batches, in 1F1B order. All numbers are of that; what is\n"
                 "                     done once an iteration, such as reducing gradients, has a larger share of it\n";
}

}  // namespace

void expect_answerable(const Topology& topology, const ExplainSettings& settings) {
  for (const std::string& question : settings.what_if)
    if (changed_problem(topology, question).batch > 0 && !settings.part.is_whole())
      throw InputError("--what-if \"" + question + "\": of this plan only " +
                       std::to_string(settings.part.micro_batches) + " of " + std::to_string(settings.part.of_all) +
                       " micro-batches are simulated; use ffsearch simulate --settings with --batch");
}

Explanation explain_strategy(const Problem& problem, const StrategyFile& file, const ExplainSettings& settings) {
  Evaluator evaluator(problem);
  const Evaluator::Details details = evaluator.details_of_file(file);
  const Nanoseconds makespan = details.timeline.makespan;
  Explanation result;
  result.json = {{"graph", problem.graph.name}, {"topology", problem.topology.name}, {"predicted_us", to_us(makespan)}};
  result.text =
      heading(problem) + "predicted iteration  " + time_text(makespan) + "  (" +
      with_number("%.1f", static_cast<double>(problem.whole().batch_size) * 1e9 / static_cast<double>(makespan)) +
      " samples/s)\n";
  describe_part(settings.part, result);
  explain_path(evaluator, details, settings.limit, result);
  // What changes a strategy or a machine is compared with tasks as they become ready, whatever the file's order.
  const Nanoseconds fifo = details.makespan_fifo;
  result.json["predicted_fifo_us"] = to_us(fifo);
  if (!details.fifo_order)
    result.text += "\nThe plan has its own task order. In FIFO order the iteration takes " + time_text(fifo) +
                   "; the tables\nbelow compare with that.\n";
  explain_decisions(evaluator, file.strategy, fifo, settings.limit, result);
  explain_what_if(problem, file.strategy, settings.what_if, fifo, result);
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

void explain_effects(Evaluator& evaluator, const Strategy& a, const Strategy& b, int limit, Explanation& result) {
  const Graph& graph = evaluator.problem().graph;
  const Vector<Effect> found = effects(evaluator, a, b, true);
  Vector<Decision> decisions;
  for (const Effect& effect : found) decisions.push_back(effect.decision);
  const Nanoseconds makespan = evaluator.evaluate(a).makespan;
  result.text += operators_text(decisions, graph) + "what each difference alone changes, from a towards b\n";
  for (const Effect& effect : found) result.json["differences"].push_back(effect_to_json(graph, effect, "a", "b"));
  for (const int e : found.indices())
    if (e < limit) result.text += effect_text(graph, found[e], makespan, " -> ");
  result.text += more_text(found.count(), limit, "differences") + "  " + column("all of them", 34) +
                 change_text(evaluator.evaluate(b).makespan - makespan, makespan) + "\n";
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
  result.text = heading(problem);
  describe_part(part, result);
  const Vector<std::string> settings = settings_differences(a, b);
  describe_plan("a", compared_plan(evaluator_a, a), !settings.empty(), result);
  describe_plan("b", compared_plan(evaluator_b, b), !settings.empty(), result);
  result.json["settings"] = settings;
  result.json["differences"] = Json::array();
  if (!settings.empty()) result.text += "\nsettings of b that differ\n";
  for (const std::string& difference : settings) result.text += "  " + difference + "\n";
  const Vector<Decision> decisions = differences(problem.graph, a.strategy, b.strategy);
  if (decisions.empty()) result.text += "\nno operator differs\n";
  else if (settings.empty()) explain_effects(evaluator_a, a.strategy, b.strategy, limit, result);
  else list_differences(problem.graph, decisions, limit, result);
  return result;
}

Explanation describe_edit(const Problem& problem, const Strategy& before, const Strategy& after,
                          Nanoseconds predicted_before, Nanoseconds predicted_after) {
  Explanation result;
  const Nanoseconds change = predicted_after - predicted_before;
  Json changes = Json::array();
  result.text = heading(problem);
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
