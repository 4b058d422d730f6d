#include "search/optimizer/baselines/reinforce.h"

#include <catch2/catch.hpp>
#include <limits>

using namespace ff;

namespace {

Topology topology_of(int devices) {
  Json json = {{"format", "fftopology/1"}, {"name", "t"}, {"switches", {"s"}}, {"links", Json::array()}};
  json["device_models"]["m"] = {{"peak_tflops", 1e-3}, {"memory_gb_per_s", 0.5}, {"launch_us", 1}};
  for (int d = 0; d < devices; ++d) {
    const std::string name = "d" + std::to_string(d);
    json["devices"].push_back({{"name", name}, {"kind", "gpu"}, {"model", "m"}});
    json["links"].push_back({{"between", {name, "s"}}, {"bandwidth_gb_per_s", 1}, {"latency_us", 1}});
  }
  return parse_topology(parse_json(json.dump(), "topology"));
}

// Two towers of linear layers that meet at the end: worth two devices.
Graph towers() {
  Json json = {{"format", "ffgraph/1"}, {"name", "towers"}, {"batch_size", 16}};
  json["inputs"] = {{{"name", "x"}, {"shape", {"batch", 32}}, {"dtype", "f32"}},
                    {{"name", "label"}, {"shape", {"batch"}}, {"dtype", "i32"}}};
  for (const char* tower : {"a", "b"})
    for (int layer = 0; layer < 3; ++layer) {
      const std::string name = tower + std::to_string(layer);
      const std::string input = layer == 0 ? "x" : tower + std::to_string(layer - 1);
      json["operators"].push_back(
          {{"name", name}, {"type", "linear"}, {"inputs", {input}}, {"attributes", {{"out_features", 32}}}});
    }
  json["operators"].push_back({{"name", "joined"}, {"type", "add"}, {"inputs", {"a2", "b2"}}});
  json["operators"].push_back({{"name", "loss"}, {"type", "softmax_cross_entropy"}, {"inputs", {"joined", "label"}}});
  return parse_graph(parse_json(json.dump(), "graph"));
}

// The least cost over all placements of the groups.
double best_placement(const Graph& graph, int devices, Evaluator& evaluator) {
  const Vector<int> groups = colocation_groups(graph);
  const int count = 1 + *std::max_element(groups.begin(), groups.end());
  Vector<int> at(count, 0);
  Strategy strategy = single_device(graph);
  double least = std::numeric_limits<double>::infinity();
  while (true) {
    for (size_t op = 0; op < strategy.size(); ++op) strategy[op].devices[0] = at[groups[op]];
    least = std::min(least, evaluator.evaluate(strategy).cost);
    size_t group = 0;
    while (group < at.size() && ++at[group] == devices) at[group++] = 0;
    if (group == at.size()) return least;
  }
}

}  // namespace

TEST_CASE("the learned placement is the best of all placements where these can be enumerated") {
  const Graph graph = towers();
  const std::atomic<bool> stop{false};
  for (int devices : {2, 3}) {
    const Topology topology = topology_of(devices);
    KernelCosts kernels(topology, CostMode::analytic, {});
    Evaluator evaluator({graph, topology, kernels});
    const double best = best_placement(graph, devices, evaluator);
    CHECK(best < evaluator.evaluate(single_device(graph)).cost);
    int found = 0;
    for (uint64_t seed = 0; seed < 5; ++seed) {
      const ReinforceResult result =
          search_reinforce({graph, topology, kernels}, {.evaluations = 1500, .seed = seed}, {stop});
      CHECK(result.evaluations == 1500);
      CHECK(result.best_prediction.cost == evaluator.evaluate(result.best).cost);
      CHECK(result.best_prediction.cost >= best);
      CHECK(result.final_entropy < std::log(devices) / 2);  // it has learned something
      found += result.best_prediction.cost == best;
    }
    CHECK(found >= 4);
  }
}

TEST_CASE("the same seed learns the same placement, and every operator lies whole on one device") {
  const Graph graph = towers();
  const Topology topology = topology_of(3);
  KernelCosts kernels(topology, CostMode::analytic, {});
  const std::atomic<bool> stop{false};
  const ReinforceResult one = search_reinforce({graph, topology, kernels}, {.evaluations = 95, .seed = 5}, {stop});
  const ReinforceResult two = search_reinforce({graph, topology, kernels}, {.evaluations = 95, .seed = 5}, {stop});
  CHECK(one.best == two.best);
  CHECK(one.evaluations == 95);
  CHECK(one.final_entropy == two.final_entropy);
  CHECK(search_reinforce({graph, topology, kernels}, {.evaluations = 95, .seed = 6}, {stop}).final_entropy !=
        one.final_entropy);
  for (const Configuration& configuration : one.best) CHECK(configuration.parts() == 1);
}

TEST_CASE("a stopped policy search returns the first placement") {
  const Graph graph = towers();
  const Topology topology = topology_of(2);
  KernelCosts kernels(topology, CostMode::analytic, {});
  const std::atomic<bool> stop{true};
  const ReinforceResult result = search_reinforce({graph, topology, kernels}, {}, {stop});
  CHECK(result.interrupted);
  CHECK(result.evaluations == 1);
  CHECK(result.best.size() == graph.operators.size());
}

TEST_CASE("operators that share parameters lie together, and those without with the operator before") {
  const Graph rnnlm = load_graph(FF_SOURCE_DIR "/graphs/rnnlm-2step.json");
  const Vector<int> groups = colocation_groups(rnnlm);
  for (size_t op = 0; op < groups.size(); ++op) {
    const std::string& name = rnnlm.operators[op].name;
    const int expected = name.rfind("embedding", 0) == 0 ? 0
                         : name.rfind("lstm1", 0) == 0   ? 1
                         : name.rfind("lstm2", 0) == 0   ? 2
                                                         : 3;
    CHECK(groups[op] == expected);  // losses have no parameters: they lie with output
  }
}
