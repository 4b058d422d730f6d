// A network, a topology, and what simulates strategies for them.
#pragma once

#include <utility>

#include "search/optimizer/evaluator.h"
#include "tests/support/graph_text.h"
#include "tests/support/random_network.h"
#include "tests/support/random_topology.h"

namespace ff {

struct SimulationProblem {
  SimulationProblem(Graph graph_, Topology topology_) : graph(std::move(graph_)), topology(std::move(topology_)) {}
  // On 1 to 5 devices.
  explicit SimulationProblem(RandomSource& random)
      : graph(parse_graph(parse_json(random_network(random).dump(), "graph"))),
        topology(random_topology(random, static_cast<int>(random.between(1, 5)))) {}
  SimulationProblem(const SimulationProblem&) = delete;

  int device_count() const { return static_cast<int>(topology.devices.size()); }
  Strategy strategy(RandomSource& random) const { return random_strategy(graph, device_count(), random); }

  const Graph graph;
  const Topology topology;
  KernelCosts kernels{topology, CostMode::analytic, {}};
  TaskCostModel costs{graph, topology, kernels};
  Evaluator judge{Problem{graph, topology, kernels}};
};

// The example of docs/simulator.md: two linear layers of 8 units and a loss, on a batch of 4; two devices on which
// every kernel takes 10 us, joined by 1 byte a nanosecond after 5 us.
inline SimulationProblem two_layers() {
  return {parse_graph(parse_json(two_linear_layers, "graph")),
          parse_topology(parse_json(R"({"format":"fftopology/1","name":"t",
    "device_models":{"flat":{"peak_tflops":1e9,"memory_gb_per_s":1e9,"launch_us":10}},
    "devices":[{"name":"d0","kind":"gpu","model":"flat"},{"name":"d1","kind":"gpu","model":"flat"}],
    "links":[{"between":["d0","d1"],"bandwidth_gb_per_s":1,"latency_us":5}]})",
                                    "topology"))};
}

}  // namespace ff
