#include "search/optimizer/exhaustive/topology_symmetry.h"

#include <algorithm>
#include <numeric>

namespace ff::exhaustive {
namespace {

bool alike(const Channel& a, const Channel& b) {
  return a.bandwidth_gb_per_s == b.bandwidth_gb_per_s && a.latency_us == b.latency_us &&
         a.blocks_devices == b.blocks_devices && a.cpu_overhead_us == b.cpu_overhead_us &&
         a.cpu_overhead_ns_per_byte == b.cpu_overhead_ns_per_byte && a.all_reduce_gb_per_s == b.all_reduce_gb_per_s &&
         a.all_reduce_latency_us == b.all_reduce_latency_us;
}

// Fills in the images of channels; false when the permutation of devices is no symmetry.
bool map_channels(const Topology& topology, DevicePermutation& permutation) {
  permutation.channel.assign(topology.channels.size(), -1);
  Vector<ChannelId> origin(topology.channels.size(), -1);
  for (DeviceId a : topology.devices.indices()) {
    if (topology.devices[a].model != topology.devices[permutation.device[a]].model) return false;
    for (DeviceId b : topology.devices.indices()) {
      if (a == b) continue;
      const Route route = topology.route(a, b);
      const Route image = topology.route(permutation.device[a], permutation.device[b]);
      if (route.channels.size() != image.channels.size()) return false;
      for (size_t i = 0; i < route.channels.size(); ++i) {
        const ChannelId from = route.channels[i], to = image.channels[i];
        if (!alike(topology.channels[from], topology.channels[to])) return false;
        if (permutation.channel[from] < 0 && origin[to] < 0) {
          permutation.channel[from] = to;
          origin[to] = from;
        } else if (permutation.channel[from] != to) {
          return false;
        }
      }
    }
  }
  return true;
}

}  // namespace

Vector<DevicePermutation> device_symmetries(const Topology& topology, int most_devices) {
  Vector<DevicePermutation> result;
  DevicePermutation permutation;
  permutation.device.resize(topology.devices.size());
  std::iota(permutation.device.begin(), permutation.device.end(), 0);
  do {
    if (map_channels(topology, permutation)) result.push_back(permutation);
    if (topology.devices.count() > most_devices) break;
  } while (std::next_permutation(permutation.device.begin(), permutation.device.end()));
  return result;
}

}  // namespace ff::exhaustive
