#include "search/plan_command.h"

#include <algorithm>
#include <cstdio>
#include <functional>

#include "common/json_file.h"
#include "search/report/line.h"
#include "search/report/summary.h"
#include "search/settings/framework_settings.h"
#include "search/settings/plan_answers.h"

namespace ff {
namespace {

Json plan_to_json(const SettingsPrediction& plan) {
  return {{"settings", to_string(plan.parallelism)}, {"predicted_us", static_cast<double>(plan.makespan) / 1000},
          {"memory_bytes", plan.memory_bytes},       {"memory_share", plan.memory_share},
          {"extrapolated", plan.extrapolated},       {"exact", plan.exact}};
}

std::string plans_to_text(const Vector<SettingsPrediction>& plans) {
  std::string text = "       predicted   slower   memory  headroom  settings\n";
  bool steady = false;
  for (const int p : plans.indices()) {
    const SettingsPrediction& plan = plans[p];
    const double slower = static_cast<double>(plan.makespan) / static_cast<double>(plans[0].makespan) - 1;
    steady = steady || !plan.exact;
    const std::string headroom = plan.memory_share > 0 ? line("%.0f %%", 100 * (1 - plan.memory_share)) : "";
    text += line("%3d %c%11s  %5.1f %%  %4.1f GB  %8s  %s\n", p + 1, plan.exact ? ' ' : '~',
                 time_text(plan.makespan).c_str(), 100 * slower, static_cast<double>(plan.memory_bytes) / 1e9,
                 headroom.c_str(), to_string(plan.parallelism).c_str());
  }
  if (steady) text += "~: further micro-batches as those before, which take equally long but for 0.1 %\n";
  return text;
}

std::string search_to_text(const SettingsSearchResult& result) {
  std::string text = line(
      "settings             %lld; one micro-batch simulated of %lld shapes, %lld settings simulated, "
      "%lld exceed device memory; %lld simulated to refine the best\n",
      static_cast<long long>(result.settings), static_cast<long long>(result.estimated),
      static_cast<long long>(result.simulated), static_cast<long long>(result.exceed_memory),
      static_cast<long long>(result.refined));
  if (result.least_of_others > 0)
    text +=
        "not simulated        estimated at " + time_text(result.least_of_others) + " or more" +
        line("; simulated plans took down to %.1f %% less than their estimates\n", 100 * result.most_below_estimate);
  return text + line("search               %.1f s%s\n", result.elapsed_s,
                     result.complete ? "" : ", ended by the budget or an interruption");
}

// Settings that are given, each in turn left open: with which of them open does something fit? One line each.
std::string what_would_fit(const GraphAndTopology& files, const CostOptions& costs,
                           const SettingsSearchOptions& options, const std::atomic<bool>& stop) {
  std::string text;
  for (const char* const key : {"micro_batch", "recompute", "sharding", "vp", "stage_dp", "dp", "cp", "pp", "tp"}) {
    const bool follows = (key == std::string("dp") || key == std::string("pp")) && options.given.contains("stage_dp");
    if (!options.given.contains(key) || follows) continue;
    SettingsSearchOptions open = options;
    open.given.erase(key);
    if (key == std::string("recompute")) open.pinned.recompute_layers = 0;
    if (key == std::string("stage_dp")) {
      open.given.erase("pp");
      open.given.erase("dp");
      open.pinned.stage_data.clear();
    }
    open.top = 1;
    open.improved = nullptr;
    try {
      const SettingsSearchResult found = search_settings(files.graph, files.topology, costs, open, stop);
      if (!found.best.empty())
        text += std::string("\n  without ") + key + ": " + to_string(found.best[0].parallelism) + ", " +
                time_text(found.best[0].makespan);
    } catch (const InputError&) {  // what is left open cannot be
    }
  }
  return text.empty() ? "" : "; what fits if one of the settings is left open:" + text;
}

// What turns out impossible after the search is a line of the answer: the plans are printed and written all the same.
Explanation answer_or_reason(const std::string& question, const std::function<Explanation()>& answer) {
  const auto reason = [&](const std::string& why) {
    return Explanation{{{"not_possible", why}}, question + " is not possible: " + why + "\n"};
  };
  try {
    return answer();
  } catch (const InputError& error) {
    return reason(error.what());
  } catch (const MachineError& error) {  // this machine has no memory for it
    return reason(error.what());
  }
}

// --why, --stages, --what-if and --largest-batch.
void answer_questions(const PlanOptions& options, const GraphAndTopology& files, const CostOptions& costs,
                      const SettingsSearchOptions& search, const SettingsSearchResult& result,
                      const std::atomic<bool>& stop, CommandResult& command) {
  const PlanQuestion question{files.graph, files.topology, costs, result.best};
  const auto set = [&](const char* key, const Explanation& answer) {
    command.text += "\n" + answer.text;
    command.json[key] = answer.json;
  };
  for (const std::string& setting : options.why) {
    const Explanation answer = answer_or_reason(setting + ": it", [&] {
      return best_by_value({files.graph, files.topology, costs, search, result}, setting, stop);
    });
    command.text += "\n" + answer.text;
    if (answer.json.is_object())
      command.json["why"].push_back({{"setting", setting}, {"not_possible", answer.json["not_possible"]}});
    else
      for (const Json& one : answer.json) command.json["why"].push_back(one);
  }
  for (const std::string& change : options.what_if) {
    Explanation answer =
        answer_or_reason("what if " + change + ": it", [&] { return plans_under_change(question, change); });
    answer.json["change"] = change;
    command.text += "\n" + answer.text;
    command.json["what_if"].push_back(answer.json);
  }
  if (options.stages) {
    Explanation stages = time_by_stage(question);
    stages.text = "the first plan: " + stages.text;
    set("stages", stages);
  }
  if (options.largest_batch)
    set("largest_batch", answer_or_reason("the largest batch", [&] { return largest_batch(question); }));
}

// A message about --settings begins with the flag.
template <typename Read>
auto read_settings(Read read) {
  try {
    return read();
  } catch (const InputError& error) {
    throw InputError(std::string("--settings: ") + error.what());
  }
}

CostOptions costs_of_plans(const PlanOptions& options) {
  CostOptions costs = options.costs;
  if (costs.mode == CostMode::measure)
    throw InputError(
        "--cost measure: a plan is one of thousands of settings with kernels of their own; expected "
        "profile or analytic");
  if (!costs.precision && !options.settings.empty())
    costs.precision = read_settings([&] { return precision_of_settings(options.settings); });
  if (costs.mode == CostMode::automatic) costs.mode = costs.profiles.empty() ? CostMode::analytic : CostMode::profile;
  return costs;
}

// What every plan has. --for implies its framework, unless the settings name one: where conventions have an effect
// (analytic costs in bf16), and where settings are of that framework alone.
SettingsSearchOptions search_options(const PlanOptions& options, const CostOptions& costs) {
  const auto parsed = [](const std::string& settings) {
    return settings.empty() ? Parallelism() : read_settings([&] { return parse_parallelism(settings); });
  };
  SettingsSearchOptions search;
  search.top = options.top;
  search.budget_s = options.budget_s;
  search.equal_stages = !options.framework.empty();
  if (search.equal_stages) search.planned_for = convention_of(options.framework);
  if (!options.settings.empty()) search.given = read_settings([&] { return keys_of_parallelism(options.settings); });
  const bool may_imply = search.equal_stages && !search.given.contains("framework");
  bool implied = may_imply && costs.mode == CostMode::analytic && costs.precision == Precision::bf16;
  try {
    search.pinned = parsed(options.settings);
  } catch (const InputError&) {
    if (!may_imply) throw;
    implied = true;
  }
  if (search.equal_stages && !search.pinned.stage_data.empty())
    throw InputError("--for " + options.framework +
                     ": its stages have equally many devices, and --settings has stage_dp=" +
                     colon_separated(search.pinned.stage_data));
  if (search.equal_stages && search.given.contains("framework") && search.pinned.framework != "none" &&
      runs_fsdp(search.pinned) != (options.framework == "torchtitan"))
    throw InputError("--for " + options.framework + ": --settings has framework=" + search.pinned.framework +
                     ", whose plans are for another framework; leave it out, or give framework=" +
                     convention_of(options.framework) + " or none");
  if (implied)
    search.pinned = parsed(options.settings + (options.settings.empty() ? "" : ",") +
                           "framework=" + convention_of(options.framework));
  return search;
}

// The budget or an interruption ended the search before it found a plan.
[[noreturn]] void fail_without_plan(const SettingsSearchResult& result, bool interrupted) {
  const std::string counts = "shapes estimated: " + std::to_string(result.estimated) +
                             ", settings simulated: " + std::to_string(result.simulated);
  if (interrupted) throw MachineError("interrupted before a plan was found (" + counts + "); nothing was written");
  throw InputError("the budget ended before a plan was found (" + counts +
                   "); give a longer --budget, or what is known of the plan: --settings tp=8,pp=4, ...");
}

}  // namespace

CommandResult run_plan(const PlanOptions& options, const CommandContext& context) {
  const std::atomic<bool>& stop = context.stop;
  Vector<std::string> inputs = options.costs.profiles;
  inputs.insert(inputs.end(), {options.files.graph, options.files.topology});
  expect_all_writable({options.out}, inputs);
  const CostOptions costs = costs_of_plans(options);
  SettingsSearchOptions search = search_options(options, costs);
  search.progress = context.settings_progress;
  context.best_known.nothing_to_write("before a plan was found");
  search.improved = [&](const Vector<SettingsPrediction>& best) {
    context.best_known.nothing_to_write("within a simulation; the best plans so far:\n" + plans_to_text(best));
  };
  const GraphAndTopology files =
      with_precision(load_files(options.files, {}), costs.precision.value_or(Precision::fp32));
  check_questions(files.graph, files.topology, search, options.why, options.what_if);
  const SettingsSearchResult result = search_settings(files.graph, files.topology, costs, search, stop);
  CommandResult command;
  command.json = {{"plans", Json::array()},
                  {"settings", result.settings},
                  {"estimated", result.estimated},
                  {"simulated", result.simulated},
                  {"refined", result.refined},
                  {"exceed_memory", result.exceed_memory},
                  {"others_estimated_us", static_cast<double>(result.least_of_others) / 1000},
                  {"most_below_estimate", result.most_below_estimate},
                  {"complete", result.complete},
                  {"elapsed_s", result.elapsed_s}};
  for (const SettingsPrediction& plan : result.best) command.json["plans"].push_back(plan_to_json(plan));
  if (result.best.empty() && result.complete)
    throw InputError("all settings that are possible exceed device memory" + nothing_fits_text(result) +
                     what_would_fit(files, costs, search, stop));
  if (result.best.empty()) fail_without_plan(result, stop);
  context.best_known.nothing_to_write("after the search; the plans found:\n" + plans_to_text(result.best));
  command.text = plans_to_text(result.best) + search_to_text(result);
  if (const DeviceModel& model = files.topology.model_of(0);
      leaves_bf16_unused(costs.precision.value_or(Precision::fp32), model))
    command.text +=
        "precision            " + fp32_text(model.peak_tflops, model.peak_bf16_tflops) + " (--precision bf16)\n";
  if (search.pinned.framework != "none" && !search.given.contains("framework"))
    command.text += "conventions          of " + search.pinned.framework + ", for --for " + options.framework +
                    "; of ffexec with --settings framework=none\n";
  const SettingsPrediction& best = result.best[0];
  if (!options.framework.empty()) {
    Graph graph = files.graph;
    if (costs.optimizer.any()) set_optimizer(graph, with_flags(graph.optimizer, costs.optimizer));
    const FrameworkSettings settings =
        framework_settings(options.framework, best.parallelism, graph, transformer_layers(graph).count(),
                           costs.precision.value_or(Precision::fp32));
    command.json["for"] = options.framework;
    command.json["text"] = settings.text;
    command.json["not_there"] = settings.not_there;
    command.text += "\n" + settings.text;
    for (const std::string& one : settings.not_there) command.text += "not in the settings  " + one + "\n";
  }
  answer_questions(options, files, costs, search, result, stop, command);
  return command;
}

Vector<std::string> write_best_plan(const PlanOptions& options, const CommandResult& result) {
  SimulateOptions simulate;
  simulate.given.settings = result.json["plans"][0]["settings"];
  simulate.given.graph = options.files.graph;
  simulate.given.topology = options.files.topology;
  simulate.given.batch = options.files.batch;
  simulate.costs = costs_of_plans(options);
  simulate.out = options.out;
  simulate.compared = false;
  return run_simulate(simulate).notes;
}

}  // namespace ff
