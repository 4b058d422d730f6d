#include "search/optimizer/baselines/gshard.h"

#include <catch2/catch.hpp>

#include "tests/support/search_problem.h"

using namespace ff;

namespace {

// `expected`: rows, experts, and columns of the output. What they sum over is whole.
void check_experts(const std::string& graph, const std::string& topology, const Degrees& expected) {
  SearchProblem network(graph, topology);
  const Strategy found = *gshard(network.graph, network.topology);
  const Strategy by_batch = data_parallel(network.graph, network.topology);
  for (const OperatorId op : network.graph.operator_ids()) {
    if (network.graph.operators[op].definition->type() != "expert_linear") {
      CHECK(found[op] == by_batch[op]);
      continue;
    }
    Degrees degrees = expected;
    degrees.resize(found[op].degrees.size(), 1);
    CHECK(found[op].degrees == degrees);
    for (const int part : found[op].devices.indices()) CHECK(found[op].devices[part] == part);
  }
}

}  // namespace

TEST_CASE("gshard puts experts on all devices and splits all else by batch") {
  check_experts("moe-tiny", "local-cpu-2", {1, 2, 1});
  check_experts("moe-tiny", "p100-1x4", {1, 4, 1});
  check_experts("moe-tiny", "p100-2x4", {2, 4, 1});  // more devices than experts: their rows are split too
  check_experts("gshard-moe-128e-12l", "tpu-v3-128", {1, 128, 1});
}

TEST_CASE("the two exchanges between tokens and experts are all-to-alls") {
  SearchProblem moe("moe-tiny", "p100-1x4");
  const TaskGraph tasks = moe.evaluator.builder().build(*gshard(moe.graph, moe.topology));
  CHECK(tasks.collectives.size() == 2);
  for (const EdgeCollective& collective : tasks.collectives)
    CHECK(collective.collective.kind == CollectiveKind::all_to_all);
}

TEST_CASE("gshard is for mixtures of experts") {
  SearchProblem lenet("lenet", "p100-1x4");
  CHECK_FALSE(gshard(lenet.graph, lenet.topology));
  CHECK_THROWS_WITH(lenet.run("gshard"), "gshard: lenet has no experts; this is a strategy for mixtures of experts");
}
