#include "search/optimizer/baselines/megatron.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "tests/support/search_problem.h"

using namespace ff;

namespace {

int degree_of(const SearchProblem& network, const Strategy& strategy, const std::string& name,
              const std::string& dimension) {
  for (const OperatorId op : network.graph.operator_ids()) {
    if (network.graph.operators[op].name != name) continue;
    const auto& dimensions = network.graph.operators[op].definition->dimensions();
    for (const int d : dimensions.indices())
      if (dimensions[d].name == dimension) return strategy[op].degrees[d];
  }
  return 0;
}

}  // namespace

TEST_CASE("megatron splits layers within a node, sequences between them, and the batch across nodes") {
  SearchProblem gpt("gpt2-small", "dgx-a100-2");
  const MegatronStrategy found = *megatron(gpt.graph, gpt.topology);
  CHECK(found.tensor_degree == 4);  // the largest divisor of 8 devices that divides 12 heads
  CHECK(found.data_degree == 4);
  const auto check = [&](const std::string& name, const std::string& dimension) {
    CAPTURE(name, dimension);
    CHECK(degree_of(gpt, found.strategy, name, "sample") == 4);
    CHECK(degree_of(gpt, found.strategy, name, dimension) == 4);
  };
  check("positions", "length");
  check("layer1.norm1", "length");
  check("layer1.attention", "head");
  check("layer1.projection", "in_channel");
  check("layer1.dropout1", "length");
  check("layer1.add1", "length");
  check("layer1.expand", "channel");
  check("layer1.gelu", "channel");
  check("layer1.contract", "in_channel");
  check("layer12.add2", "length");
  for (const Configuration& configuration : found.strategy)
    for (const int part : configuration.devices.indices()) CHECK(configuration.devices[part] == part);
}

TEST_CASE("gated feed-forward layers are split by column on both sides") {
  SearchProblem llama("llama-tiny", "dgx-a100-1");
  const MegatronStrategy found = *megatron(llama.graph, llama.topology);
  CHECK(found.tensor_degree == 2);
  for (const char* name : {"layer1.gate", "layer1.silu", "layer1.up", "layer1.mul"})
    CHECK(degree_of(llama, found.strategy, name, "channel") == 2);
  CHECK(degree_of(llama, found.strategy, "layer1.down", "in_channel") == 2);
  CHECK(degree_of(llama, found.strategy, "layer1.norm2", "length") == 2);
}

TEST_CASE("a transformer split megatron's way exchanges nothing but all-gathers and reduce-scatters in its layers") {
  SearchProblem gpt("gpt2-small", "dgx-a100-1");
  const MegatronStrategy found = *megatron(gpt.graph, gpt.topology);
  CHECK(found.tensor_degree == 4);
  const TaskGraph tasks = gpt.evaluator.builder().build(found.strategy);
  std::map<CollectiveKind, int> kinds;
  for (const EdgeCollective& collective : tasks.collectives) {
    const Edge& edge = gpt.evaluator.builder().edges()[collective.edge];
    if (gpt.graph.operators[edge.consumer].name.rfind("layer", 0) == 0) ++kinds[collective.collective.kind];
  }
  // In each of 12 layers and 2 groups of devices: into attention and the feed-forward, and out of both.
  CHECK(kinds == std::map<CollectiveKind, int>{{CollectiveKind::all_gather, 48}, {CollectiveKind::reduce_scatter, 48}});
  const int transfers = static_cast<int>(std::count_if(tasks.tasks.begin(), tasks.tasks.end(), [&](const Task& task) {
    return task.kind == TaskKind::activation || task.kind == TaskKind::gradient;
  }));
  CHECK(transfers == 0);
}

TEST_CASE("megatron is for transformers") {
  SearchProblem lenet("lenet", "p100-1x4");
  CHECK_FALSE(megatron(lenet.graph, lenet.topology));
  CHECK_THROWS_WITH(lenet.run("megatron"),
                    "megatron: lenet has no multi_head_attention; this is a strategy for transformers");
}

TEST_CASE("megatron gives every transformer a valid strategy on any cluster") {
  for (const char* name : {"bert-base", "gpt-1.7b", "llama-tiny", "moe-tiny", "gshard-moe-128e-12l"})
    for (const char* cluster : {"local-cpu-1", "local-cpu-2", "p100-2x4", "dgx-a100-8"}) {
      CAPTURE(name, cluster);
      SearchProblem network(name, cluster);
      const MegatronStrategy found = *megatron(network.graph, network.topology);
      for (const OperatorId op : network.graph.operator_ids()) {
        const auto& dimensions = network.graph.operators[op].definition->dimensions();
        const Configuration& configuration = found.strategy[op];
        CHECK(configuration.parts() == parts_of(configuration.degrees));
        for (const int d : dimensions.indices()) CHECK(configuration.degrees[d] <= dimensions[d].size);
        Vector<DeviceId> devices = configuration.devices;
        sort_and_unique(devices);
        CHECK(devices.size() == configuration.devices.size());
      }
    }
}
