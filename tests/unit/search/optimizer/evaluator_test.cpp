#include <catch2/catch.hpp>

#include "search/optimizer/search_control.h"
#include "tests/support/search_problem.h"

using namespace ff;

TEST_CASE("a strategy that exceeds a device's memory costs more than twice its time") {
  SearchProblem problem("lenet");
  Topology tight = problem.topology;
  for (DeviceModel& model : tight.models) model.memory_bytes = 1;
  const Vector<int64_t> needed =
      Evaluator({problem.graph, tight, problem.kernels}).details(data_parallel(problem.graph, tight)).memory_bytes;
  for (DeviceModel& model : tight.models) model.memory_bytes = needed[0] - 1;
  Evaluator evaluator({problem.graph, tight, problem.kernels});
  const Prediction prediction = evaluator.evaluate(data_parallel(problem.graph, tight));
  CHECK_FALSE(prediction.feasible());
  CHECK(prediction.cost > 2 * static_cast<double>(prediction.makespan));
  for (DeviceModel& model : tight.models) model.memory_bytes = needed[0];
  CHECK(Evaluator({problem.graph, tight, problem.kernels}).evaluate(data_parallel(problem.graph, tight)).feasible());
}

TEST_CASE("where parameters alone exceed memory the rest is estimated, and transfer buffers are on demand") {
  SearchProblem problem("lenet");
  RandomStream random(1, 1);
  const Strategy strategy = problem.space.random_strategy(random);
  const auto largest = [](const Vector<int64_t>& bytes) { return *std::max_element(bytes.begin(), bytes.end()); };
  MemoryModel& model = problem.evaluator.memory_model();
  model.bytes(strategy);
  CHECK(model.of_parameters(strategy) == model.of_parameters());
  const int64_t of_parameters = largest(model.of_parameters());
  for (const bool parameters_fit : {false, true}) {
    CAPTURE(parameters_fit);
    Topology tight = problem.topology;
    for (DeviceModel& device : tight.models) device.memory_bytes = of_parameters - (parameters_fit ? 0 : 1);
    Evaluator evaluator({problem.graph, tight, problem.kernels});
    const Evaluator::Details details = evaluator.details(strategy);
    CHECK((details.memory_bytes ==
           evaluator.memory_model().bytes(details.strategy, details.tasks, details.order, details.transfer_buffers)));
    if (!parameters_fit) CHECK(details.transfer_buffers == TransferBuffers::on_demand);
    const auto as_fullness = [&](const Vector<int64_t>& bytes) {
      return static_cast<double>(largest(bytes)) / static_cast<double>(tight.models[0].memory_bytes);
    };
    const double predicted = evaluator.evaluate(strategy).fullness;
    CHECK(predicted > 1);
    CHECK((predicted == as_fullness(evaluator.memory_model().bytes(strategy))) == !parameters_fit);
    CHECK(as_fullness(details.memory_bytes) > 1);
  }
}

TEST_CASE("an evaluation that is watched is given up when the search has ended") {
  SearchProblem problem("lenet");
  const Strategy strategy = data_parallel(problem.graph, problem.topology);
  const Prediction known = problem.evaluator.evaluate(strategy);
  const SearchControl control{problem.stop};
  {
    const Evaluator::Watch watch(problem.evaluator, control);
    CHECK(problem.evaluator.evaluate(strategy).makespan == known.makespan);
    problem.stop = true;
    CHECK_THROWS_AS(problem.evaluator.evaluate(strategy), GivenUp);
  }
  CHECK(problem.evaluator.evaluate(strategy).makespan == known.makespan);
}

TEST_CASE("a search that is stopped at once has one baseline and no wrong --init") {
  SearchProblem problem("lenet");
  problem.stop = true;
  CHECK(problem.run("mcmc").baselines.count() == 1);
  CHECK(problem.run("mcmc", {.proposals = 300}, {"model-parallel", "expert"}).baselines.count() == 2);
}

TEST_CASE("the best strategy that was evaluated is not simulated again for its details") {
  SearchProblem problem("alexnet", "p100-4x4");
  const Strategy parallel = data_parallel(problem.graph, problem.topology), single = single_device(problem.graph, 0);
  Evaluator keeps(problem.problem);
  keeps.keep_best();
  for (const Strategy* strategy : {&single, &parallel, &single}) keeps.evaluate(*strategy);
  REQUIRE(better(keeps.evaluate(parallel), keeps.evaluate(single)));
  const SearchControl control{problem.stop};
  problem.stop = true;
  {
    const Evaluator::Watch watch(keeps, control);  // ends every simulation
    CHECK_THROWS_AS(keeps.details(single), GivenUp);
    const Evaluator::Details kept = keeps.details(parallel, TaskOrder::best);
    const Evaluator::Details anew = Evaluator(problem.problem).details(parallel, TaskOrder::best);
    CHECK(kept.timeline.start == anew.timeline.start);
    CHECK(kept.order == anew.order);
    CHECK(kept.memory_bytes == anew.memory_bytes);
    CHECK(kept.makespan_fifo == anew.makespan_fifo);
    CHECK(kept.sources.analytic == anew.sources.analytic);
  }
  CHECK(keeps.details(parallel).timeline.makespan == keeps.evaluate(parallel).makespan);  // once more, simulated
}

TEST_CASE("after the deadline no order is tried that nobody asked for") {
  SearchProblem problem("moe-tiny", "p100-4x4");
  const Strategy strategy = data_parallel(problem.graph, problem.topology);
  const Evaluator::Details best = problem.evaluator.details(strategy, TaskOrder::best);
  REQUIRE_FALSE(best.fifo_order);
  const Evaluator::Details late = problem.evaluator.details(strategy, TaskOrder::best, Deadline(1e-9));
  CHECK(late.fifo_order);
  CHECK(late.timeline.makespan == best.makespan_fifo);
}

TEST_CASE("without transfers one memory plan is for preallocated and on-demand buffers") {
  SearchProblem problem("lenet");
  Topology tight = problem.topology;
  for (DeviceModel& model : tight.models) model.memory_bytes = 1;
  Evaluator evaluator({problem.graph, tight, problem.kernels});
  const Evaluator::Details details = evaluator.details(data_parallel(problem.graph, tight));
  CHECK(details.transfer_buffers == TransferBuffers::preallocated);
  CHECK(details.memory_bytes ==
        evaluator.memory_model().bytes(details.strategy, details.tasks, details.order, TransferBuffers::on_demand));
}

TEST_CASE("after the deadline the memory of what cannot fit by its parameters is estimated") {
  SearchProblem problem("moe-tiny", "p100-4x4");
  Topology tight = problem.topology;
  for (DeviceModel& model : tight.models) model.memory_bytes = 1;
  Evaluator evaluator({problem.graph, tight, problem.kernels});
  const Strategy strategy = data_parallel(problem.graph, tight);
  evaluator.evaluate(strategy);
  const Evaluator::Details planned = evaluator.details(strategy),
                           late = evaluator.details(strategy, TaskOrder::fifo, Deadline(1e-9));
  CHECK_FALSE(planned.memory_is_estimated);
  CHECK(late.memory_is_estimated);
  CHECK(late.memory_bytes == evaluator.memory_model().bytes(late.strategy));
  CHECK(late.timeline.start == planned.timeline.start);
  CHECK(late.transfer_buffers == planned.transfer_buffers);
  problem.evaluator.evaluate(strategy);  // it fits
  CHECK_FALSE(problem.evaluator.details(strategy, TaskOrder::fifo, Deadline(1e-9)).memory_is_estimated);
}
