// Parts of a cluster: what runs on one takes the same time there as on the whole, and the algorithm of that name is the
// best of the others on all of them.
#include <algorithm>
#include <catch2/catch.hpp>

#include "search/algorithms/algorithms.h"
#include "search/optimizer/baselines/sub_cluster.h"
#include "tests/support/random_network.h"

using namespace ff;

namespace {

Topology shipped(const std::string& name) { return load_topology(FF_SOURCE_DIR "/topologies/" + name + ".json"); }

// Three nodes whose devices do not stand together; node "b" is the fast one.
Topology interleaved() {
  Json json = {{"format", "fftopology/1"},
               {"name", "t"},
               {"switches", {"net"}},
               {"links", Json::array()},
               {"devices", Json::array()},
               {"device_models",
                {{"slow", {{"peak_tflops", 1.0}, {"memory_gb_per_s", 100.0}, {"launch_us", 1}}},
                 {"fast", {{"peak_tflops", 2.0}, {"memory_gb_per_s", 100.0}, {"launch_us", 1}}}}}};
  const char* nodes[] = {"a", "b", "c", "a", "b", "c"};
  for (int d = 0; d < 6; ++d) {
    const std::string name = "gpu" + std::to_string(d);
    json["devices"].push_back(
        {{"name", name}, {"kind", "gpu"}, {"model", nodes[d][0] == 'b' ? "fast" : "slow"}, {"node", nodes[d]}});
    json["links"].push_back({{"between", {name, "net"}}, {"bandwidth_gb_per_s", 1.0 + d}, {"latency_us", 1.0}});
  }
  return parse_topology(parse_json(json.dump(), "topology"));
}

void check_same_routes(const Topology& whole, const SubCluster& part) {
  REQUIRE(part.topology.devices.size() == part.devices.size());
  for (DeviceId a = 0; a < static_cast<DeviceId>(part.devices.size()); ++a) {
    CHECK(part.topology.devices[a].name == whole.devices[part.devices[a]].name);
    for (DeviceId b = 0; b < static_cast<DeviceId>(part.devices.size()); ++b)
      if (a != b)
        CHECK(std::ranges::equal(part.topology.route(a, b).channels,
                                 whole.route(part.devices[a], part.devices[b]).channels));
  }
}

}  // namespace

TEST_CASE("sub-clusters have sizes that divide the cluster, each a part of the next, with the routes of the whole") {
  CHECK(sub_cluster_sizes(shipped("k80-4x4")) == Vector<int>{1, 2, 4, 8});
  CHECK(sub_cluster_sizes(interleaved()) == Vector<int>{1, 2, 3});
  CHECK(sub_cluster_sizes(shipped("local-cpu-2")) == Vector<int>{1});
  CHECK(sub_cluster_sizes(shipped("local-cpu-1")) == Vector<int>{1});
  for (const Topology& whole : {shipped("k80-4x4"), shipped("dgx-a100-2"), interleaved()}) {
    Vector<DeviceId> smaller;
    for (int size : sub_cluster_sizes(whole)) {
      const SubCluster part = sub_cluster(whole, size);
      REQUIRE(part.devices.size() == static_cast<size_t>(size));
      CHECK(std::equal(smaller.begin(), smaller.end(), part.devices.begin()));
      check_same_routes(whole, part);
      smaller = part.devices;
    }
  }
}

TEST_CASE("a sub-cluster takes whole nodes, those of faster devices first") {
  CHECK(sub_cluster(shipped("p100-2x4"), 4).devices == Vector<DeviceId>{0, 1, 2, 3});
  CHECK(sub_cluster(interleaved(), 3).devices == Vector<DeviceId>{1, 4, 0});
}

TEST_CASE("a strategy takes the same time on a sub-cluster as on the whole") {
  RandomSource random(11);
  for (int round = 0; round < 60; ++round) {
    const Graph graph = random_graph(random);
    const Topology whole = shipped(round % 2 ? "k80-4x4" : "dgx-a100-2");
    KernelCosts kernels(whole, CostMode::analytic, {});
    const SubCluster part = sub_cluster(whole, round % 3 ? 8 : 4);
    const Strategy strategy = random_strategy(graph, part.devices.count(), random);
    const Prediction alone = Evaluator({graph, part.topology, kernels}).evaluate(strategy);
    const Prediction within = Evaluator({graph, whole, kernels}).evaluate(part.on_whole(strategy));
    CHECK(alone.makespan == within.makespan);
    CHECK(alone.cost == within.cost);
  }
}

TEST_CASE("sub-cluster is the best of the heuristic baselines on smaller clusters") {
  for (const auto& [name, batch] : {std::pair("rnnlm-2step", 16), {"alexnet", 16}, {"alexnet", 2048}, {"lenet", 64}}) {
    CAPTURE(name, batch);
    const Graph graph = load_graph(std::string(FF_SOURCE_DIR "/graphs/") + name + ".json", batch);
    const std::atomic<bool> stop{false};
    const auto run = [&](const std::string& algorithm, const Topology& topology) {
      KernelCosts kernels(topology, CostMode::analytic, {});
      const SearchSpace space(graph, topology);
      Evaluator evaluator({graph, topology, kernels});
      AlgorithmResult result = run_algorithm(
          algorithm, {.evaluator = evaluator, .space = space, .settings = {}, .control = {stop}, .thorough = false});
      return std::pair(evaluator.evaluate(result.strategy), result);
    };
    const auto [found, result] = run("sub-cluster", shipped("p100-4x4"));
    double least = run("single-device", shipped("p100-1x4")).first.cost;
    std::string best = "single-device";
    // the same as the first nodes of p100-4x4
    for (const auto& [topology, size] : {std::pair("p100-1x4", 4), {"p100-2x4", 8}})
      for (const char* algorithm : {"data-parallel", "model-parallel", "expert", "optcnn"})
        if (const double cost = run(algorithm, shipped(topology)).first.cost; cost < least) {
          least = cost;
          best = algorithm;
        }
    const SubCluster two = sub_cluster(shipped("p100-4x4"), 2);
    for (const char* algorithm : {"data-parallel", "model-parallel", "expert", "optcnn"})
      if (const double cost = run(algorithm, two.topology).first.cost; cost < least) {
        least = cost;
        best = algorithm;
      }
    CHECK(found.cost == least);
    CHECK(result.details["sub_cluster"]["algorithm"] == best);
    const int devices = result.details["sub_cluster"]["devices"];
    CHECK(result.note == best + " on " + std::to_string(devices) + " of 16 devices, the others idle");
    for (const Configuration& configuration : result.strategy)
      for (DeviceId device : configuration.devices) CHECK(device < devices);
  }
}
