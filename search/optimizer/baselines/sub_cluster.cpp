#include "search/optimizer/baselines/sub_cluster.h"

#include <algorithm>
#include <map>

namespace ff {

Strategy SubCluster::on_whole(Strategy strategy) const {
  for (Configuration& configuration : strategy)
    for (DeviceId& device : configuration.devices) device = devices[device];
  return strategy;
}

Vector<int> sub_cluster_sizes(const Topology& topology) {
  const int all = topology.devices.count();
  Vector<int> sizes{1};
  for (int size = 2; size <= all / 2; ++size)
    if (all % size == 0) sizes.push_back(size);
  return sizes;
}

SubCluster sub_cluster(const Topology& topology, int size) {
  struct Node {
    double slowest_tflops;
    Vector<DeviceId> devices;
  };
  Vector<Node> nodes;
  std::map<std::string, int> number;
  for (const DeviceId device : topology.by_links()) {
    const std::string& name = topology.devices[device].node;
    const double tflops = topology.model_of(device).peak_tflops;
    // A device without a node is one of its own.
    const auto [it, added] =
        number.emplace(name.empty() ? "device " + topology.devices[device].name : name, nodes.count());
    if (added) nodes.push_back({tflops, {}});
    Node& node = nodes[it->second];
    node.slowest_tflops = std::min(node.slowest_tflops, tflops);
    node.devices.push_back(device);
  }
  std::stable_sort(nodes.begin(), nodes.end(),
                   [](const Node& a, const Node& b) { return a.slowest_tflops > b.slowest_tflops; });
  Vector<DeviceId> devices;
  for (const Node& node : nodes) devices.insert(devices.end(), node.devices.begin(), node.devices.end());
  devices.resize(size);
  Topology part = topology.with_devices(devices);
  return {std::move(devices), std::move(part)};
}

}  // namespace ff
