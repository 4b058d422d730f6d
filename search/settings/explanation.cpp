#include "search/settings/explanation.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "common/readable.h"
#include "search/explain/sections.h"
#include "search/explain/what_if.h"
#include "search/settings/plan_answers.h"
#include "search/settings/prediction.h"

namespace ff {
namespace {

// What predictions of a plan and of its changes have in common.
struct Explained {
  Parallelism parallelism;  // with all its values
  const Graph& graph;
  const Topology& topology;
  CostOptions costs;

  Explained(const PlanOfFile& plan, const CostOptions& given)
      : parallelism(completed(plan.parallelism, plan.file.graph, plan.file.topology)), graph(plan.file.graph),
        topology(plan.file.topology), costs(given) {
    costs.precision = costs.precision.value_or(plan.file.settings.precision);
  }
  SettingsPrediction predict(const Parallelism& other) const {
    return predict_settings(other, graph, topology, costs, Extrapolation::steady);
  }
};

using Values = std::map<std::string, std::string>;  // of settings, by key

Values values_of(const Parallelism& parallelism) {
  Values values = values_by_key(parallelism);
  values.erase("dp");  // follows from the others
  return values;
}

// "tp=4,pp=8": of the second, where it differs; "dp=4" and what is at its default are left out.
std::string difference_text(const Parallelism& from, const Parallelism& to) {
  const Values before = values_of(from), after = values_of(to);
  std::string text;
  const auto add = [&](const std::string& item) { text += (text.empty() ? "" : ",") + item; };
  for (const auto& [key, value] : after)
    if (const auto old = before.find(key); old == before.end() || old->second != value) add(key + "=" + value);
  for (const auto& [key, value] : before)
    if (!after.contains(key)) add("without " + key);
  return text;
}

struct ChangedSetting {
  std::string what;  // difference_text
  SettingsPrediction prediction;
};

// The next smaller and the next larger number of chunks a stage with which all chunks have equally many layers, where
// those of the plan do; else the next ones.
Vector<int> next_chunks(const Parallelism& own, int layers) {
  Vector<int> result;
  if (own.pipeline == 1) return result;
  const auto equal = [&](int chunks) { return layers % (own.pipeline * chunks) == 0; };
  for (const int step : {-1, 1})
    for (int chunks = own.chunks + step; chunks >= 1 && chunks <= layers / own.pipeline; chunks += step)
      if (equal(chunks) || !equal(own.chunks)) {
        result.push_back(chunks);
        break;
      }
  return result;
}

// The next values of each setting, in both directions; the rest of the plan stays, and dp follows.
Vector<Parallelism> neighbours(const Parallelism& own, int layers) {
  Vector<Parallelism> result;
  const auto add = [&](const std::function<void(Parallelism&)>& change) {
    Parallelism other = own;
    other.data = 0;
    change(other);
    if (other.pipeline == 1) other.chunks = 1;
    const bool other_stages = other.pipeline != own.pipeline || other.chunks != own.chunks;
    if (other_stages || other.of_layer() != own.of_layer()) other.stage_data.clear();
    if (other_stages || other.stage_data != own.stage_data) other.layers.clear();
    result.push_back(std::move(other));
  };
  const auto add_next = [&](int Parallelism::*degree) {
    add([&](Parallelism& other) { other.*degree *= 2; });
    if (own.*degree % 2 == 0) add([&](Parallelism& other) { other.*degree /= 2; });
  };
  const bool framework = own.framework != "none";
  add_next(&Parallelism::tensor);
  add_next(&Parallelism::pipeline);
  add_next(&Parallelism::expert);
  if (framework || own.context > 1) add_next(&Parallelism::context);  // else few devices stand for others: slow
  for (const int chunks : next_chunks(own, layers)) add([&](Parallelism& other) { other.chunks = chunks; });
  if (!own.stage_data.empty()) add([](Parallelism& other) { other.stage_data.clear(); });
  add([](Parallelism& other) { other.micro_batch *= 2; });
  if (own.micro_batch % 2 == 0) add([](Parallelism& other) { other.micro_batch /= 2; });
  for (const Synchronization sharding : {Synchronization::all_reduce, Synchronization::sharded_optimizer,
                                         Synchronization::sharded_gradients, Synchronization::sharded_parameters})
    add([&](Parallelism& other) {
      other.synchronization = sharding;
      other.shard_group = 0;
    });
  for (const Recomputation recompute : {Recomputation::none, Recomputation::norms, Recomputation::elementwise,
                                        Recomputation::selective, Recomputation::full})
    add([&](Parallelism& other) {
      other.recompute = recompute;
      other.recompute_layers = 0;
    });
  add([&](Parallelism& other) { other.overlaps_reductions = !overlaps_reductions(own); });
  if (own.framework == "megatron") {
    add([&](Parallelism& other) { other.fp8 = !own.fp8, other.fp8_weights = false; });
    add([&](Parallelism& other) { other.fp8 = true, other.fp8_weights = !own.fp8_weights; });
  }
  if (framework && own.tensor > 1) add([&](Parallelism& other) { other.sequence_parallel = !own.sequence_parallel; });
  return result;
}

// Those that are plans and change something, the fastest that fits first.
Vector<ChangedSetting> changed_settings(const Explained& plan, const SettingsPrediction& itself) {
  Vector<ChangedSetting> result;
  std::set<std::string> seen = {to_string(plan.parallelism)};
  const int layers = transformer_layers(plan.graph).count();
  for (const Parallelism& other : neighbours(plan.parallelism, layers)) try {
      const Parallelism whole = parse_parallelism(to_string(completed(other, plan.graph, plan.topology)));
      if (!seen.insert(to_string(whole)).second) continue;
      const SettingsPrediction found = plan.predict(whole);
      if (found.makespan == itself.makespan && found.memory_bytes == itself.memory_bytes) continue;  // says nothing
      result.push_back({difference_text(plan.parallelism, whole), found});
    } catch (const InputError&) {    // no plan: something does not divide something
    } catch (const MachineError&) {  // no devices stand for others, and all of them are too many
    }
  std::stable_sort(result.begin(), result.end(), [](const ChangedSetting& a, const ChangedSetting& b) {
    return std::pair(!a.prediction.fits(), a.prediction.makespan) <
           std::pair(!b.prediction.fits(), b.prediction.makespan);
  });
  return result;
}

Json changed_to_json(const ChangedSetting& changed, Nanoseconds makespan) {
  return {{"setting", changed.what},
          {"settings", to_string(changed.prediction.parallelism)},
          {"predicted_us", to_us(changed.prediction.makespan)},
          {"change_us", to_us(changed.prediction.makespan - makespan)},
          {"memory_share", changed.prediction.memory_share},
          {"fits_memory", changed.prediction.fits()}};
}

std::string changed_text(const ChangedSetting& changed, Nanoseconds makespan) {
  const double share = changed.prediction.memory_share;
  return "  " + column(changed.what, 34) + change_text(changed.prediction.makespan - makespan, makespan) +
         (share > 0 ? with_number("  needs %.0f %% of the memory", 100 * share) : "") +
         (changed.prediction.fits() ? "" : ": does not fit") + "\n";
}

void explain_changes(const Explained& plan, const SettingsPrediction& itself, int limit, Explanation& result) {
  const Nanoseconds makespan = itself.makespan;
  const Vector<ChangedSetting> changes = changed_settings(plan, itself);
  result.text += "\nsettings: predicted change if one of them is another; the others stay, dp follows\n";
  Json& json = result.json["changed_settings"] = Json::array();
  for (const int c : changes.indices()) {
    json.push_back(changed_to_json(changes[c], makespan));
    if (c < limit) result.text += changed_text(changes[c], makespan);
  }
  if (changes.empty()) result.text += "  none: no other value of a setting is a plan for these devices\n";
  result.text += more_text(changes.count(), limit, "settings");
}

struct Question {
  std::string text;  // as asked
  Graph graph;
  Topology topology;
};
// Throws InputError for what is no question, and for a batch of which there is no such plan.
Vector<Question> parsed_questions(const Explained& plan, const Vector<std::string>& texts) {
  Vector<Question> questions;
  for (const std::string& text : texts) try {
      ChangedProblem changed = changed_problem(plan.topology, text);
      const int64_t batch = changed.batch > 0 ? changed.batch : plan.graph.batch_size;
      questions.push_back({text, with_batch_size(plan.graph, batch, "batch"), std::move(changed.topology)});
      Parallelism own = plan.parallelism;
      if (changed.batch > 0) plan_of(own, questions.back().graph, plan.topology);
    } catch (const InputError& error) {
      const std::string flag = "--what-if", what = error.what();
      throw InputError(what.starts_with(flag) ? what : flag + " \"" + text + "\": " + what);
    }
  return questions;
}

Vector<WhatIf> answers_of(const Explained& plan, const Vector<Question>& questions) {
  Vector<WhatIf> answers;
  for (const Question& question : questions) {
    const SettingsPrediction found =
        predict_settings(plan.parallelism, question.graph, question.topology, plan.costs, Extrapolation::steady);
    answers.push_back({question.text, found.makespan, found.memory_share, question.graph.batch_size});
  }
  return answers;
}

// So many micro-batches as are simulated for the path and the memory.
ExplainedPart simulated_part(const SimulatedSettings& settings, const Explained& plan, const ExplainedPart& given) {
  const int all = micro_batches_of(plan.parallelism, plan.graph);
  if (given.of_all > 1) return given;
  SimulatedSettings::Iteration one(settings, 1);
  return explained_part(all, one.evaluator().tasks(settings.strategy()).tasks.count(), plan.parallelism.pipeline,
                        most_explained_tasks);
}

}  // namespace

Explanation explain_settings(const PlanOfFile& file, const CostOptions& costs, const ExplainSettings& given) {
  const Explained plan(file, costs);
  const Vector<Question> questions = parsed_questions(plan, given.what_if);  // before it takes long
  const SimulatedSettings settings = simulated_settings(plan.parallelism, file.file, costs);
  const ExplainedPart part = simulated_part(settings, plan, given.part);
  SimulatedSettings::Iteration iteration(settings, part.micro_batches);
  Evaluator& evaluator = iteration.evaluator();
  const Evaluator::Details details = part.micro_batches > 1
                                         ? evaluator.details(settings.strategy(), TaskOrder::one_forward_one_backward)
                                         : evaluator.details(settings.strategy(), TaskOrder::fifo);
  const SettingsPrediction whole = plan.predict(plan.parallelism);
  const Nanoseconds makespan = part.is_whole() ? details.timeline.makespan : whole.makespan;
  const int devices = plan.topology.devices.count();
  Explanation result;
  result.json = {{"graph", plan.graph.name},
                 {"topology", plan.topology.name},
                 {"settings", to_string(plan.parallelism)},
                 {"predicted_us", to_us(makespan)}};
  result.text = heading(plan.graph, plan.topology) + "settings             " + to_string(plan.parallelism) + "\n" +
                predicted_text(plan.graph.batch_size, makespan);
  if (const Replicas* replicas = settings.replicas()) {
    const int simulated =
        replicas->stand_ins.empty() ? replicas->devices.count() : replicas->devices_with_tasks().count();
    result.json["simulated_devices"] = simulated;
    result.text += "simulated            " + std::to_string(simulated) + " of " + std::to_string(devices) +
                   " devices; the others do the same as one of these\n";
  }
  describe_part(part, "Critical path and memory are of that", result);
  explain_path(evaluator, details, given.limit, result);
  const Vector<SettingsPrediction> plans = {whole};
  const Explanation stages = time_by_stage({plan.graph, plan.topology, plan.costs, plans});
  result.text += "\n" + stages.text;
  result.json["stages"] = stages.json;
  explain_changes(plan, whole, given.limit, result);
  describe_answers(answers_of(plan, questions), "settings", whole.makespan, result);
  explain_peak(evaluator, details, given.limit, result);
  return result;
}

Explanation explain_settings_difference(const PlanOfFile& a, const PlanOfFile& b, const CostOptions& costs, int limit) {
  const Explained from(a, costs);
  const Parallelism to = completed(b.parallelism, b.file.graph, b.file.topology);
  const SettingsPrediction of_a = from.predict(from.parallelism), of_b = from.predict(to);
  Explanation result;
  result.text = heading(from.graph, from.topology);
  for (const auto& [name, plan] : {std::pair("a", &of_a), std::pair("b", &of_b)}) {
    result.json[name] = {{"settings", to_string(plan->parallelism)},
                         {"predicted_us", to_us(plan->makespan)},
                         {"memory_bytes", plan->memory_bytes},
                         {"fits_memory", plan->fits()}};
    result.text += std::string(name) + ": predicted iteration " + time_text(plan->makespan) + "; " +
                   bytes_text(plan->memory_bytes) + " on the fullest device" + (plan->fits() ? "" : ", does not fit") +
                   "\n   " + to_string(plan->parallelism) + "\n";
  }
  const Values before = values_of(from.parallelism), after = values_of(to);
  std::set<std::string> keys;
  for (const Values* values : {&before, &after})
    for (const auto& [key, value] : *values) keys.insert(key);
  result.text += "\nsettings that differ; what each alone changes, from a towards b\n";
  Json& json = result.json["differences"] = Json::array();
  int shown = 0;
  for (const std::string& key : keys) {
    const auto in_a = before.find(key), in_b = after.find(key);
    const auto value = [](auto found, const Values& values) { return found == values.end() ? "" : found->second; };
    if (value(in_a, before) == value(in_b, after)) continue;
    Values changed = before;
    changed.erase(key);
    if (in_b != after.end()) changed.insert(*in_b);
    std::string text;
    for (const auto& [name, of] : changed) text += (text.empty() ? "" : ",") + name + "=" + of;
    const std::string what = in_b == after.end() ? "without " + key : key + "=" + in_b->second;
    try {
      const ChangedSetting alone{what, from.predict(parse_parallelism(text))};
      json.push_back(changed_to_json(alone, of_a.makespan));
      if (shown < limit) result.text += changed_text(alone, of_a.makespan);
    } catch (const InputError& error) {
      json.push_back({{"setting", what}, {"no_plan", error.what()}});
      if (shown < limit) result.text += "  " + column(what, 34) + "  no plan alone\n";
    }
    ++shown;
  }
  if (shown == 0) result.text += "  none\n";
  result.text += more_text(shown, limit, "differences") + "  " + column("all of them", 34) +
                 change_text(of_b.makespan - of_a.makespan, of_a.makespan) + "\n";
  return result;
}

}  // namespace ff
