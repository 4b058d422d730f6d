#include "common/sharding.h"
#include "search/commands.h"
#include "search/explain/critical_path.h"
#include "search/settings/framework_settings.h"
#include "search/settings/planned_settings.h"
#include "search/settings/report.h"

namespace ff {
namespace {

// In the plan's own order.
Nanoseconds makespan_of_file(const StrategyFile& file, const CostOptions& costs) {
  if (const std::optional<PlanOfFile> plan = plan_of_file(file)) return makespan_of_plan(*plan, costs);
  Loaded loaded = load({file.graph, file.topology, {}, file.settings}, costs);
  return Evaluator(loaded.problem()).details_of_file(file).timeline.makespan;
}

// `file` with the plan that these settings mean. Settings are those of a graph in f32: there full recomputation chooses
// its operators by their bytes.
PlanOfFile plan_with(const Parallelism& parallelism, const StrategyFile& file) {
  PlanOfFile result{parallelism, file};
  result.file.graph = with_activation_type(file.graph, DataType::f32);
  ParallelPlan plan = plan_of(result.parallelism, result.file.graph, file.topology);
  result.file.strategy = std::move(plan.strategy);
  result.file.settings = std::move(plan.settings);
  result.file.settings.precision = file.settings.precision;  // not a part of the plan that settings mean
  return result;
}

// By the settings that the plan was made with, with this framework's conventions; nothing where the file does not say
// them, or they no longer mean its plan.
std::optional<PlanOfFile> planned_for(const std::string& framework, const StrategyFile& file) {
  const std::optional<Parallelism> planned = planned_settings(file);
  if (!planned || planned->framework != convention_of(framework)) return std::nullopt;
  try {
    PlanOfFile found = plan_with(*planned, file);
    const ParallelPlan plan{found.file.strategy, found.file.settings};
    if (is_plan_of(plan, file) && plan.settings.recompute == file.settings.recompute) return found;
  } catch (const InputError&) {  // not of this graph and topology any longer
  }
  return std::nullopt;
}

// What the nearest settings do not say of the plan; `others`: operators that they split or place in another way.
Vector<std::string> left_out(const PlanOfFile& nearest, const StrategyFile& file, const Vector<std::string>& others) {
  Vector<std::string> result;
  const StrategySettings &own = nearest.file.settings, &given = file.settings;
  if (const Parallelism exact = nearest_parallelism(nearest.file.graph, file.topology, file.strategy, given);
      !exact.stage_data.empty())
    result.push_back("stage_dp=" + colon_separated(exact.stage_data) +
                     ": the stages of a framework have equally many devices");
  if (own.micro_batches != given.micro_batches)
    result.push_back("micro_batches=" + std::to_string(given.micro_batches) + ": the nearest is " +
                     std::to_string(own.micro_batches));
  if (own.recompute != given.recompute && nearest.parallelism.recompute == Recomputation::full)
    result.push_back("recompute: of the plan's own operators, the settings have full");
  if (!given.sharding.empty())
    result.push_back("sharding " + written_sharding(given) + ": the settings have " + written_sharding(own) +
                     " for all layers");
  if (!others.empty()) result.push_back("other splits or devices: " + joined_names(others));
  return result;
}

}  // namespace

CommandResult run_export(const ExportOptions& options) {
  const StrategyFile file = load_strategy(options.strategy);
  std::optional<PlanOfFile> plan = planned_for(options.framework, file);
  const bool planned = plan.has_value();
  try {
    if (!planned)
      plan = plan_with(nearest_parallelism(with_activation_type(file.graph, DataType::f32), file.topology,
                                           file.strategy, file.settings, StageWidths::equal),
                       file);
  } catch (const InputError& error) {
    throw InputError(options.strategy + ": " + error.what());
  }
  FrameworkSettings settings =
      framework_settings(options.framework, plan->parallelism, file.graph, transformer_layers(file.graph).count(),
                         options.costs.precision.value_or(file.settings.precision));
  Vector<std::string> others;
  for (const OperatorId op : file.graph.operator_ids())
    if (!(plan->file.strategy[op] == file.strategy[op])) others.push_back(file.graph.operators[op].name);
  if (!planned)
    for (const std::string& one : left_out(*plan, file, others)) settings.not_there.push_back(one);
  const Nanoseconds by_settings = makespan_of_plan(*plan, options.costs),
                    own = planned ? by_settings : makespan_of_file(file, options.costs);
  Json json = {{"for", options.framework},
               {"settings", to_string(plan->parallelism)},
               {"text", settings.text},
               {"not_there", settings.not_there},
               {"exact", others.empty() && settings.not_there.empty()},
               {"predicted_us", static_cast<double>(own) / 1000},
               {"settings_predicted_us", static_cast<double>(by_settings) / 1000}};
  std::string text = settings.text + "\nsettings             " + to_string(plan->parallelism) + "\n";
  for (const std::string& one : settings.not_there) text += "not in the settings  " + one + "\n";
  text += "predicted            " + time_text(own) + " as planned, " + time_text(by_settings) + " by the settings\n";
  return {std::move(json), std::move(text)};
}

}  // namespace ff
