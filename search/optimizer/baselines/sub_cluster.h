// Parts of a cluster: a small batch is often trained faster by fewer devices than there are.
#pragma once

#include "common/strategy.h"

namespace ff {

struct SubCluster {
  Vector<DeviceId> devices;  // by the sub-cluster's own DeviceId: that of the whole
  Topology topology;         // of these devices alone; models and channels are those of the whole

  // The same strategy on the whole cluster, whose other devices are idle.
  Strategy on_whole(Strategy strategy) const;
};

// As many devices as divide the number of all, ascending, all of them left out: each degree of a smaller search space
// is then one of the whole's too. {1} for one device.
Vector<int> sub_cluster_sizes(const Topology& topology);

// The first `size` devices when those of a node stand together: nodes of faster devices first (peak rate of the
// slowest), then in the order of the topology's links. Each smaller sub-cluster is a part of each larger one.
SubCluster sub_cluster(const Topology& topology, int size);

}  // namespace ff
