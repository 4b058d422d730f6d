// Every way to produce a strategy, by name: the one list after --algorithm, --init, compare and the baselines of a
// search.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "common/errors.h"
#include "common/vector.h"
#include "search/optimizer/exhaustive/space.h"
#include "search/optimizer/mcmc/candidate.h"
#include "search/optimizer/mcmc/mcmc.h"

namespace ff {

// An algorithm that cannot do this graph on these devices; the message says why.
class NotApplicable : public InputError {
 public:
  using InputError::InputError;
};

// Of the time that a heuristic baseline has within a search.
class NoTimeLeft : public NotApplicable {
 public:
  using NotApplicable::NotApplicable;
};

// What a user chooses.
struct AlgorithmSettings {
  McmcSettings search;              // budget and seed; what is not an mcmc takes of it what it needs
  std::optional<int> threads = {};  // of the chains; none: default_threads
  // mcmc: what its chains start from, one after the other and then from the last again: heuristic baselines by name,
  // "best" (of them), "random". Empty: the default, docs/algorithms.md.
  Vector<std::string> init = {};
  // Of what is found; none: task_order_of.
  std::optional<TaskOrder> task_order = {};
  bool check_local = false;  // mcmc and placement: go on to a local optimum
  exhaustive::Assignments assignments = exhaustive::Assignments::all;
};

// The order of tasks of what an algorithm finds. Baselines are what people run today.
inline TaskOrder task_order_of(const std::string& algorithm, const AlgorithmSettings& settings, int micro_batches = 1) {
  const TaskOrder baseline = micro_batches > 1 ? TaskOrder::one_forward_one_backward : TaskOrder::fifo;
  return settings.task_order.value_or(algorithm == "mcmc" ? TaskOrder::best : baseline);
}

// May what is found have 1F1B order?
inline bool may_alternate(const AlgorithmSettings& settings) {
  const TaskOrder order = settings.task_order.value_or(TaskOrder::best);
  return order == TaskOrder::best || order == TaskOrder::one_forward_one_backward;
}

struct AlgorithmRequest {
  Evaluator& evaluator;
  const SearchSpace& space;  // of the evaluator's problem
  AlgorithmSettings settings;
  SearchControl control;
  bool thorough = true;  // false: give up (NotApplicable) rather than take more than about a second
  double effort = 1;     // where not thorough: the fraction of that second
  // mcmc: a strategy that is known before, which chains start from as from a heuristic baseline.
  std::optional<Candidate> known = {};

  const Problem& problem() const { return evaluator.problem(); }
  const Graph& graph() const { return problem().graph; }
  const Topology& topology() const { return problem().topology; }
};

// Throws NotApplicable.
[[noreturn]] void cannot_keep(const AlgorithmRequest& request, const std::string& algorithm, OperatorId op,
                              const std::string& why);

// Another algorithm's strategy that was looked at on the way.
struct Baseline {
  std::string algorithm;
  Nanoseconds predicted = 0;
  bool feasible = true;
  Strategy strategy = {};
};

struct AlgorithmResult {
  Strategy strategy;
  std::optional<Prediction> prediction = {};  // of the strategy, where the algorithm has simulated it
  std::string note;                           // one line: what was done and whose rule it is
  Json details = Json::object();              // keys of the algorithm's own for the result's JSON
  Vector<Baseline> baselines;
  std::optional<McmcResult> chains;
  double elapsed_s = 0;  // of the whole; chains->elapsed_s is that of the chains alone
};

struct Algorithm {
  std::string name;
  std::string summary;  // for --help
  bool baseline;        // a heuristic baseline, no search: an initial candidate and a baseline of every default search
  std::function<AlgorithmResult(const AlgorithmRequest&)> run;  // throws NotApplicable, InputError, MachineError
};

// In the order in which compare shows them: what is simple first.
const Vector<Algorithm>& algorithms();
Vector<std::string> algorithm_names();
Vector<std::string> heuristic_baseline_names();

// Throws InputError for an unknown name.
AlgorithmResult run_algorithm(const std::string& name, const AlgorithmRequest& request);

}  // namespace ff
