#include "search/commands.h"

#include <algorithm>

#include "common/task_graph/issue_order.h"
#include "search/command_outputs.h"
#include "search/explain/critical_path.h"
#include "search/optimizer/parallelism.h"
#include "search/report/plan_text.h"
#include "search/settings/explanation.h"
#include "search/settings/planned_settings.h"
#include "search/settings/report.h"
#include "search/simulation_room.h"

namespace ff {

CommandResult run_edit(const EditOptions& options) {
  Vector<std::string> inputs = options.costs.profiles;
  inputs.push_back(options.strategy);
  expect_all_writable({options.out}, inputs);
  StrategyFile file = load_strategy(options.strategy);
  Loaded loaded = load({file.graph, file.topology, {}, file.settings}, options.costs);
  const Problem problem = loaded.problem();
  Evaluator evaluator(problem);
  const Strategy original = file.strategy;
  const Evaluator::Details before = evaluator.details_of_file(file);
  for (const std::string& edit : options.edits)
    for (Change& change : parse_edit(edit, problem.graph, problem.topology, file.strategy, file.origins)) {
      file.strategy[change.op] = std::move(change.configuration);
      if (!file.origins.empty()) file.origins[change.op] = ConfigurationOrigin::annotated;
    }
  // An order whose tasks are no longer those of the strategy is replaced by one of the same kind.
  Evaluator::Details after = evaluator.details_of_file(file);
  const bool kept =
      after.schedule ||
      (!file.issue_order.empty() &&
       !issue_order_from_names(evaluator.builder(), after.tasks, file.issue_order, file.transfer_buffers).empty());
  if (!kept) after = evaluator.details(file.strategy, before.fifo_order ? TaskOrder::fifo : TaskOrder::best);
  SearchReport report = describe(problem, after);
  report.algorithm = "edit";
  for (const std::string& edit : options.edits) report.note += (report.note.empty() ? "" : "; ") + edit;
  report.origins = file.origins;
  write_outputs(options.out, "", file.strategy, report, evaluator, after);
  Explanation edited =
      describe_edit(problem, original, file.strategy, before.timeline.makespan, after.timeline.makespan);
  edited.json.update({{"fits_memory", report.feasible},
                      {"memory_bytes", report.memory_bytes},
                      {"issue_order", kept ? "kept" : "derived"}});
  edited.text +=
      "issue order          " + std::string(kept ? "kept" : "derived anew: the file had none that fits") + "\n";
  if (!report.feasible) edited.text += "memory               exceeds device memory\n";
  if (!options.out.empty()) edited.text += "written to " + options.out + "\n";
  CommandResult result{std::move(edited.json), std::move(edited.text)};
  if (const std::string note = loaded.kernels.busy_note(); !note.empty()) result.notes.push_back(note);
  return result;
}

namespace {

// A plan that is given by settings.
CommandResult explain_given_settings(const ExplainOptions& options) {
  PlanOfSettings read = plan_of_settings(options.given);
  const CostOptions costs = with_arguments(options.costs, read.arguments, read.file.graph.batch_size);
  const PlanOfFile plan{read.arguments.parallelism, std::move(read.file)};
  ExplainSettings settings = options.settings;
  if (options.micro_batches > 0) settings.part = given_part("the plan", plan.file, options.micro_batches);
  Explanation explanation = explain_settings(plan, costs, settings);
  CommandResult result{std::move(explanation.json), std::move(explanation.text)};
  note_arguments(read.arguments, result.json, result.notes);
  return result;
}

// Is it so large that it is to be explained by its settings, where it has such?
bool is_large(const StrategyFile& file) {
  return parts_of_iteration(file.strategy, file.settings.micro_batches) > most_explained_tasks / 2;
}

}  // namespace

CommandResult run_explain(const ExplainOptions& options) {
  if (options.given.any()) return explain_given_settings(options);
  StrategyFile file = load_strategy(options.strategy);
  ExplainSettings settings = options.settings;
  const std::string planned = planned_settings_note(options.strategy, file);
  if (options.micro_batches > 0) settings.part = given_part(options.strategy, file, options.micro_batches);
  if (is_large(file))
    if (const std::optional<PlanOfFile> plan = plan_of_file(file)) {
      Explanation explanation = explain_settings(*plan, options.costs, settings);
      CommandResult result{std::move(explanation.json), std::move(explanation.text)};
      if (!planned.empty()) result.notes.push_back(planned);
      return result;
    }
  if (options.micro_batches == 0) settings.part = explained_part(options.strategy, file);
  shorten(file, settings.part);
  Loaded loaded = load({std::move(file.graph), std::move(file.topology), {}, file.settings}, options.costs);
  const Problem problem = loaded.problem();
  expect_answerable(problem, file.strategy, settings);
  Evaluator evaluator(problem);
  const std::string order = issue_order_note(options.strategy, file, evaluator);
  if (!settings.part.is_whole()) file.issue_order = shortened_issue_order(evaluator, file);
  Explanation explanation = explain_strategy(problem, file, settings);
  CommandResult result{std::move(explanation.json), std::move(explanation.text)};
  for (const std::string& note : {order, planned})
    if (!note.empty()) result.notes.push_back(note);
  return result;
}

namespace {

// Of two large plans that are exactly those of settings; nothing else.
std::optional<CommandResult> settings_diff(const StrategyFile& a, const StrategyFile& b, const DiffOptions& options) {
  if (options.micro_batches > 0 || (!is_large(a) && !is_large(b)) || a.settings.precision != b.settings.precision ||
      a.graph.file() != b.graph.file())
    return std::nullopt;
  const std::optional<PlanOfFile> plan_a = plan_of_file(a), plan_b = plan_of_file(b);
  if (!plan_a || !plan_b) return std::nullopt;
  Explanation explanation = explain_settings_difference(*plan_a, *plan_b, options.costs, options.limit);
  return CommandResult{std::move(explanation.json), std::move(explanation.text)};
}

}  // namespace

CommandResult run_diff(const DiffOptions& options) {
  StrategyFile a = load_strategy(options.a), b = load_strategy(options.b);
  expect_comparable(options.a, a, options.b, b);
  if (std::optional<CommandResult> result = settings_diff(a, b, options)) return *std::move(result);
  const ExplainedPart part = compared_part(options.a, a, options.b, b, options.micro_batches);
  for (StrategyFile* const file : {&a, &b}) shorten(*file, part);
  // Both on the machine of a.
  Loaded loaded_a = load({a.graph, a.topology, {}, a.settings}, options.costs),
         loaded_b = load({b.graph, a.topology, {}, b.settings}, options.costs);
  Evaluator evaluator_a(loaded_a.problem()), evaluator_b(loaded_b.problem());
  const std::string notes[] = {issue_order_note(options.a, a, evaluator_a),
                               issue_order_note(options.b, b, evaluator_b)};
  if (!part.is_whole()) {
    a.issue_order = shortened_issue_order(evaluator_a, a);
    b.issue_order = shortened_issue_order(evaluator_b, b);
  }
  Explanation explanation = explain_difference(evaluator_a, a, evaluator_b, b, options.limit, part);
  CommandResult result{std::move(explanation.json), std::move(explanation.text)};
  for (const std::string& note : notes)
    if (!note.empty()) result.notes.push_back(note);
  return result;
}

}  // namespace ff
