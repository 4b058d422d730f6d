#include "search/simulator/repetition.h"

#include <catch2/catch.hpp>

#include "search/optimizer/evaluator.h"
#include "tests/support/cases_of_today.h"
#include "tests/support/random_network.h"
#include "tests/support/random_topology.h"

using namespace ff;

namespace {

// An iteration of so many micro-batches of a network.
struct Iteration {
  Iteration(const Graph& of_one, const Topology& topology, StrategySettings with, int micro_batches)
      : settings(std::move(with)), kernels(topology, CostMode::analytic, {}) {
    settings.micro_batches = micro_batches;
    auto whole = std::make_shared<const Graph>(graph_of_batch(of_one, micro_batches));
    problem.emplace(Problem{of_one, topology, kernels, nullptr, settings, false, std::move(whole)});
    evaluator.emplace(*problem);
  }

  StrategySettings settings;
  KernelCosts kernels;
  std::optional<Problem> problem;
  std::optional<Evaluator> evaluator;
};

}  // namespace

// Of random networks, placed in any way on devices of different speed, with sharded state and recomputation: where few
// micro-batches repeat themselves, many of them take as long as their simulation says.
TEST_CASE("where the state of a simulation comes back, further micro-batches take what the repetition says") {
  constexpr uint32_t cases = 120;
  int repeated = 0, rejected = 0;
  for (uint32_t c = 0; c < cases; ++c) {
    const uint32_t seed = first_case_of_today(cases) + c;
    RandomSource random(seed);
    const Graph of_one = random_graph(random);
    const Topology topology = random_topology(random, 1 + static_cast<int>(random.between(0, 4)));
    const Strategy strategy = random_strategy(of_one, topology.devices.count(), random);
    StrategySettings settings;
    settings.synchronization = synchronization_of(static_cast<unsigned>(random.between(0, 4)));
    if (random.between(0, 2) == 0 && settings.synchronization != Synchronization::parameter_server)
      settings.recompute = {"*"};
    settings.overlaps_reductions =
        settings.synchronization == Synchronization::parameter_server || random.between(0, 2) > 0;
    const int few = static_cast<int>(random.between(3, 14)), further = static_cast<int>(random.between(1, 9));
    CAPTURE(seed, few, further, to_string(settings.synchronization), settings.recompute.size(),
            settings.overlaps_reductions);
    try {
      graph_of_batch(of_one, few);
    } catch (const InputError&) {
      continue;  // the network computes something else with more samples
    }
    Iteration some(of_one, topology, settings, few);
    Iteration all(of_one, topology, settings, few + further), two(of_one, topology, settings, 2);
    const Evaluator::Details details =
        some.evaluator->simulated_one_forward_one_backward(strategy, *all.evaluator, two.evaluator->tasks(strategy));
    if (!details.repetition) {
      ++rejected;
      continue;
    }
    CHECK(details.timeline.makespan + details.repetition->time_of(further) ==
          all.evaluator->simulated_one_forward_one_backward(strategy).timeline.makespan);
    ++repeated;
  }
  CAPTURE(repeated, rejected);
  CHECK(repeated >= 20);
  CHECK(rejected >= 5);
}
