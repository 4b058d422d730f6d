#include "search/optimizer/mcmc/coarse_problem.h"

#include <algorithm>
#include <cassert>

#include "search/optimizer/device_nodes.h"

namespace ff {
namespace {

bool alike(const Topology& topology, const Vector<Vector<DeviceId>>& nodes) {
  const int model = topology.devices[0].model;
  return std::all_of(nodes.begin(), nodes.end(), [&](const Vector<DeviceId>& node) {
    return node.size() == nodes[0].size() && std::all_of(node.begin(), node.end(), [&](DeviceId device) {
             return topology.devices[device].model == model;
           });
  });
}

// Has each operator `copies` times as many samples, and all else alike?
bool has_samples(const Graph& whole, const Graph& coarse, int copies) {
  for (const OperatorId op : whole.operator_ids()) {
    const auto &all = whole.operators[op].definition->dimensions(),
               &share = coarse.operators[op].definition->dimensions();
    for (const int d : all.indices())
      if (all[d].size != share[d].size * (d == 0 ? copies : 1)) return false;
    if (all[0].kind != DimensionKind::sample) return false;
  }
  return true;
}

}  // namespace

Strategy CoarseProblem::projected(const Graph& whole, const Strategy& coarse) const {
  Strategy strategy = coarse;
  for (const OperatorId op : whole.operator_ids()) {
    Configuration& configuration = strategy[op];
    configuration.degrees[0] *= copies;
    configuration.devices.clear();
    for (const Vector<DeviceId>& copy : devices)
      for (const DeviceId device : coarse[op].devices) configuration.devices.push_back(copy[device]);
  }
  return strategy;
}

std::optional<CoarseProblem> coarse_problem(const Problem& problem, int copies) {
  const Vector<Vector<DeviceId>> nodes = devices_by_node(problem.topology);
  if (copies < 2 || nodes.count() % copies != 0 || problem.graph.batch_size % copies != 0) return std::nullopt;
  if (!alike(problem.topology, nodes)) return std::nullopt;
  Vector<DeviceId> order;  // as sub_cluster has it where all nodes are alike
  for (const Vector<DeviceId>& node : nodes) order.insert(order.end(), node.begin(), node.end());
  const int size = order.count() / copies;
  CoarseProblem coarse{with_batch_size(problem.graph, problem.graph.batch_size / copies, problem.graph.name),
                       sub_cluster(problem.topology, size),
                       copies,
                       {}};
  if (!has_samples(problem.graph, coarse.graph, copies)) return std::nullopt;
  for (int copy = 0; copy < copies; ++copy)
    coarse.devices.emplace_back(order.begin() + copy * size, order.begin() + (copy + 1) * size);
  assert(coarse.devices[0] == coarse.cluster.devices);
  return coarse;
}

int coarse_copies(const Topology& topology) {
  constexpr int small = 16, fewest_nodes = 2;  // devices
  const int nodes = devices_by_node(topology).count(), devices = topology.devices.count();
  for (int copies = 4; copies >= 2; copies /= 2)
    if (nodes % copies == 0 && nodes / copies >= fewest_nodes && devices / copies >= small) return copies;
  return 1;
}

}  // namespace ff
