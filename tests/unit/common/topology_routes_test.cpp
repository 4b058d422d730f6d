#include <catch2/catch.hpp>
#include <queue>
#include <tuple>

#include "common/errors.h"
#include "common/topology.h"
#include "tests/support/cases_of_today.h"
#include "tests/support/random_source.h"

namespace ff {
namespace {

struct Link {
  int a, b;
  double bandwidth, latency;
  bool half, blocks;
};

// Devices first, then switches.
struct Network {
  int devices = 0, switches = 0;
  Vector<Link> links;
};

std::string vertex_name(const Network& network, int vertex) {
  return vertex < network.devices ? "d" + std::to_string(vertex) : "s" + std::to_string(vertex - network.devices);
}

// Links between any two, several of them too, with few rates: many ways cost the same.
Network random_links(RandomSource& random) {
  Network network{static_cast<int>(random.between(2, 6)), static_cast<int>(random.between(0, 5)), {}};
  const int vertices = network.devices + network.switches;
  for (int64_t more = random.between(vertices - 1, 3 * vertices); more > 0; --more) {
    const int a = random.between(0, vertices - 1), b = random.between(0, vertices - 1);
    if (a == b) continue;
    network.links.push_back({a, b, random.between(0, 2) == 0 ? 2.0 : 1.0, static_cast<double>(random.between(0, 1)),
                             random.between(0, 3) == 0, random.between(0, 5) == 0});
  }
  return network;
}

// Nothing where devices are not joined.
std::optional<Topology> topology_of(const Network& network) {
  Json json = {{"format", "fftopology/1"}, {"name", "t"}, {"links", Json::array()}, {"switches", Json::array()}};
  json["device_models"]["m"] = {{"peak_tflops", 1}, {"memory_gb_per_s", 1}, {"launch_us", 1}};
  for (int v = 0; v < network.devices; ++v)
    json["devices"].push_back({{"name", vertex_name(network, v)}, {"kind", "gpu"}, {"model", "m"}});
  for (int v = network.devices; v < network.devices + network.switches; ++v)
    json["switches"].push_back(vertex_name(network, v));
  for (const Link& link : network.links)
    json["links"].push_back({{"between", {vertex_name(network, link.a), vertex_name(network, link.b)}},
                             {"bandwidth_gb_per_s", link.bandwidth},
                             {"latency_us", link.latency},
                             {"duplex", link.half ? "half" : "full"},
                             {"blocks_devices", link.blocks}});
  try {
    return parse_topology(parse_json(json.dump(), "t"));
  } catch (const InputError&) {
    return std::nullopt;
  }
}

struct Way {
  double cost = 1e300;
  int hops = 0, previous = -1;
  ChannelId channel = -1;
  bool done = false;
};

// By one search over all devices and switches.
Vector<Way> searched_ways(const Network& network, DeviceId source) {
  const int vertices = network.devices + network.switches;
  Vector<Vector<std::tuple<int, ChannelId, const Link*>>> neighbours(vertices);
  ChannelId channel = 0;
  for (const Link& link : network.links) {
    neighbours[link.a].emplace_back(link.b, channel, &link);
    if (!link.half) ++channel;
    neighbours[link.b].emplace_back(link.a, channel++, &link);
  }
  Vector<bool> direct_alone(vertices, false);
  for (const auto& [to, by, link] : neighbours[source])
    if (to < network.devices && link->blocks) direct_alone[to] = true;
  Vector<Way> ways(vertices);
  using Entry = std::tuple<double, int, int>;
  std::priority_queue<Entry, Vector<Entry>, std::greater<>> queue;
  const auto follow = [&](double cost, int hops, int from, int previous) {
    for (const auto& [to, by, link] : neighbours[from]) {
      if (previous >= 0 && direct_alone[to]) continue;
      const double through = cost + link->latency + (1 << 20) / (link->bandwidth * 1e3);
      Way& way = ways[to];
      if (way.done || std::tie(through, hops) >= std::tie(way.cost, way.hops)) continue;
      way = {through, hops + 1, previous, by};
      if (to >= network.devices) queue.emplace(through, hops + 1, to);
    }
  };
  follow(0, 0, source, -1);
  while (!queue.empty()) {
    const auto [cost, hops, vertex] = queue.top();
    queue.pop();
    if (ways[vertex].done) continue;
    ways[vertex].done = true;
    follow(cost, hops, vertex, vertex);
  }
  return ways;
}

// Channels of the way, from its end.
Vector<ChannelId> channels_of(const Vector<Way>& ways, int destination) {
  Vector<ChannelId> channels;
  for (int vertex = destination; vertex >= 0; vertex = ways[vertex].previous) channels.push_back(ways[vertex].channel);
  return channels;
}

}  // namespace

TEST_CASE("routes are those of one search over devices and switches") {
  int compared = 0, through_switches = 0;
  const uint32_t first = first_case_of_today(20'000);
  for (uint32_t seed = first; seed < first + 3000; ++seed) {
    RandomSource random(seed);
    const Network network = random_links(random);
    const std::optional<Topology> topology = topology_of(network);
    if (!topology) continue;
    ++compared;
    CAPTURE(seed, topology->file.dump());
    for (const DeviceId source : topology->devices.indices()) {
      const Vector<Way> ways = searched_ways(network, source);
      for (const DeviceId destination : topology->devices.indices()) {
        if (source == destination) continue;
        const Route route = topology->route(source, destination);
        if (ways[destination].channel < 0) {  // joined with the first device alone
          REQUIRE(route.channels.empty());
          continue;
        }
        Vector<ChannelId> channels(route.channels.rbegin(), route.channels.rend());
        // Devices that are linked alike have the same ways but for their own links, whatever the order of these.
        REQUIRE(channels.size() == channels_of(ways, destination).size());
        double cost = 0;
        for (const ChannelId channel : route.channels)
          cost += topology->channels[channel].latency_us +
                  (1 << 20) / (topology->channels[channel].bandwidth_gb_per_s * 1e3);
        REQUIRE(cost == Approx(ways[destination].cost));
        through_switches += channels.size() > 1;
      }
    }
    // The first device is linked like no earlier one.
    const Vector<Way> ways = searched_ways(network, 0);
    for (DeviceId destination = 1; destination < network.devices; ++destination) {
      const auto found = topology->route(0, destination).channels;
      REQUIRE(Vector<ChannelId>(found.rbegin(), found.rend()) == channels_of(ways, destination));
    }
  }
  CHECK(compared > 1000);
  CHECK(through_switches > 1000);
}

}  // namespace ff
