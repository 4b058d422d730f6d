#include "search/cost/communication.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace ff {
namespace {

// Rounded, without a call of the mathematics library: the hottest line of a search.
Nanoseconds at_least_one(double ns) { return std::max<Nanoseconds>(1, static_cast<Nanoseconds>(ns + 0.5)); }

bool works_beside(const Route& route) { return route.cpu_overhead_us > 0 || route.cpu_overhead_ns_per_byte > 0; }

}  // namespace

CommunicationModel::CommunicationModel(const Topology& topology, bool nccl)
    : topology_(topology), nccl_(nccl), device_count_(static_cast<int32_t>(topology.devices.size())) {
  for (const Channel& channel : topology.channels) bandwidth_gb_per_s_.push_back(channel.bandwidth_gb_per_s);
  loads_.ns_per_byte.assign(topology.channels.size(), 0);
}

void CommunicationModel::transfer(DeviceId source, DeviceId destination, int64_t bytes, CommunicationCost& cost) const {
  const Route route = topology_.route(source, destination);
  const double size = static_cast<double>(bytes);
  cost.duration = at_least_one(route.latency_us * 1e3 + size / route.bandwidth_gb_per_s);  // 1 GB/s is 1 byte a ns
  cost.uses.clear();
  if (route.blocks_devices) {
    cost.uses.push_back({source, cost.duration});
    cost.uses.push_back({destination, cost.duration});
  }
  for (ChannelId channel : route.channels)
    cost.uses.push_back({device_count_ + channel, at_least_one(size / bandwidth_gb_per_s_[channel])});
  cost.beside.clear();
  if (!works_beside(route)) return;
  const Nanoseconds work = at_least_one(route.cpu_overhead_us * 1e3 + size * route.cpu_overhead_ns_per_byte);
  cost.beside.assign({{source, work}, {destination, work}});
}

void CommunicationModel::add_load(Loads& loads, ChannelId id, double share) const {
  const Channel& channel = topology_.channels[id];
  double& load = loads.ns_per_byte[id];
  if (load == 0) loads.loaded.push_back(id);
  load += share / channel.all_reduce_gb_per_s;
  loads.blocks_devices = loads.blocks_devices || channel.blocks_devices;
}

void CommunicationModel::add_hop(Loads& loads, DeviceId from, DeviceId to, double share) const {
  const Route route = topology_.route(from, to);
  double latency_ns = 0;
  for (ChannelId id : route.channels) {
    add_load(loads, id, share);
    latency_ns += topology_.channels[id].all_reduce_latency_us * 1e3;
  }
  loads.hop_latency_ns = std::max(loads.hop_latency_ns, latency_ns);
  if (!works_beside(route)) return;
  for (const DeviceId device : {from, to}) {
    Beside& beside = loads.beside[device];
    beside.ns += route.cpu_overhead_us * 1e3;
    beside.ns_per_byte += share * route.cpu_overhead_ns_per_byte;
  }
}

void CommunicationModel::add_hops(Loads& loads, const Vector<DeviceId>& from, const Vector<DeviceId>& to,
                                  double share) const {
  const Route route = topology_.route(from[0], to[0]);
  if (route.channels.size() < 2 || works_beside(route) || from.count() * to.count() == 1) {
    for (const DeviceId one : from)
      for (const DeviceId other : to) add_hop(loads, one, other, share);
    return;
  }
  const auto from_count = static_cast<double>(from.size()), to_count = static_cast<double>(to.size());
  double latency_us = 0, first_us = 0, last_us = 0;
  for (const DeviceId one : from) {
    const ChannelId first = topology_.first_channel(route.channels.front(), from[0], one);
    add_load(loads, first, share * to_count);
    first_us = std::max(first_us, topology_.channels[first].all_reduce_latency_us);
  }
  for (size_t c = 1; c + 1 < route.channels.size(); ++c) {
    add_load(loads, route.channels[c], share * from_count * to_count);
    latency_us += topology_.channels[route.channels[c]].all_reduce_latency_us;
  }
  for (const DeviceId other : to) {
    const ChannelId last = topology_.last_channel(route.channels.back(), to[0], other);
    add_load(loads, last, share * from_count);
    last_us = std::max(last_us, topology_.channels[last].all_reduce_latency_us);
  }
  loads.hop_latency_ns = std::max(loads.hop_latency_ns, (first_us + latency_us + last_us) * 1e3);
}

void CommunicationModel::add_ring(Loads& loads, const Vector<DeviceId>& holders, double share) const {
  for (size_t i = 0; i < holders.size(); ++i) add_hop(loads, holders[i], holders[(i + 1) % holders.size()], share);
}

// A heap: the parent of i is (i - 1) / 2.
void CommunicationModel::add_tree(Loads& loads, const Vector<DeviceId>& holders, bool down, bool up) const {
  for (size_t i = 1; i < holders.size(); ++i) {
    const DeviceId child = holders[i], parent = holders[(i - 1) / 2];
    if (up) add_hop(loads, child, parent, 1);
    if (down) add_hop(loads, parent, child, 1);
  }
}

namespace {

constexpr size_t most_holders_exact = 64, most_nodes_exact = 8;  // of which the load between every two is added up

// Shifts from 1 to count - 1 places, with the number of shifts that each stands for: all of them, or, if they are many,
// three of those by 2^i ... 2^(i+1) - 1 places.
Vector<std::pair<size_t, double>> shifts_of(size_t count, size_t most_exact) {
  Vector<std::pair<size_t, double>> result;
  for (size_t first = 1; first < count; first *= 2) {
    const size_t shifts = std::min(first, count - first);
    const size_t looked_at = count <= most_exact ? shifts : std::min<size_t>(shifts, 3);
    for (size_t i = 0; i < looked_at; ++i)
      result.emplace_back(first + i * shifts / looked_at, static_cast<double>(shifts) / static_cast<double>(looked_at));
  }
  return result;
}

}  // namespace

void CommunicationModel::add_all_pairs(Loads& loads, const Vector<DeviceId>& holders, double share) const {
  const size_t count = holders.size();
  for (const auto& [shift, times] : shifts_of(count, most_holders_exact))
    for (size_t i = 0; i < count; ++i) add_hop(loads, holders[i], holders[(i + shift) % count], share * times);
}

// Of equally many holders on each node: all places of a node load alike, also if not all nodes are looked at.
void CommunicationModel::add_all_pairs(Loads& loads, const Vector<Vector<DeviceId>>& nodes, double share) const {
  const size_t count = nodes.size();
  Vector<Vector<Vector<DeviceId>>> linked;  // [node]: its devices that are linked alike
  for (const Vector<DeviceId>& node : nodes) {
    add_all_pairs(loads, node, share);
    linked.push_back(by_links(node));
  }
  for (const auto& [shift, times] : shifts_of(count, most_nodes_exact))
    for (size_t n = 0; n < count; ++n)
      for (const Vector<DeviceId>& from : linked[n])
        for (const Vector<DeviceId>& to : linked[(n + shift) % count]) add_hops(loads, from, to, share * times);
}

// Each rank of a host adds up its part of the values, which goes on to its counterpart on the next host.
void CommunicationModel::add_chain(Loads& loads, const Vector<Vector<DeviceId>>& hosts) const {
  const double part = 1 / static_cast<double>(hosts[0].size());
  for (const int host : hosts.indices()) {
    add_all_pairs(loads, hosts[host], 2 * part);
    if (host == 0) continue;
    for (const int place : hosts[host].indices()) {
      add_hop(loads, hosts[host - 1][place], hosts[host][place], part);
      add_hop(loads, hosts[host][place], hosts[host - 1][place], part);
    }
  }
}

void CommunicationModel::Loads::clear() {
  for (ChannelId id : loaded) ns_per_byte[id] = 0;
  loaded.clear();
  hop_latency_ns = 0;
  blocks_devices = false;
  beside.clear();
}

// Clears the loads.
void CommunicationModel::add_level(CollectiveShape& shape, Loads& loads, double latencies) {
  shape.latency_ns += latencies * loads.hop_latency_ns;
  shape.blocks_devices = shape.blocks_devices || loads.blocks_devices;
  double slowest = 0;
  for (ChannelId channel : loads.loaded) slowest = std::max(slowest, loads.ns_per_byte[channel]);
  shape.slowest_ns_per_byte += slowest;
  for (const auto& [channel, ns_per_byte] : shape.load_ns_per_byte)
    if (loads.ns_per_byte[channel] == 0) loads.loaded.push_back(channel);
  for (const auto& [channel, ns_per_byte] : shape.load_ns_per_byte) loads.ns_per_byte[channel] += ns_per_byte;
  std::sort(loads.loaded.begin(), loads.loaded.end());
  shape.load_ns_per_byte.clear();
  for (ChannelId channel : loads.loaded) shape.load_ns_per_byte.emplace_back(channel, loads.ns_per_byte[channel]);
  for (const auto& [device, before] : shape.beside) {
    Beside& beside = loads.beside[device];
    beside.ns += before.ns;
    beside.ns_per_byte += before.ns_per_byte;
  }
  shape.beside.assign(loads.beside.begin(), loads.beside.end());
  loads.clear();
}

// By group and place in it; all groups are equally large.
CommunicationModel::CollectiveShape CommunicationModel::hierarchical(CollectiveKind kind,
                                                                     const Vector<Vector<DeviceId>>& groups) {
  const double n = static_cast<double>(groups.size()), m = static_cast<double>(groups[0].size());
  const double passes = kind == CollectiveKind::all_reduce ? 2 : 1;  // reduce_scatter and then all_gather
  CollectiveShape shape;
  for (const Vector<DeviceId>& group : groups) add_ring(loads_, group, passes * (m - 1) / m);
  add_level(shape, loads_, passes * (m - 1));
  for (int place : groups[0].indices()) {
    Vector<DeviceId> across;
    for (const Vector<DeviceId>& group : groups) across.push_back(group[place]);
    add_ring(loads_, across, passes * (n - 1) / n / m);
  }
  add_level(shape, loads_, passes * (n - 1));
  return shape;
}

// As many rings as a group has devices, with an equal part of the share each. Each goes through all groups; the r-th
// one enters each of them at its r-th device.
void CommunicationModel::add_rings(Loads& loads, const Vector<Vector<DeviceId>>& groups, double share) const {
  const size_t m = groups[0].size();
  Vector<DeviceId> ring(groups.size() * m);
  for (size_t r = 0; r < m; ++r) {
    for (size_t i = 0; i < ring.size(); ++i) ring[i] = groups[i / m][(i + r) % m];
    add_ring(loads, ring, share / static_cast<double>(m));
  }
}

CommunicationModel::CollectiveShape CommunicationModel::rings(CollectiveKind kind,
                                                              const Vector<Vector<DeviceId>>& groups) {
  Vector<DeviceId> ring;
  for (const Vector<DeviceId>& group : groups) ring.insert(ring.end(), group.begin(), group.end());
  const size_t k = ring.size();
  const double passes = kind == CollectiveKind::all_reduce ? 2 : 1;  // reduce_scatter and then all_gather
  const double steps = passes * static_cast<double>(k - 1) / static_cast<double>(k);
  add_rings(loads_, groups, kind == CollectiveKind::broadcast ? 1 : steps);
  CollectiveShape shape;
  add_level(shape, loads_, 0);
  for (size_t i = 0; i < k; ++i) {
    const DeviceId from = ring[i], to = ring[(i + 1) % k];
    double& latency_ns =
        topology_.devices[from].node == topology_.devices[to].node ? shape.within_nodes_ns : shape.between_nodes_ns;
    for (const ChannelId channel : topology_.route(from, to).channels)
      latency_ns += steps * 1e3 * topology_.channels[channel].all_reduce_latency_us;
  }
  shape.latency_ns = shape.within_nodes_ns + shape.between_nodes_ns;
  return shape;
}

namespace {

// NCCL's protocol LL128 beside Simple, whose latencies and rates a topology has. Latency of a ring's step: 1.9 instead
// of 3.4 us over NVLink, 4 instead of 14 over the network (hwLat in NCCL's graph/tuning.cc; the differences in
// topologies/microbenchmarks/nccl-h100-multinode-autoparallel.csv, whose rates among nodes of 8 GPUs are 0.76 times
// those of Simple).
constexpr double ll128_latency_within = 1.9 / 3.4, ll128_latency_between = 4.0 / 14, ll128_rate = 0.76;

// Among several nodes: the rate of all_gather and reduce_scatter of so many bytes a GPU, over that of 32 MiB and more
// (first line of the same file, from nccl-tests on 2 to 32 nodes of 8 H100, all of which took part).
double share_of_rate(double bytes_per_holder) {
  constexpr double mib = 1 << 20, few = 0.68, some = 0.79, many = 0.87;
  const double doublings = std::log2(std::clamp(bytes_per_holder, 8 * mib, 32 * mib) / (8 * mib));
  return (doublings < 1 ? std::lerp(few, some, doublings) : std::lerp(some, many, doublings - 1)) / many;
}

}  // namespace

void CommunicationModel::add_rings_of_nccl(CollectiveKind kind, const Vector<Vector<DeviceId>>& nodes,
                                           Vector<CollectiveShape>& result) {
  CollectiveShape simple = rings(kind, nodes);
  simple.ramps = kind != CollectiveKind::all_reduce;
  CollectiveShape ll128 = simple;
  ll128.latency_ns = ll128_latency_within * simple.within_nodes_ns + ll128_latency_between * simple.between_nodes_ns;
  ll128.slowest_ns_per_byte /= ll128_rate;
  for (auto& [channel, ns_per_byte] : ll128.load_ns_per_byte) ns_per_byte /= ll128_rate;
  result.push_back(std::move(simple));
  result.push_back(std::move(ll128));
}

// The holders in each node, in the order of `holders`. Nothing unless there are several nodes with equally many, at
// least two.
Vector<Vector<DeviceId>> CommunicationModel::by_node(const Vector<DeviceId>& holders) const {
  std::map<std::string_view, int> number;
  Vector<Vector<DeviceId>> groups;
  for (const DeviceId holder : holders) {
    const auto [it, added] = number.emplace(topology_.devices[holder].node, groups.count());
    if (added) groups.emplace_back();
    groups[it->second].push_back(holder);
  }
  const size_t places = groups[0].size();
  const bool equal =
      std::all_of(groups.begin(), groups.end(), [&](const auto& group) { return group.size() == places; });
  if (groups.size() < 2 || places < 2 || !equal) groups.clear();
  return groups;
}

// Those that are linked alike.
Vector<Vector<DeviceId>> CommunicationModel::by_links(const Vector<DeviceId>& holders) const {
  Vector<Vector<DeviceId>> groups;
  for (const DeviceId holder : holders) {
    const auto alike = std::find_if(groups.begin(), groups.end(), [&](const Vector<DeviceId>& group) {
      return topology_.linked_alike(group[0], holder);
    });
    if (alike == groups.end()) groups.push_back({holder});
    else alike->push_back(holder);
  }
  return groups;
}

// Very many holders in runs of about the square root of their number, as the rows of a torus are. Nothing for fewer.
Vector<Vector<DeviceId>> CommunicationModel::by_runs(const Vector<DeviceId>& holders) {
  constexpr size_t least = 64;
  size_t places = 1;
  for (size_t divisor = 2; divisor * divisor <= holders.size(); ++divisor)
    if (holders.size() % divisor == 0) places = divisor;
  if (holders.size() < least || places < 2) return {};
  Vector<Vector<DeviceId>> groups;
  for (size_t first = 0; first < holders.size(); first += places)
    groups.emplace_back(holders.begin() + static_cast<int64_t>(first),
                        holders.begin() + static_cast<int64_t>(first + places));
  return groups;
}

Vector<CommunicationModel::CollectiveShape> CommunicationModel::shapes(CollectiveKind kind, Vector<DeviceId> holders) {
  topology_.sort_by_links(holders);
  const double k = static_cast<double>(holders.size());
  const double depth = std::bit_width(holders.size() - 1);  // ceil(log2 k)
  Vector<CollectiveShape> result;
  const auto add = [&](const auto& add_loads, double latencies) {
    add_loads(loads_);
    add_level(result.emplace_back(), loads_, latencies);
  };
  const auto nodes = by_node(holders);
  const bool on_cpus = std::any_of(holders.begin(), holders.end(),
                                   [&](DeviceId holder) { return topology_.devices[holder].kind == DeviceKind::cpu; });
  const bool by_nccl = nccl_ && !on_cpus;
  switch (kind) {
    case CollectiveKind::all_reduce:
      add([&](Loads& loads) { add_ring(loads, holders, 2 * (k - 1) / k); }, 2 * (k - 1));
      if (on_cpus) add([&](Loads& loads) { add_tree(loads, holders, true, true); }, 2 * depth);
      else if (nodes.empty()) add([&](Loads& loads) { add_ring(loads, holders, 2); }, 2 * depth);
      else add([&](Loads& loads) { add_rings(loads, nodes, 2); }, 2 * depth);
      break;
    case CollectiveKind::broadcast:
    case CollectiveKind::reduce: {
      const bool down = kind == CollectiveKind::broadcast;
      add([&](Loads& loads) { add_ring(loads, holders, 1); }, k - 1);
      add([&](Loads& loads) { add_tree(loads, holders, down, !down); }, depth);
      break;
    }
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:  // the same the other way round
      add([&](Loads& loads) { add_ring(loads, holders, (k - 1) / k); }, k - 1);
      if (by_nccl) break;
      [[fallthrough]];
    case CollectiveKind::all_to_all:
      if (holders.size() <= most_holders_exact || nodes.empty())
        add([&](Loads& loads) { add_all_pairs(loads, holders, 1 / k); }, 1);
      else add([&](Loads& loads) { add_all_pairs(loads, nodes, 1 / k); }, 1);
  }
  if (kind != CollectiveKind::all_gather && kind != CollectiveKind::reduce_scatter &&
      kind != CollectiveKind::all_reduce)
    return result;
  if (by_nccl) {
    if (!nodes.empty()) add_rings_of_nccl(kind, nodes, result);
    return result;
  }
  for (const auto& groups : {nodes, by_runs(holders)})
    if (!groups.empty()) result.push_back(hierarchical(kind, groups));
  if (nodes.empty()) return result;
  if (!on_cpus) result.push_back(rings(kind, nodes));
  if (kind == CollectiveKind::all_reduce && on_cpus)
    add([&](Loads& loads) { add_chain(loads, nodes); }, 2 * static_cast<double>(nodes.size()));
  return result;
}

void CommunicationModel::collective(CollectiveKind kind, const Vector<DeviceId>& holders, int64_t bytes,
                                    CommunicationCost& cost) {
  if (holders.size() == 1) {
    cost.duration = 1;
    cost.uses.clear();
    cost.beside.clear();
    return;
  }
  if (kind == CollectiveKind::reduce_scatter) kind = CollectiveKind::all_gather;  // known once
  auto& known = shapes_[static_cast<size_t>(kind)];
  auto it = known.find(holders);
  if (it == known.end()) {
    it = known.emplace(holders, shapes(kind, holders)).first;
    for (CollectiveShape& shape : it->second) remove_left_out(shape);
  }
  const double of_all = static_cast<double>(bytes);
  const double ramped = nccl_ ? of_all / share_of_rate(of_all / static_cast<double>(holders.size())) : of_all;
  const auto size_for = [&](const CollectiveShape& shape) { return shape.ramps ? ramped : of_all; };
  const auto time = [&](const CollectiveShape& shape) {
    return shape.latency_ns + size_for(shape) * shape.slowest_ns_per_byte;
  };
  const CollectiveShape& shape =
      *std::min_element(it->second.begin(), it->second.end(),
                        [&](const CollectiveShape& a, const CollectiveShape& b) { return time(a) < time(b); });
  const double size = size_for(shape);
  set_without_channels(cost, shape, holders, 1, size);
  for (const auto& [channel, ns_per_byte] : shape.load_ns_per_byte)
    cost.uses.push_back({device_count_ + channel, at_least_one(size * ns_per_byte)});
}

void CommunicationModel::leave_out(Vector<bool> channels) {
  left_out_ = std::move(channels);
  for (auto& by_holders : shapes_)
    for (auto& [holders, known] : by_holders)
      for (CollectiveShape& shape : known) remove_left_out(shape);
  for (auto& [holders, shape] : broadcast_rings_) remove_left_out(shape);
}

void CommunicationModel::remove_left_out(CollectiveShape& shape) const {
  if (left_out_.empty()) return;
  std::erase_if(shape.load_ns_per_byte, [&](const auto& load) { return left_out_[load.first]; });
  shape.load_ns_per_byte.shrink_to_fit();
}

void CommunicationModel::set_without_channels(CommunicationCost& cost, const CollectiveShape& shape,
                                              const Vector<DeviceId>& holders, double count, double size) {
  cost.duration = at_least_one(count * shape.latency_ns + size * shape.slowest_ns_per_byte);
  cost.uses.clear();
  if (shape.blocks_devices)
    for (const DeviceId holder : holders) cost.uses.push_back({holder, cost.duration});
  cost.beside.clear();
  for (const auto& [device, beside] : shape.beside)
    cost.beside.push_back({device, at_least_one(count * beside.ns + size * beside.ns_per_byte)});
}

void CommunicationModel::broadcasts(const Vector<DeviceId>& holders, double count, int64_t bytes,
                                    CommunicationCost& cost) {
  cost = {};
  if (holders.size() == 1) return;
  auto it = broadcast_rings_.find(holders);
  if (it == broadcast_rings_.end()) {
    Vector<DeviceId> ring = holders;
    topology_.sort_by_links(ring);
    CollectiveShape shape;
    if (const auto nodes = by_node(ring); !nodes.empty()) shape = rings(CollectiveKind::broadcast, nodes);
    else {
      add_ring(loads_, ring, 1);
      add_level(shape, loads_, static_cast<double>(ring.size() - 1));
    }
    remove_left_out(shape);
    it = broadcast_rings_.emplace(holders, std::move(shape)).first;
  }
  const CollectiveShape& shape = it->second;
  set_without_channels(cost, shape, holders, count, static_cast<double>(bytes));
  for (const auto& [channel, ns_per_byte] : shape.load_ns_per_byte)
    cost.uses.push_back({device_count_ + channel, cost.duration});
}

}  // namespace ff
