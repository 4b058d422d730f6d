#include <catch2/catch.hpp>

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
