#include "search/optimizer/mcmc/portfolio.h"

#include <catch2/catch.hpp>

#include "search/optimizer/lower_bound.h"
#include "tests/support/search_problem.h"

using namespace ff;

namespace {

McmcSettings structured(McmcSettings settings) {
  settings.proposals_from = ProposalKind::structured;
  settings.look_ahead_from_s = 0;
  return settings;
}

}  // namespace

TEST_CASE("a portfolio gives the same result for any number of threads, and by either simulator", "[slow]") {
  const SearchProblem problem("rnnlm-2step");
  for (const int chains : {1, 3, 4}) {
    McmcSettings settings = structured({.proposals = 6000, .seed = 7, .chains = chains});
    const McmcResult one = problem.search(settings);
    for (const int threads : {2, 6}) {
      settings.threads = threads;
      const McmcResult several = problem.search(settings);
      CHECK(several.chain_hash == one.chain_hash);
      CHECK(several.best == one.best);
      CHECK(several.proposals == one.proposals);
      CHECK(several.best_from == one.best_from);
    }
    settings.simulator = SimulatorKind::full;
    CHECK(problem.search(settings).chain_hash == one.chain_hash);
    settings.seed = 8;
    CHECK(problem.search(settings).chain_hash != one.chain_hash);
  }
}

TEST_CASE("a portfolio makes exactly as many proposals as it may, or ends for a reason") {
  const SearchProblem problem("lenet");
  for (const int64_t proposals : {1, 2, 7, 100, 959, 960, 1001, 4321}) {
    const McmcResult result = problem.search(structured({.proposals = proposals, .seed = 2}));
    CAPTURE(proposals);
    if (result.end == SearchEnd::proposals) {
      CHECK(result.proposals == proposals);
    } else {
      CHECK(result.end == SearchEnd::nothing_better);
      CHECK(2 * result.proposals >= proposals);
    }
  }
}

TEST_CASE("a portfolio ends at a strategy than which none is better") {
  const SearchProblem problem("lenet");
  Evaluator evaluator(problem.problem);
  const Prediction start = evaluator.evaluate(data_parallel(problem.graph, problem.topology));
  const McmcResult result = problem.search(structured({.proposals = 5000, .no_better_than = start.cost}));
  CHECK(result.end == SearchEnd::lower_bound);
  CHECK(result.proposals < 500);
}

TEST_CASE("a search until nothing better is to be expected ends long before its budget on a small problem") {
  const SearchProblem problem("lenet");
  const McmcResult result = problem.search(structured({.budget_s = 600, .until_settled = true}));
  CHECK(result.end == SearchEnd::nothing_better);
  CHECK(result.elapsed_s < 60);  // 0.1 on a machine with nothing else to do
  REQUIRE_FALSE(result.improvements.empty());
  // Half of the time passed after the last improvement worth waiting for: by 0.05 %, and what was noted may be as much
  // after what was found.
  const auto nearly_best =
      std::find_if(result.improvements.begin(), result.improvements.end(), [&](const Improvement& improvement) {
        return static_cast<double>(improvement.makespan) <= 1.002 * result.best_prediction.cost;
      });
  REQUIRE(nearly_best != result.improvements.end());
  CHECK(result.elapsed_s >= 2 * nearly_best->after_s * (1 - 1e-3));
  for (const int i : result.improvements.indices())
    if (i > 0) CHECK(result.improvements[i].makespan < result.improvements[i - 1].makespan);
  CHECK(result.improvements.back().makespan == result.best_prediction.makespan);
}

TEST_CASE("a budget ends a portfolio that is half spent without a better strategy, and says so") {
  const SearchProblem problem("lenet");
  McmcSettings settings = structured({.budget_s = 0.4});
  const McmcResult first = problem.search(settings);
  CHECK((first.end == SearchEnd::nothing_better || first.end == SearchEnd::budget));
  CHECK(first.elapsed_s < 20);  // not fifty times as long, on a busy machine
  std::atomic<bool> stop{true};
  const McmcResult stopped = search_mcmc(
      problem.problem, {{"data-parallel", data_parallel(problem.graph, problem.topology)}}, settings, {stop});
  CHECK(stopped.end == SearchEnd::interrupted);
  CHECK(stopped.best == data_parallel(problem.graph, problem.topology));
}
