#include "search/explain/shortened.h"

#include <algorithm>
#include <set>

#include "common/errors.h"
#include "common/recomputation.h"
#include "common/task_graph/issue_order.h"
#include "common/task_graph/pipeline_schedule.h"

namespace ff {
namespace {

int64_t compute_tasks_of_micro_batch(const StrategyFile& file) {
  const Vector<bool> recomputed = recomputed_operators(file.graph, file.settings.recompute);
  int64_t tasks = 0;
  for (const OperatorId op : file.graph.operator_ids())
    tasks += file.strategy[op].parts() * (1 + file.graph.operators[op].has_backward + recomputed[op]);
  return tasks;
}

int64_t stage_count(const StrategyFile& file) {
  const Vector<int> stage = stages_of(file.strategy, file.topology.devices.count());
  std::set<int> used;
  for (const Configuration& configuration : file.strategy) used.insert(stage[configuration.devices[0]]);
  return std::ssize(used);
}

}  // namespace

ExplainedPart explained_part(int all, int64_t tasks_of_micro_batch, int64_t stages, int64_t most_tasks) {
  const int64_t least = std::min<int64_t>(all, 2 * stages);
  const int64_t fitting = most_tasks / std::max<int64_t>(1, tasks_of_micro_batch) / stages * stages;
  return {static_cast<int>(std::min<int64_t>(all, std::max(least, fitting))), all};
}

ExplainedPart explained_part(const std::string& path, const StrategyFile& file, int64_t most_tasks) {
  const int64_t tasks = compute_tasks_of_micro_batch(file), stages = stage_count(file);
  const auto [count, all] = explained_part(file.settings.micro_batches, tasks, stages, most_tasks);
  if (count * tasks > 3 * most_tasks)
    throw InputError(
        path + ": too large to be explained: " + std::to_string(count) + " of " + std::to_string(all) +
        " micro-batches, which " + std::to_string(stages) + " stages need, have " + std::to_string(count * tasks) +
        " compute tasks on " + std::to_string(file.topology.devices.size()) +
        " devices; --micro-batches explains fewer, ffsearch simulate --settings says what each stage does");
  return {count, all};
}

ExplainedPart given_part(const std::string& path, const StrategyFile& file, int micro_batches) {
  if (micro_batches > file.settings.micro_batches)
    throw InputError("--micro-batches " + std::to_string(micro_batches) + ": " + path + " has " +
                     std::to_string(file.settings.micro_batches));
  return {micro_batches, file.settings.micro_batches};
}

ExplainedPart compared_part(const std::string& path_a, const StrategyFile& a, const std::string& path_b,
                            const StrategyFile& b, int given, int64_t most_tasks) {
  const auto part = [&](const std::string& path, const StrategyFile& file) {
    return given > 0 ? given_part(path, file, given) : explained_part(path, file, most_tasks);
  };
  const ExplainedPart of_a = part(path_a, a), of_b = part(path_b, b);
  if (of_a.is_whole() && of_b.is_whole()) return {};
  if (of_a.of_all != of_b.of_all)
    throw InputError(path_b + ": cannot be compared with " + path_a + " by a part of their micro-batches: it has " +
                     std::to_string(of_b.of_all) + " instead of " + std::to_string(of_a.of_all));
  return {std::max(of_a.micro_batches, of_b.micro_batches), of_a.of_all};
}

void shorten(StrategyFile& file, const ExplainedPart& part) {
  if (part.is_whole()) return;
  file.graph = graph_of_batch(graph_of_micro_batch(file.graph, part.of_all), part.micro_batches);
  file.settings.micro_batches = part.micro_batches;
  file.issue_order.clear();
  if (!PipelineSchedule::of(file)) file.settings.schedule = Schedule::unstated;
}

Vector<std::string> shortened_issue_order(Evaluator& evaluator, const StrategyFile& file) {
  if (file.settings.schedule != Schedule::unstated) return {};
  const Evaluator::Details details = evaluator.details(file.strategy, TaskOrder::one_forward_one_backward);
  return issue_order_names(evaluator.builder(), details.tasks, details.order);
}

}  // namespace ff
