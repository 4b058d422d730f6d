// What moving data costs, from the topology alone.
#pragma once

#include <map>

#include "common/task_graph/collectives.h"
#include "common/topology.h"
#include "common/vector.h"
#include "search/cost/duration.h"

namespace ff {

struct CommunicationCost {
  Nanoseconds duration = 1;
  Vector<ResourceUse> uses;  // resources: devices first, then channels (see duration.h)
  Vector<WorkBeside> beside;
};

// Not thread-safe (caches the shapes of collectives): one a thread.
class CommunicationModel {
 public:
  // With `nccl` by NCCL's algorithms, for GPUs alone: all_gather and reduce_scatter by rings, all_reduce by rings and
  // trees.
  explicit CommunicationModel(const Topology& topology, bool nccl = false);

  bool nccl() const { return nccl_; }

  // Sum of the route's latencies plus bytes over its narrowest bandwidth; each channel is occupied for bytes over its
  // own bandwidth (cut-through), and both devices too where a channel keeps its endpoints busy. Both devices work
  // during their kernels where a channel says so.
  void transfer(DeviceId source, DeviceId destination, int64_t bytes, CommunicationCost& cost) const;

  // A collective among `holders` (ascending; a single one takes 1 ns) by the algorithm that is fastest for its size.
  // Topology order is that of its links (Topology::by_links).
  // With k holders and B bytes (Collective::bytes), what crosses each hop and how many latencies of the slowest hop:
  //   ring, each to the next in topology order   all_gather, reduce_scatter: (k-1)/k B, k-1 latencies
  //                                              all_reduce: 2 (k-1)/k B, 2 (k-1)
  //                                              broadcast, reduce, in pieces down the line: B, k-1
  //   binary tree                                all_reduce: B up and B down, 2 ceil(log2 k); among GPUs two trees of
  //                                              half of B, in which different GPUs are leaves, as NCCL has them: they
  //                                              load the links as rings do
  //                                              broadcast, reduce: B, ceil(log2 k)
  //   direct, between every two                  all_gather, reduce_scatter, all_to_all: B/k, 1
  //   hierarchical, where the holders are on n nodes, m on each (or, from 64 holders on, as n runs of m, such as the
  //   rows of a torus): within nodes and then among those with the same place in their nodes, or in reverse
  //                                              all_gather: (B/m among n), then B among m; reduce_scatter likewise
  //                                              all_reduce: reduce_scatter of B among m, all_reduce of B/m among n,
  //                                              all_gather of B among m
  //   rings, where m GPUs are on each of n nodes: as many as m, each of which enters a node at another GPU, as NCCL's
  //   channels do, so that all network adapters are used; k-1 latencies, each of its own hop
  //                                              as a ring, with 1/m of B on each
  //   the same with NCCL's protocol for shorter messages (LL128), among several nodes, where all_gather and
  //   reduce_scatter of less than 32 MiB a GPU reach less of the rate
  // and among CPUs, several on each of several hosts, as ffexec does it
  //   chain, host by host and back, slices in all places at once
  //                                              all_reduce: 2 (m-1)/m B within a host, B each way between hosts, 2 n
  // A channel's load is the sum of what crosses it; the time is that of the most loaded channel plus the latencies (the
  // model of NVIDIA's nccl-tests, doc/PERFORMANCE.md, extended to shared links), in a hierarchy the sum over its
  // levels. Channels' all_reduce rates are used. Each holder has CPU overhead for what it sends and
  // receives, over each hop as for one message. Among more than 64 devices the load between every two is that of a
  // sample: of the shifts by 2^i ... 2^(i+1) - 1 places three stand for all; where equally many are on each node, of
  // the shifts by so many nodes, if there are more than 8.
  void collective(CollectiveKind kind, const Vector<DeviceId>& holders, int64_t bytes, CommunicationCost& cost);
  // Broadcasts one after the other, of so many bytes in all, each from another of the holders; `count`: their number,
  // or that of a part of them. NCCL has rings alone for broadcasts (graph/tuning.cc, ncclTopoTuneModel): what a holder
  // receives it sends to the next one, k-1 latencies. Broadcasts do not overlap, although each is complete on its root
  // long before it is on the last holder. In one of the rings, each of which enters a node at another GPU, the next
  // root comes just before this one, and so is the last to receive.
  void broadcasts(const Vector<DeviceId>& holders, double count, int64_t bytes, CommunicationCost& cost);
  // From now on these [channel] are not among what collectives occupy, whose times are the same.
  void leave_out(Vector<bool> channels);
  void all_reduce(const Vector<DeviceId>& holders, int64_t bytes, CommunicationCost& cost) {
    collective(CollectiveKind::all_reduce, holders, bytes, cost);
  }

 private:
  // CPU overhead of a device, in addition to its kernels.
  struct Beside {
    double ns = 0, ns_per_byte = 0;
  };
  // Load of each channel in ns a byte, and the fixed part.
  struct CollectiveShape {
    double latency_ns = 0;
    double within_nodes_ns = 0, between_nodes_ns = 0;  // of these, in rings
    double slowest_ns_per_byte = 0;
    Vector<std::pair<ChannelId, double>> load_ns_per_byte;
    bool blocks_devices = false;
    bool ramps = false;  // all_gather, reduce_scatter: slower where each holder has little (share_of_rate)
    Vector<std::pair<DeviceId, Beside>> beside;
  };
  // One level of an algorithm under construction.
  struct Loads {
    Vector<double> ns_per_byte;  // [channel]
    Vector<ChannelId> loaded;
    double hop_latency_ns = 0;
    bool blocks_devices = false;
    std::map<DeviceId, Beside> beside;
    void clear();
  };
  Vector<CollectiveShape> shapes(CollectiveKind kind, Vector<DeviceId> holders);
  void remove_left_out(CollectiveShape& shape) const;
  // Of so many in turn, with so many bytes in all: duration, devices that are blocked, and work beside kernels.
  static void set_without_channels(CommunicationCost& cost, const CollectiveShape& shape,
                                   const Vector<DeviceId>& holders, double count, double size);
  CollectiveShape rings(CollectiveKind kind, const Vector<Vector<DeviceId>>& groups);
  void add_rings(Loads& loads, const Vector<Vector<DeviceId>>& groups, double share) const;
  CollectiveShape hierarchical(CollectiveKind kind, const Vector<Vector<DeviceId>>& groups);
  Vector<Vector<DeviceId>> by_node(const Vector<DeviceId>& holders) const;
  Vector<Vector<DeviceId>> by_links(const Vector<DeviceId>& holders) const;
  static Vector<Vector<DeviceId>> by_runs(const Vector<DeviceId>& holders);
  void add_hop(Loads& loads, DeviceId from, DeviceId to, double share) const;
  // Of devices that are linked alike, all to each of some others that are.
  void add_hops(Loads& loads, const Vector<DeviceId>& from, const Vector<DeviceId>& to, double share) const;
  void add_load(Loads& loads, ChannelId id, double share) const;
  void add_ring(Loads& loads, const Vector<DeviceId>& holders, double share) const;
  void add_tree(Loads& loads, const Vector<DeviceId>& holders, bool down, bool up) const;
  void add_all_pairs(Loads& loads, const Vector<DeviceId>& holders, double share) const;
  void add_all_pairs(Loads& loads, const Vector<Vector<DeviceId>>& nodes, double share) const;
  void add_chain(Loads& loads, const Vector<Vector<DeviceId>>& hosts) const;
  static void add_level(CollectiveShape& shape, Loads& loads, double latencies);
  void add_rings_of_nccl(CollectiveKind kind, const Vector<Vector<DeviceId>>& nodes, Vector<CollectiveShape>& result);

  const Topology& topology_;
  const bool nccl_;
  int32_t device_count_;
  Vector<double> bandwidth_gb_per_s_;                                     // [channel]
  Vector<bool> left_out_;                                                 // [channel]; empty: none
  Loads loads_;                                                           // scratch
  Array<std::map<Vector<DeviceId>, Vector<CollectiveShape>>, 6> shapes_;  // [kind], by holders
  std::map<Vector<DeviceId>, CollectiveShape> broadcast_rings_;           // by holders
};

}  // namespace ff
