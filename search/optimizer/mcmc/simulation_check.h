// Delta simulation checked while it is used (--simulator checked): each of its answers is compared with slower
// simulations that have none of its bounds.
//   - A rejection: the proposal is simulated to its end, without a limit. Its makespan must exceed the limit. The judge
//     is a second delta simulator that never has a limit, and for one rejection in 64 full simulation too.
//   - A prediction: full simulation must give the same makespan.
//   - An accepted proposal, and the strategy that a chain starts from: full simulation must give the same ready, start
//     and end for every task.
#pragma once

#include <optional>
#include <string>

#include "common/errors.h"
#include "common/strategy.h"
#include "search/optimizer/problem.h"
#include "search/simulator/delta.h"

namespace ff {

// Delta simulation gave a wrong answer. The message names what decided, the change and the times; the files are the
// strategy before the change and with it (ffstrategy/1).
class SimulationDisagreement : public MachineError {
 public:
  SimulationDisagreement(const std::string& text, Json before_change, Json with_change)
      : MachineError(text), before(std::move(before_change)), proposed(std::move(with_change)) {}
  const Json before, proposed;
};

class SimulationCheck {
 public:
  // All must outlive the check. Not thread-safe: one for each simulator that is checked.
  SimulationCheck(const Problem& problem, TaskGraphBuilder& builder, TaskCostModel& costs);

  // Each is called after the simulator's function of that name and throws SimulationDisagreement.
  void start(const DeltaSimulator& checked);  // after reset
  void proposal(const DeltaSimulator& checked, const Vector<Change>& changes, Nanoseconds limit,
                const std::optional<Nanoseconds>& makespan);
  void accepted(const DeltaSimulator& checked);  // the last proposal

  const CheckStatistics& statistics() const { return statistics_; }

 private:
  Strategy proposed() const;  // with the changes of the last proposal
  Nanoseconds full_makespan(const Strategy& strategy);
  void compare_timeline(const DeltaSimulator& checked);
  [[noreturn]] void fail(const std::string& text);
  std::string changes_text() const;

  const Problem problem_;
  TaskGraphBuilder& builder_;
  TaskCostModel& costs_;
  DeltaSimulator judge_;    // its strategy is the current one of the simulator that is checked
  Vector<Change> changes_;  // of the last proposal
  CheckStatistics statistics_;
};

}  // namespace ff
