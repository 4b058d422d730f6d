#include "search/explain/shortened.h"

#include <catch2/catch.hpp>

#include "search/problem_files.h"
#include "tests/support/graph_text.h"
#include "tests/support/message_of.h"
#include "tests/support/simulation_problem.h"

namespace ff {
namespace {

// fc1 on one device, fc2 and the loss on another.
StrategyFile two_stages(int micro_batches) {
  const SimulationProblem two = two_layers();
  StrategyFile file{graph_of_batch(two.graph, micro_batches),
                    two.topology,
                    {{{1, 1, 1}, {0}}, {{1, 1, 1}, {1}}, {{1, 1}, {1}}},
                    {},
                    {}};
  file.settings.micro_batches = micro_batches;
  file.issue_order = {"of all micro-batches"};
  return file;
}

// A micro-batch has three forward and three backward tasks.
constexpr int64_t tasks = 6;

Evaluator::Details details_of(const StrategyFile& file) {
  Loaded loaded({file.graph, file.topology, {}, file.settings}, CostMode::analytic, {});
  Evaluator evaluator(loaded.problem());
  return evaluator.details_of_file(file);
}

}  // namespace

TEST_CASE(
    "a plan is explained as it is up to so many tasks, then with fewer micro-batches, two for each stage at least") {
  const StrategyFile file = two_stages(32);
  CHECK(explained_part("plan.json", file, 32 * tasks).is_whole());
  CHECK(explained_part("plan.json", file, 32 * tasks - 1).micro_batches == 30);  // a multiple of the stages
  CHECK(explained_part("plan.json", file, 10 * tasks).micro_batches == 10);
  CHECK(explained_part("plan.json", file, 2 * tasks).micro_batches == 4);
  CHECK(explained_part("plan.json", file, 2 * tasks).of_all == 32);
  CHECK(explained_part("plan.json", two_stages(3), tasks).is_whole());
  CHECK(message_of<InputError>([&] { explained_part("plan.json", file, tasks); }) ==
        "plan.json: too large to be explained: 4 of 32 micro-batches, which 2 stages need, have 24 compute tasks on "
        "2 devices; --micro-batches explains fewer, ffsearch simulate --settings says what each stage does");
}

TEST_CASE("a shortened plan is the plan of a smaller batch, in 1F1B order") {
  StrategyFile file = two_stages(32);
  const StrategyFile smaller = two_stages(4);
  shorten(file, {4, 32});
  CHECK(file.graph.batch_size == smaller.graph.batch_size);
  CHECK(file.settings.micro_batches == 4);
  CHECK(file.issue_order.empty());
  Loaded loaded({file.graph, file.topology, {}, file.settings}, CostMode::analytic, {});
  Evaluator evaluator(loaded.problem());
  const Evaluator::Details expected = evaluator.details(file.strategy, TaskOrder::one_forward_one_backward);
  file.issue_order = shortened_issue_order(evaluator, file);
  CHECK(details_of(file).timeline.makespan == expected.timeline.makespan);
  CHECK(details_of(file).memory_bytes == expected.memory_bytes);
  StrategyFile whole = two_stages(32);
  shorten(whole, {32, 32});
  CHECK(whole.issue_order == two_stages(32).issue_order);
}

TEST_CASE("two plans are compared by equally many micro-batches") {
  const StrategyFile a = two_stages(32), b = two_stages(32);
  CHECK(compared_part("a.json", a, "b.json", b, 0, 32 * tasks).is_whole());
  CHECK(compared_part("a.json", a, "b.json", b, 0, 8 * tasks).micro_batches == 8);
  CHECK(compared_part("a.json", a, "b.json", b, 5).micro_batches == 5);
  CHECK(compared_part("a.json", a, "b.json", b, 32).is_whole());
  StrategyFile together = two_stages(32);
  together.strategy = {{{1, 1, 1}, {0}}, {{1, 1, 1}, {0}}, {{1, 1}, {0}}};
  CHECK(compared_part("a.json", together, "b.json", b, 0, 2 * tasks).micro_batches == 4);
  CHECK(message_of<InputError>([&] { compared_part("a.json", a, "b.json", two_stages(16), 8); }) ==
        "b.json: cannot be compared with a.json by a part of their micro-batches: it has 16 instead of 32");
  CHECK(message_of<InputError>([&] { compared_part("a.json", a, "b.json", b, 33); }) ==
        "--micro-batches 33: a.json has 32");
}

}  // namespace ff
