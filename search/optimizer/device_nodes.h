// Which devices stand together.
#pragma once

#include "common/topology.h"

namespace ff {

// Devices of each node, in the order of the topology's links (Topology::by_links); those that name none are one node
// together.
Vector<Vector<DeviceId>> devices_by_node(const Topology& topology);

// Of the node that has most of them.
int most_devices_of_node(const Topology& topology);

}  // namespace ff
