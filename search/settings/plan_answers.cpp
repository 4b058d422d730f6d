#include "search/settings/plan_answers.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>

#include "search/explain/what_if.h"
#include "search/report/line.h"
#include "search/report/summary.h"
#include "search/settings/refinement.h"

namespace ff {
namespace {

double microseconds(Nanoseconds time) { return static_cast<double>(time) / 1000; }

// Of a setting that may be at its default.
std::string value_of(const Parallelism& parallelism, const std::string& key) {
  const std::map<std::string, std::string> values = values_by_key(parallelism);
  const auto found = values.find(key);
  if (found != values.end()) return found->second;
  if (key == "stage_dp") return "equal";
  if (key == "shard_group")
    return is_sharded(parallelism.synchronization) ? std::to_string(parallelism.ranks_of_parameters()) : "none";
  if (key == "etp") return std::to_string(parallelism.of_expert());
  if (key == "overlap_grad_reduce") return overlaps_reductions(parallelism) ? "on" : "off";
  return key == "overlap_param_gather" ? "off" : "1";
}

const char* name_of(LookedAt::Outcome outcome) {
  switch (outcome) {
    case LookedAt::Outcome::fits:
    case LookedAt::Outcome::slower: return "simulated";
    case LookedAt::Outcome::estimated: return "estimated";
    case LookedAt::Outcome::bounded: return "at least";
    case LookedAt::Outcome::exceeds_memory: break;
  }
  return "exceeds memory";
}

// Of what fits the fastest, else of what may fit the one with the least estimate, else what needs the least memory.
bool better(const LookedAt& a, const LookedAt& b) {
  using enum LookedAt::Outcome;
  const auto rank = [](const LookedAt& one) { return one.outcome == fits ? 0 : one.outcome == exceeds_memory ? 2 : 1; };
  if (rank(a) != rank(b)) return rank(a) < rank(b);
  return a.outcome == exceeds_memory ? a.memory_share < b.memory_share : a.time < b.time;
}

std::string row(const std::string& name, const LookedAt& one, Nanoseconds best) {
  const bool exceeds = one.outcome == LookedAt::Outcome::exceeds_memory;
  const std::string slower =
      exceeds ? "" : line("%+.1f %%", 100 * (static_cast<double>(one.time) / static_cast<double>(best) - 1));
  const std::string memory = one.memory_share > 0 ? line("%.0f %%", 100 * one.memory_share) : "";
  return line("  %-22s %-14s %11s %9s %7s  %s\n", name.c_str(), name_of(one.outcome),
              exceeds ? "" : time_text(one.time).c_str(), slower.c_str(), memory.c_str(),
              to_string(one.parallelism).c_str());
}

std::string seconds(Nanoseconds time) { return time_text(time); }

Graph changed_graph(const Graph& graph, const ChangedProblem& changed, const std::string& change) {
  return changed.batch > 0 ? with_batch_size(graph, changed.batch, "--what-if \"" + change + "\"") : graph;
}

// "tp=4": its key and value; "tp": no value.
std::pair<std::string, std::string> key_and_value(const std::string& setting) {
  const size_t end = std::min(setting.find('='), setting.size());
  const std::string key = setting.substr(0, end);
  static const Vector<std::string> keys = {"tp",
                                           "pp",
                                           "vp",
                                           "dp",
                                           "stage_dp",
                                           "cp",
                                           "ep",
                                           "etp",
                                           "micro_batch",
                                           "sharding",
                                           "shard_group",
                                           "recompute",
                                           "overlap_grad_reduce",
                                           "overlap_param_gather"};
  if (std::find(keys.begin(), keys.end(), key) == keys.end())
    throw InputError("--why " + setting + ": is none of the settings that a search compares" + suggestion(key, keys));
  if (end + 1 == setting.size() || setting.find(',') != std::string::npos)
    throw InputError("--why " + setting + ": expected a setting, or one of its values such as " + key + "=1");
  return {key, end == setting.size() ? "" : setting.substr(end + 1)};
}

// The options of the same search with this value given.
SettingsSearchOptions with_value(SettingsSearchOptions options, const std::string& key, const std::string& value) {
  options.top = 1;
  options.progress = nullptr;
  options.improved = nullptr;
  if (key == "stage_dp" && value == "equal") {
    options.equal_stages = true;
    return options;
  }
  if (key == "shard_group" && value == "none") return with_value(std::move(options), "sharding", "none");
  Parallelism& pinned = options.pinned;
  if (key == "shard_group" && !options.given.contains("sharding")) {  // what the framework shards in groups
    const bool parameters =
        can_shard_in_groups(pinned.framework, Synchronization::sharded_parameters) && pinned.framework != "megatron";
    options = with_value(std::move(options), "sharding", parameters ? "parameters" : "optimizer");
  }
  const std::string text =
      key + "=" + value + ",framework=" + pinned.framework + (key == "shard_group" ? ",sharding=optimizer" : "");
  const Parallelism parsed = parse_parallelism((key == "vp" ? "pp=2," : "") + text);  // checks it
  set_value(pinned, key, value);
  options.given.insert(key);
  if (key == "stage_dp") {
    pinned.pipeline = parsed.pipeline;
    pinned.data = parsed.data;
    options.given.insert({"pp", "dp"});
  }
  return options;
}

// The best with this value; nothing where the budget ended before.
std::optional<LookedAt> searched_best(const SettingsQuestion& question, const std::string& key,
                                      const std::string& value, const std::atomic<bool>& stop) {
  const SettingsPrediction& best = question.result.best[0];
  if (value_of(best.parallelism, key) == value)
    return LookedAt{best.parallelism, LookedAt::Outcome::fits, best.makespan, best.memory_share};
  SettingsSearchOptions options = with_value(question.options, key, value);
  if (options.budget_s > 0) {
    options.budget_s -= question.result.elapsed_s;
    if (options.budget_s <= 0) return std::nullopt;
  }
  const SettingsSearchResult found = search_settings(question.graph, question.topology, question.costs, options, stop);
  if (!found.best.empty()) {
    const SettingsPrediction& plan = found.best[0];
    return LookedAt{plan.parallelism, LookedAt::Outcome::fits, plan.makespan, plan.memory_share};
  }
  const LookedAt* const least = found.complete ? with_least_memory(found) : nullptr;
  if (!least) return std::nullopt;
  return LookedAt{least->parallelism, LookedAt::Outcome::exceeds_memory, least->time, least->memory_share};
}

}  // namespace

Explanation best_by_value(const SettingsQuestion& question, const std::string& setting, const std::atomic<bool>& stop) {
  const auto [key, asked] = key_and_value(setting);
  std::map<std::pair<size_t, std::string>, LookedAt> best;  // numbers in their order
  for (const LookedAt& one : question.result.looked_at) {
    const std::string value = value_of(one.parallelism, key);
    if (!asked.empty() && asked != value) continue;
    const auto [known, is_new] = best.try_emplace({value.size(), value}, one);
    if (!is_new && better(one, known->second)) known->second = one;
  }
  if (!asked.empty() && best.empty()) {
    const std::optional<LookedAt> found = searched_best(question, key, asked, stop);
    if (found) best.try_emplace({asked.size(), asked}, *found);
  } else {
    for (auto& [value, one] : best)
      if (const auto found = searched_best(question, key, value.second, stop)) one = *found;
  }
  Explanation answer{Json::array(), "the best " + (asked.empty() ? "for each value of " + key : "with " + setting) +
                                        " (time, slower by, share of memory):\n"};
  for (const auto& [value, one] : best) {
    answer.text += row(key + "=" + value.second, one, question.result.best[0].makespan);
    answer.json.push_back({{"setting", key + "=" + value.second},
                           {"outcome", name_of(one.outcome)},
                           {"settings", to_string(one.parallelism)},
                           {"time_us", microseconds(one.time)},
                           {"memory_share", one.memory_share}});
  }
  if (answer.json.empty()) answer.text = setting + ": the budget ended before a plan was found\n";
  return answer;
}

Explanation time_by_stage(const PlanQuestion& question) {
  const SettingsPrediction& plan = question.plans[0];
  const Vector<StageTimes> stages = stage_times(plan.parallelism, question.graph, question.topology, question.costs);
  Explanation answer{Json::array(),
                     "an iteration by stage, on the device that computes longest; collectives and "
                     "transfers may run beside computation\n"
                     "  stage  layers      forward     backward  recomputed      update      slowed        idle  "
                     "collectives    transfers  synchronized\n"};
  bool slowed = false;
  for (const int s : stages.indices()) {
    const StageTimes& stage = stages[s];
    const Nanoseconds idle = std::max<Nanoseconds>(0, plan.makespan - stage.busy());
    slowed = slowed || stage.slowed > 0;
    answer.text += line("  %5d  %6d  %11s  %11s  %10s  %10s  %10s  %10s  %11s  %11s  %12s\n", s, stage.layers,
                        seconds(stage.forward).c_str(), seconds(stage.backward).c_str(),
                        seconds(stage.recompute).c_str(), seconds(stage.update).c_str(), seconds(stage.slowed).c_str(),
                        seconds(idle).c_str(), seconds(stage.collectives).c_str(), seconds(stage.transfers).c_str(),
                        seconds(stage.synchronization).c_str());
    answer.json.push_back({{"layers", stage.layers},
                           {"forward_us", microseconds(stage.forward)},
                           {"backward_us", microseconds(stage.backward)},
                           {"recompute_us", microseconds(stage.recompute)},
                           {"update_us", microseconds(stage.update)},
                           {"slowed_us", microseconds(stage.slowed)},
                           {"idle_us", microseconds(idle)},
                           {"collectives_us", microseconds(stage.collectives)},
                           {"transfers_us", microseconds(stage.transfers)},
                           {"synchronization_us", microseconds(stage.synchronization)}});
  }
  if (slowed) answer.text += "  slowed: what kernels take longer beside collectives of gradients and parameters\n";
  return answer;
}

void check_questions(const Graph& graph, const Topology& topology, const SettingsSearchOptions& options,
                     const Vector<std::string>& why, const Vector<std::string>& what_if) {
  for (const std::string& setting : why)
    if (const auto [key, value] = key_and_value(setting); !value.empty()) try {
        with_value(options, key, value);
      } catch (const InputError& error) {
        throw InputError("--why " + setting + ": " + error.what());
      }
  for (const std::string& change : what_if) changed_graph(graph, changed_problem(topology, change), change);
}

Explanation plans_under_change(const PlanQuestion& question, const std::string& change) {
  const ChangedProblem changed = changed_problem(question.topology, change);
  const Graph graph = changed_graph(question.graph, changed, change);
  constexpr int most = 5;
  Vector<SettingsPrediction> plans;
  std::string refused;  // why the first plan is not possible
  for (int p = 0; p < std::min(most, question.plans.count()); ++p) try {
      plans.push_back(predict_settings(question.plans[p].parallelism, graph, changed.topology, question.costs,
                                       Extrapolation::steady));
    } catch (const InputError& error) {
      if (p == 0) refused = error.what();
    }
  Explanation answer{{{"change", change}}, "what if " + change + ": "};
  if (!refused.empty()) answer.json["not_possible"] = refused;
  if (plans.empty()) {
    answer.text += "none of the first plans is possible: " + refused + "\n";
    return answer;
  }
  const auto best = std::min_element(plans.begin(), plans.end(), [](const auto& a, const auto& b) {
    return std::pair(!a.fits(), a.makespan) < std::pair(!b.fits(), b.makespan);
  });
  if (refused.empty()) {
    const SettingsPrediction& first = plans[0];
    const double ratio = static_cast<double>(first.makespan) / static_cast<double>(question.plans[0].makespan) - 1;
    answer.text += "the first plan takes " + time_text(first.makespan) + line(" (%+.1f %%)", 100 * ratio) +
                   (first.fits() ? "; " : ", and exceeds device memory; ");
    answer.json["predicted_us"] = microseconds(first.makespan);
    answer.json["fits_memory"] = first.fits();
  } else {
    answer.text += "the first plan is not possible: " + refused + "; ";
  }
  if (!best->fits()) answer.text += "none of the first plans fits\n";
  else if (refused.empty() && best == plans.begin()) answer.text += "it stays the fastest of the first plans\n";
  else answer.text += "the fastest is then " + to_string(best->parallelism) + ", " + time_text(best->makespan) + "\n";
  answer.json["best"] = to_string(best->parallelism);
  answer.json["best_us"] = microseconds(best->makespan);
  answer.json["best_fits_memory"] = best->fits();
  return answer;
}

Explanation largest_batch(const PlanQuestion& question) {
  const SettingsPrediction& plan = question.plans[0];
  const int64_t unit = question.graph.batch_size / plan.parallelism.micro_batch;  // batch of micro-batches of 1
  const auto with = [&](int64_t size) {
    Parallelism parallelism = plan.parallelism;
    parallelism.micro_batch = size;
    return predict_settings(parallelism, with_batch_size(question.graph, unit * size, "the largest batch"),
                            question.topology, question.costs, Extrapolation::steady);
  };
  SettingsPrediction largest = plan;
  int64_t exceeds = 0;
  constexpr int64_t most = 1 << 16;
  for (int64_t size = 2 * plan.parallelism.micro_batch; size <= most; size *= 2) {
    const SettingsPrediction found = with(size);
    if (!found.fits()) exceeds = size;
    else largest = found;
    if (exceeds > 0) break;
  }
  while (exceeds - largest.parallelism.micro_batch > 1) {
    const SettingsPrediction found = with((exceeds + largest.parallelism.micro_batch) / 2);
    if (found.fits()) largest = found;
    else exceeds = found.parallelism.micro_batch;
  }
  const int64_t batch = unit * largest.parallelism.micro_batch;
  const double samples_per_s = static_cast<double>(batch) * 1e9 / static_cast<double>(largest.makespan);
  return {{{"batch", batch},
           {"micro_batch", largest.parallelism.micro_batch},
           {"predicted_us", microseconds(largest.makespan)},
           {"memory_share", largest.memory_share}},
          "largest batch        " + std::to_string(batch) + " samples, in micro-batches of " +
              std::to_string(largest.parallelism.micro_batch) + ", with the first plan otherwise: " +
              time_text(largest.makespan) + line(", %.1f samples/s\n", samples_per_s)};
}

std::string nothing_fits_text(const SettingsSearchResult& result) {
  const LookedAt* least = with_least_memory(result);
  if (!least) return "";
  return line("; the least that was met is %.2f times the memory of a device, by ", least->memory_share) +
         to_string(least->parallelism);
}

}  // namespace ff
