#include "search/optimizer/mcmc/simulation_check.h"

#include <limits>

#include "common/number_ranges.h"
#include "common/strategy_configurations.h"
#include "search/simulator/full.h"
#include "search/simulator/timeline_difference.h"

namespace ff {

SimulationCheck::SimulationCheck(const Problem& problem, TaskGraphBuilder& builder, TaskCostModel& costs)
    : problem_(problem), builder_(builder), costs_(costs), judge_(builder, problem.topology, costs) {}

void SimulationCheck::start(const DeltaSimulator& checked) {
  changes_.clear();
  judge_.reset(checked.strategy());
  compare_timeline(checked);
}

void SimulationCheck::proposal(const DeltaSimulator& checked, const Vector<Change>& changes, Nanoseconds limit,
                               const std::optional<Nanoseconds>& makespan) {
  constexpr int64_t full_every = 64;  // rejections
  changes_ = changes;
  if (makespan) {
    ++statistics_.predictions;
    const Nanoseconds judged = full_makespan(proposed());
    if (judged != *makespan)
      fail("predicts " + std::to_string(*makespan) + " ns, full simulation " + std::to_string(judged) + " ns");
    return;
  }
  ++statistics_.rejections;
  Nanoseconds judged = *judge_.propose(changes, std::numeric_limits<Nanoseconds>::max());
  judge_.reject();
  if (judged <= limit || statistics_.rejections % full_every == 0) judged = full_makespan(proposed());
  if (judged <= limit)
    fail("rejects a proposal " + std::string(checked.rejected_by()) + " at the limit " + std::to_string(limit) +
         " ns, full simulation predicts " + std::to_string(judged) + " ns");
}

void SimulationCheck::accepted(const DeltaSimulator& checked) {
  judge_.propose(changes_, std::numeric_limits<Nanoseconds>::max());
  judge_.accept();
  compare_timeline(checked);
}

Strategy SimulationCheck::proposed() const {
  Strategy strategy = judge_.strategy();
  for (const Change& change : changes_) strategy[change.op] = change.configuration;
  return strategy;
}

Nanoseconds SimulationCheck::full_makespan(const Strategy& strategy) {
  const TaskGraph tasks = builder_.build(strategy);
  return simulate_full(tasks, costs_.costs(tasks, strategy)).makespan;
}

void SimulationCheck::compare_timeline(const DeltaSimulator& checked) {
  ++statistics_.timelines;
  const TaskGraph tasks = builder_.build(checked.strategy());
  const Timeline timeline = simulate_full(tasks, costs_.costs(tasks, checked.strategy()));
  if (const std::string difference = timeline_difference(checked.records(), builder_, tasks, timeline);
      !difference.empty())
    fail("differs: " + difference);
  if (judge_.makespan() != timeline.makespan)
    fail("without a limit predicts " + std::to_string(judge_.makespan()) + " ns, full simulation " +
         std::to_string(timeline.makespan) + " ns");
}

std::string SimulationCheck::changes_text() const {
  std::string text;
  for (const Change& change : changes_) {
    const Operator& op = problem_.whole().operators[change.op];
    Vector<int64_t> devices(change.configuration.devices.begin(), change.configuration.devices.end());
    text += (text.empty() ? "" : ", ") + op.name + ": " + degrees_text(op, change.configuration.degrees) +
            " on devices " + number_ranges(devices);
  }
  return text;
}

void SimulationCheck::fail(const std::string& text) {
  const auto file_of = [&](const Strategy& strategy) {
    StrategyFile file{problem_.whole(), problem_.topology, {}, {}, Json::object()};
    file.strategy = of_one_micro_batch(file.graph, strategy, problem_.settings.micro_batches);
    file.settings = problem_.settings;
    return strategy_to_json(file);
  };
  throw SimulationDisagreement("delta simulation " + text + (changes_.empty() ? "" : "; changed: " + changes_text()),
                               file_of(judge_.strategy()), file_of(proposed()));
}

}  // namespace ff
