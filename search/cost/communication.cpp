#include "search/cost/communication.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace ff {
namespace {

// Rounded, without a call of the mathematics library: the hottest line of a search.
Nanoseconds at_least_one(double ns) { return std::max<Nanoseconds>(1, static_cast<Nanoseconds>(ns + 0.5)); }

}  // namespace

CommunicationModel::CommunicationModel(const Topology& topology)
    : topology_(topology), device_count_(static_cast<int32_t>(topology.devices.size())) {
  for (const Channel& channel : topology.channels) bandwidth_gb_per_s_.push_back(channel.bandwidth_gb_per_s);
}

void CommunicationModel::transfer(DeviceId source, DeviceId destination, int64_t bytes, CommunicationCost& cost) const {
  const Route route = topology_.route(source, destination);
  const double size = static_cast<double>(bytes);
  cost.duration = at_least_one(route.latency_us * 1e3 + size / route.bandwidth_gb_per_s);  // 1 GB/s is 1 byte a ns
  cost.uses.clear();
  if (route.busy_endpoints) {
    cost.uses.push_back({source, cost.duration});
    cost.uses.push_back({destination, cost.duration});
  }
  for (ChannelId channel : route.channels)
    cost.uses.push_back({device_count_ + channel, at_least_one(size / bandwidth_gb_per_s_[channel])});
}

void CommunicationModel::add_hop(CollectiveShape& shape, std::map<ChannelId, double>& load, DeviceId from, DeviceId to,
                                 double share, double& hop_latency_ns) const {
  const Route route = topology_.route(from, to);
  double latency_ns = 0;
  for (ChannelId id : route.channels) {
    const Channel& channel = topology_.channels[id];
    load[id] += share / channel.all_reduce_gb_per_s;
    latency_ns += channel.all_reduce_latency_us * 1e3;
    shape.busy_endpoints = shape.busy_endpoints || channel.busy_endpoints;
  }
  hop_latency_ns = std::max(hop_latency_ns, latency_ns);
}

void CommunicationModel::finish(CollectiveShape& shape, const std::map<ChannelId, double>& load) const {
  for (const auto& [channel, ns_per_byte] : load) {
    shape.load_ns_per_byte.emplace_back(channel, ns_per_byte);
    shape.slowest_ns_per_byte = std::max(shape.slowest_ns_per_byte, ns_per_byte);
  }
}

CommunicationModel::CollectiveShape CommunicationModel::ring(const Vector<DeviceId>& holders) const {
  CollectiveShape shape;
  std::map<ChannelId, double> load;
  const double k = static_cast<double>(holders.size());
  double hop_latency_ns = 0;
  for (size_t i = 0; i < holders.size(); ++i)
    add_hop(shape, load, holders[i], holders[(i + 1) % holders.size()], 2 * (k - 1) / k, hop_latency_ns);
  shape.latency_ns = 2 * (k - 1) * hop_latency_ns;
  finish(shape, load);
  return shape;
}

CommunicationModel::CollectiveShape CommunicationModel::tree(const Vector<DeviceId>& holders) const {
  CollectiveShape shape;
  std::map<ChannelId, double> load;
  double hop_latency_ns = 0;
  for (size_t i = 1; i < holders.size(); ++i) {  // a heap: the parent of i is (i - 1) / 2
    const DeviceId child = holders[i], parent = holders[(i - 1) / 2];
    add_hop(shape, load, child, parent, 1, hop_latency_ns);
    add_hop(shape, load, parent, child, 1, hop_latency_ns);
  }
  shape.latency_ns = 2.0 * std::bit_width(holders.size() - 1) * hop_latency_ns;
  finish(shape, load);
  return shape;
}

void CommunicationModel::all_reduce(const Vector<DeviceId>& holders, int64_t bytes, CommunicationCost& cost) {
  if (holders.size() == 1) {
    cost.duration = 1;
    cost.uses.clear();
    return;
  }
  auto it = shapes_.find(holders);
  if (it == shapes_.end()) it = shapes_.emplace(holders, std::make_pair(ring(holders), tree(holders))).first;
  const double size = static_cast<double>(bytes);
  const auto time = [&](const CollectiveShape& shape) { return shape.latency_ns + size * shape.slowest_ns_per_byte; };
  const CollectiveShape& shape =
      time(it->second.first) <= time(it->second.second) ? it->second.first : it->second.second;
  cost.duration = at_least_one(time(shape));
  cost.uses.clear();
  if (shape.busy_endpoints)
    for (DeviceId holder : holders) cost.uses.push_back({holder, cost.duration});
  for (const auto& [channel, ns_per_byte] : shape.load_ns_per_byte)
    cost.uses.push_back({device_count_ + channel, at_least_one(size * ns_per_byte)});
}

}  // namespace ff
