#include "search/optimizer/device_nodes.h"

#include <algorithm>
#include <map>

namespace ff {

Vector<Vector<DeviceId>> devices_by_node(const Topology& topology) {
  Vector<Vector<DeviceId>> nodes;
  std::map<std::string, int> number;
  for (const DeviceId device : topology.by_links()) {
    const auto [it, added] = number.emplace(topology.devices[device].node, nodes.count());
    if (added) nodes.emplace_back();
    nodes[it->second].push_back(device);
  }
  return nodes;
}

int most_devices_of_node(const Topology& topology) {
  int most = 0;
  for (const Vector<DeviceId>& node : devices_by_node(topology)) most = std::max(most, node.count());
  return most;
}

}  // namespace ff
