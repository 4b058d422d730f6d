#include <catch2/catch.hpp>
#include <set>

#include "tests/support/search_problem.h"

using namespace ff;

TEST_CASE("random configurations are valid and reach every degree of the space") {
  SearchProblem problem("lenet");
  const SearchSpace& space = problem.space;
  RandomStream random(3, 0);
  for (OperatorId op : problem.graph.operator_ids()) {
    std::set<Degrees> seen, with_sums;
    for (int i = 0; i < 4000; ++i) {
      const bool sums = i % 2 == 1;
      const Configuration configuration = space.random_configuration(op, random, sums);
      int64_t parts = 1;
      for (int degree : configuration.degrees) parts *= degree;
      REQUIRE(configuration.parts() == parts);
      for (DeviceId device : configuration.devices) REQUIRE((device >= 0 && device < 4));
      (sums ? with_sums : seen).insert(configuration.degrees);
    }
    CHECK(seen.size() == space.soap_degrees(op).size());
    CHECK(with_sums.size() == space.degrees(op).size());
    for (const Degrees& degrees : seen) CHECK(problem.graph.operators[op].definition->partial_results(degrees) == 1);
  }
}
