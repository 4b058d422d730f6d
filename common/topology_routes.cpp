// Routes between the devices of a topology, found as they are asked for.
#include <algorithm>
#include <queue>
#include <tuple>

#include "common/topology.h"

namespace ff {
namespace {

constexpr int none = -1;

// By position among their links: the other device's channel.
template <typename Links>
ChannelId same_place(const Links& links, const Links& others, ChannelId channel) {
  const auto found =
      std::find_if(links.begin(), links.end(), [&](const auto& link) { return link.channel == channel; });
  return others[static_cast<size_t>(found - links.begin())].channel;
}

double cost_over(double before, const Channel& channel) {
  constexpr double reference_bytes = 1 << 20;
  return before + channel.latency_us + reference_bytes / (channel.bandwidth_gb_per_s * 1e3);
}

}  // namespace

bool Topology::linked_alike(DeviceId device, DeviceId other) const {
  const auto same = [&](const Neighbour& a, const Neighbour& b) {
    const auto link = [&](const Neighbour& next) {
      const Channel& channel = channels[next.channel];
      return std::tuple(next.vertex, channel.latency_us, channel.bandwidth_gb_per_s, channel.blocks_devices,
                        channel.cpu_overhead_us, channel.cpu_overhead_ns_per_byte);
    };
    return link(a) == link(b);
  };
  return std::ranges::equal(neighbours_[device], neighbours_[other], same);
}

// All such devices are on one switch.
DeviceId Topology::first_linked_alike(DeviceId device) const {
  const Vector<Neighbour>& links = neighbours_[device];
  DeviceId first = device;
  for (const Neighbour& sibling : links.empty() ? links : neighbours_[links[0].vertex])
    if (sibling.vertex < first && linked_alike(device, sibling.vertex)) first = sibling.vertex;
  return first;
}

ChannelId Topology::first_channel(ChannelId channel, DeviceId device, DeviceId other) const {
  return same_place(neighbours_[device], neighbours_[other], channel);
}

ChannelId Topology::last_channel(ChannelId channel, DeviceId device, DeviceId other) const {
  return same_place(arrivals_[device], arrivals_[other], channel);
}

void Topology::find_ways_once(DeviceId source, RoutesFrom& routes) const {
  std::call_once(routes.once, [&] {
    find_ways(source, routes);
    routes.known.store(true, std::memory_order_release);
  });
}

void Topology::find_ways(DeviceId source, RoutesFrom& routes) const {
  routes.pages = Vector<std::atomic<Page*>>(devices.size() / Page::size + 1);
  const Vector<Neighbour>& links = neighbours_[source];
  const DeviceId alike = first_linked_alike(source);
  if (alike == source) {
    routes.ways = ways_to_switches(source);
    return;
  }
  RoutesFrom& known = (*routes_)[alike];
  find_ways_once(alike, known);
  routes.ways = known.ways;
  for (const int link : links.indices()) routes.first_channels[neighbours_[alike][link].channel] = links[link].channel;
}

bool Topology::Step::improve(double other_cost, int hops_before, int other_previous, ChannelId last) {
  if (std::tie(other_cost, hops_before) >= std::tie(cost, hops)) return false;
  *this = {other_cost, hops_before + 1, other_previous, last};
  return true;
}

// Dijkstra's algorithm over the switches alone: devices forward nothing.
std::shared_ptr<Topology::Ways> Topology::ways_to_switches(DeviceId source) const {
  const int device_count = devices.count();
  auto ways = std::make_shared<Ways>();
  ways->source = source;
  Vector<Step> tentative(neighbours_.size() - devices.size());  // [switch]
  Vector<bool> done(tentative.size(), false);
  using Entry = std::tuple<double, int, int>;  // cost, hops, vertex
  std::priority_queue<Entry, Vector<Entry>, std::greater<>> queue;
  const auto follow_links = [&](double cost, int hops, int from, int previous) {
    for (const Neighbour& next : linked_switches_[from]) {
      const double through = cost_over(cost, channels[next.channel]);
      const int number = next.vertex - device_count;
      if (!done[number] && tentative[number].improve(through, hops, previous, next.channel))
        queue.emplace(through, hops + 1, next.vertex);
    }
  };
  follow_links(0, 0, source, -1);
  while (!queue.empty()) {
    const auto [cost, hops, vertex] = queue.top();
    queue.pop();
    if (done[vertex - device_count]) continue;
    done[vertex - device_count] = true;
    const int number = ways->switches.count();
    ways->numbers.emplace_back(vertex, number);
    ways->switches.push_back(tentative[vertex - device_count]);
    follow_links(cost, hops, vertex, number);
  }
  std::sort(ways->numbers.begin(), ways->numbers.end());
  return ways;
}

// Over the source's own links, then from the switches that are linked to the destination, the nearest first.
Topology::Step Topology::last_step(const Ways& ways, DeviceId destination) const {
  Step step;
  bool direct_alone = false;
  for (const Neighbour& next : neighbours_[ways.source]) {
    if (next.vertex != destination) continue;
    step.improve(cost_over(0, channels[next.channel]), 0, -1, next.channel);
    // Processors that copy through shared memory have no other way to each other: a detour over the switch of their
    // host's network adapter would leave them free.
    direct_alone = direct_alone || channels[next.channel].blocks_devices;
  }
  if (direct_alone) return step;
  const auto number_of = [&](const Neighbour& from) {
    const auto found = std::lower_bound(ways.numbers.begin(), ways.numbers.end(), std::pair(from.vertex, 0));
    return found != ways.numbers.end() && found->first == from.vertex ? found->second : none;
  };
  for (int after = none;;) {
    int number = none;  // of the nearest switch behind the one before
    for (const Neighbour& from : arrivals_[destination])
      if (const int one = number_of(from); one > after && (number == none || one < number)) number = one;
    if (number == none) break;
    const Step& before = ways.switches[number];
    for (const Neighbour& from : arrivals_[destination])
      if (number_of(from) == number)
        step.improve(cost_over(before.cost, channels[from.channel]), before.hops, number, from.channel);
    after = number;
  }
  return step;
}

const Topology::Kind* Topology::kind_of(Ways& ways, const Step& last) const {
  Kind kind;
  Route& route = kind.route;
  route.bandwidth_gb_per_s = 1e300;
  for (const Step* step = &last; step; step = ways.before(*step)) {
    const Channel& channel = channels[step->channel];
    ++kind.channels;
    route.latency_us += channel.latency_us;
    route.bandwidth_gb_per_s = std::min(route.bandwidth_gb_per_s, channel.bandwidth_gb_per_s);
    route.blocks_devices = route.blocks_devices || channel.blocks_devices;
    route.cpu_overhead_us = std::max(route.cpu_overhead_us, channel.cpu_overhead_us);
    route.cpu_overhead_ns_per_byte = std::max(route.cpu_overhead_ns_per_byte, channel.cpu_overhead_ns_per_byte);
  }
  const auto numbers = [](const Kind& one) {
    return std::tuple(one.channels, one.route.latency_us, one.route.bandwidth_gb_per_s, one.route.blocks_devices,
                      one.route.cpu_overhead_us, one.route.cpu_overhead_ns_per_byte);
  };
  const std::lock_guard lock(ways.mutex);
  const auto known = std::find_if(ways.kinds.begin(), ways.kinds.end(),
                                  [&](const Kind& one) { return numbers(one) == numbers(kind); });
  return known != ways.kinds.end() ? &*known : &ways.kinds.emplace_back(kind);
}

const ChannelId* Topology::write_route(DeviceId destination, RoutesFrom& routes) const {
  Ways& ways = *routes.ways;
  const Step last = last_step(ways, destination);
  if (last.channel < 0) return nullptr;
  const Kind* const kind = kind_of(ways, last);
  const std::lock_guard lock(routes.mutex);
  std::atomic<Page*>& page = routes.pages[destination / Page::size];
  if (!page.load()) {
    routes.written_pages.push_back(std::make_unique<Page>());
    page.store(routes.written_pages.back().get(), std::memory_order_release);
  }
  std::atomic<const ChannelId*>& known = page.load()->channels[destination % Page::size];
  if (const ChannelId* other = known.load()) return other;  // another thread's
  constexpr size_t channels_at_once = 64;
  if (routes.room < kind->channels) {
    routes.room = std::max(kind->channels, routes.written.empty() ? kind->channels : channels_at_once);
    routes.written.push_back(std::make_unique<ChannelId[]>(routes.room));
    routes.end = routes.written.back().get();
  }
  routes.room -= kind->channels;
  ChannelId* at = routes.end += kind->channels;
  for (const Step* step = &last; step; step = ways.before(*step)) *--at = step->channel;
  if (!routes.first_channels.empty()) *at = routes.first_channels.at(*at);
  page.load()->kinds[destination % Page::size] = kind;
  known.store(at, std::memory_order_release);
  return at;
}

}  // namespace ff
