#include <catch2/catch.hpp>

#include "tests/support/search_problem.h"

using namespace ff;

TEST_CASE("a strategy that exceeds a device's memory costs a hundred times its time and more") {
  SearchProblem problem("lenet");
  const Vector<int64_t> needed = problem.evaluator.memory_bound(data_parallel(problem.graph, problem.topology));
  Topology tight = problem.topology;
  for (DeviceModel& model : tight.models) model.memory_bytes = needed[0] - 1;
  Evaluator evaluator({problem.graph, tight, problem.kernels});
  const Prediction prediction = evaluator.evaluate(data_parallel(problem.graph, tight));
  CHECK_FALSE(prediction.feasible);
  CHECK(prediction.cost > 100 * static_cast<double>(prediction.makespan));
  for (DeviceModel& model : tight.models) model.memory_bytes = needed[0];
  CHECK(Evaluator({problem.graph, tight, problem.kernels}).evaluate(data_parallel(problem.graph, tight)).feasible);
}
