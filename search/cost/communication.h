// What moving data costs, from the topology alone.
#pragma once

#include <map>

#include "common/topology.h"
#include "common/vector.h"
#include "search/cost/duration.h"

namespace ff {

struct CommunicationCost {
  Nanoseconds duration = 1;
  Vector<ResourceUse> uses;  // resources: devices first, then channels (see duration.h)
};

// Not thread-safe (caches the shapes of collectives): one a thread.
class CommunicationModel {
 public:
  explicit CommunicationModel(const Topology& topology);

  // Sum of the route's latencies plus bytes over its narrowest bandwidth; each channel is occupied for bytes over its
  // own bandwidth (cut-through), and both devices too where a channel keeps its endpoints busy.
  void transfer(DeviceId source, DeviceId destination, int64_t bytes, CommunicationCost& cost) const;

  // All-reduce among `holders` (ascending; at least 2), by ring or by tree in topology order, whichever is faster for
  // the size.
  //   ring: every hop to the next holder carries 2 (k-1)/k of the bytes; 2 (k-1) latencies of the slowest hop
  //   tree: every edge of a binary tree carries the bytes up and down; 2 ceil(log2 k) latencies of the slowest edge
  // A channel's load is the sum of what crosses it; the time is that of the most loaded channel plus the latencies (the
  // model of NVIDIA's nccl-tests, doc/PERFORMANCE.md, extended to shared links). Channels' all_reduce rates are used.
  void all_reduce(const Vector<DeviceId>& holders, int64_t bytes, CommunicationCost& cost);

 private:
  // Load of each channel in ns a byte, and the fixed part.
  struct CollectiveShape {
    double latency_ns = 0;
    double slowest_ns_per_byte = 0;
    Vector<std::pair<ChannelId, double>> load_ns_per_byte;
    bool busy_endpoints = false;
  };
  CollectiveShape ring(const Vector<DeviceId>& holders) const;
  CollectiveShape tree(const Vector<DeviceId>& holders) const;
  void add_hop(CollectiveShape& shape, std::map<ChannelId, double>& load, DeviceId from, DeviceId to, double share,
               double& hop_latency_ns) const;
  void finish(CollectiveShape& shape, const std::map<ChannelId, double>& load) const;

  const Topology& topology_;
  int32_t device_count_;
  Vector<double> bandwidth_gb_per_s_;  // [channel]
  std::map<Vector<DeviceId>, std::pair<CollectiveShape, CollectiveShape>> shapes_;
};

}  // namespace ff
