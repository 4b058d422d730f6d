#include "common/topology.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

#include "common/errors.h"
#include "tests/support/committed_files.h"
#include "tests/support/message_of.h"

using namespace ff;

namespace {

std::string topology_error(const std::string& rest) {
  const std::string text =
      R"({"format":"fftopology/1","name":"t","device_models":{"m":{"peak_tflops":1,"memory_gb_per_s":1,"launch_us":1}},
      )" +
      rest + "}";
  return message_of<InputError>([&] { parse_topology(parse_json(text, "t.json")); });
}

}  // namespace

TEST_CASE("topology errors") {
  const std::string two = R"("devices":[{"name":"a","kind":"gpu","model":"m"},{"name":"b","kind":"gpu","model":"m"}])";
  CHECK(topology_error(two) ==
        "t.json: /: no route joins the devices \"a\" and \"b\" (routes lead through links and switches, not through "
        "devices)");
  CHECK(topology_error(two + R"(,"links":[{"between":["a","c"],"bandwidth_gb_per_s":1,"latency_us":1}])") ==
        "t.json: /links/0/between/1: no device or switch is named \"c\"; did you mean \"a\"?");
  CHECK(topology_error(two + R"(,"links":[{"between":["a","b"],"bandwidth_gb_per_s":0,"latency_us":1}])") ==
        "t.json: /links/0/bandwidth_gb_per_s: found 0, expected a number from 0.0001 to 1e+12");
  CHECK(topology_error(R"("devices":[{"name":"a","kind":"gpu","model":"mm"}])") ==
        "t.json: /devices/0/model: no device model is named \"mm\"; did you mean \"m\"?");
  CHECK(topology_error(R"("devices":[])") == "t.json: /: has no devices, expected \"devices\" or \"nodes\"");
}

TEST_CASE("all devices are as slow as the slowest of them is expected to be") {
  // Largest of so many normal values, in standard deviations: Harter 1961, Expected Values of Normal Order Statistics.
  const std::map<int, double> largest = {{1, 0}, {2, 0.56419}, {10, 1.53875}, {100, 2.50759}};
  for (const auto& [count, deviations] : largest) {
    CAPTURE(count);
    Json file = committed_topology("dgx-a100-2").file;
    file["nodes"]["count"] = count;
    for (const char* const rest : {"devices", "links", "switches"}) file["nodes"].erase(rest);
    file["nodes"]["devices"] = Json::parse(R"([{"name":"gpu","kind":"gpu","model":"a100"}])");
    file["nodes"]["network"] =
        Json::parse(R"({"name":"network","attach":["gpu"],"link":{"bandwidth_gb_per_s":1,"latency_us":1}})");
    file["device_models"]["a100"]["efficiency"] = {{"variation", 0.1}};
    const Topology topology = parse_topology(JsonPlace(std::make_shared<Json>(file), "topology"));
    CHECK(topology.models[0].efficiency.slowest == Approx(1 + 0.1 * deviations).margin(0.003));
    CHECK(topology.with_devices({0}).models[0].efficiency.slowest == topology.models[0].efficiency.slowest);
    file["device_models"]["a100"]["efficiency"] = Json::object();
    CHECK(parse_topology(JsonPlace(std::make_shared<Json>(file), "topology")).models[0].efficiency.slowest == 1);
  }
}

TEST_CASE("every committed topology loads, joins all its devices, and has the number of devices of its name") {
  const std::map<std::string, size_t> devices = {
      {"local-cpu-1", 1},     {"local-cpu-2", 2},   {"local-cpu-4", 4}, {"p100-1x4", 4},     {"p100-2x4", 8},
      {"p100-4x4", 16},       {"p100-16x4", 64},    {"k80-1x4", 4},     {"k80-2x4", 8},      {"k80-4x4", 16},
      {"k80-8x4", 32},        {"k80-16x4", 64},     {"dgx-a100-1", 8},  {"dgx-a100-2", 16},  {"dgx-a100-8", 64},
      {"dgx-a100-128", 1024}, {"dgx-h100-1", 8},    {"dgx-h100-2", 16}, {"dgx-h100-8", 64},  {"dgx-h100-128", 1024},
      {"h200-1", 1},          {"h200-8", 8},        {"h200-64", 64},    {"tpu-v3-128", 128}, {"tpu-v3-512", 512},
      {"h100-1", 1},          {"tpu-v3-2048", 2048}};
  std::set<std::string> found;
  for (const std::string& path : committed_json_files("topologies")) {
    INFO(path);
    const Topology topology = load_topology(path);
    CHECK(topology.name == std::filesystem::path(path).stem().string());
    REQUIRE(devices.count(topology.name) == 1);
    CHECK(topology.devices.size() == devices.at(topology.name));
    found.insert(topology.name);
    const int count = static_cast<int>(topology.devices.size());
    for (int source : {0, count / 2, count - 1})  // all pairs of 1024 devices are too many
      for (int destination = 0; destination < count; ++destination)
        if (source != destination && topology.route(source, destination).channels.empty())
          FAIL_CHECK("no route from " << source << " to " << destination);
  }
  CHECK(found.size() == devices.size());
}

TEST_CASE("routes of the committed topologies take the links they should") {
  SECTION("the paper's first cluster: NVLink inside a node, 100 Gb/s between nodes") {
    const Topology topology = committed_topology("p100-4x4");
    CHECK(topology.devices[5].name == "node1.gpu1");
    CHECK(topology.route(0, 3).channels.size() == 1);
    CHECK(topology.route(0, 3).bandwidth_gb_per_s == 20);
    CHECK(topology.route(0, 5).bandwidth_gb_per_s == 12.5);
    CHECK(topology.route(0, 5).latency_us == Approx(7));
  }
  SECTION("the paper's second cluster: pairs of GPUs, a shared switch, 56 Gb/s between nodes") {
    const Topology topology = committed_topology("k80-16x4");
    CHECK(topology.route(0, 1).channels.size() == 2);
    CHECK(topology.route(0, 2).channels.size() == 4);
    CHECK(topology.route(0, 4).bandwidth_gb_per_s == 7);
    // GPUs of one node share its adapter.
    CHECK(topology.route(0, 4).channels[2] == topology.route(3, 8).channels[2]);
  }
  SECTION("a DGX: NVSwitch inside, an adapter for each GPU") {
    const Topology topology = committed_topology("dgx-h100-2");
    CHECK(topology.route(0, 7).bandwidth_gb_per_s == 450);
    CHECK(topology.route(0, 8).bandwidth_gb_per_s == 50);
    CHECK(topology.route(0, 8).channels[0] != topology.route(1, 9).channels[0]);
    CHECK(committed_topology("dgx-a100-2").route(0, 15).bandwidth_gb_per_s == 25);
  }
  SECTION("CPU ranks: copies keep both ends busy, one direction at a time") {
    const Topology topology = committed_topology("local-cpu-4");
    CHECK(topology.channels.size() == 6);
    CHECK(topology.route(1, 3).blocks_devices);
    CHECK(std::ranges::equal(topology.route(1, 3).channels, topology.route(3, 1).channels));
  }
}

// Devices of one switch share their routes but for the first channel.
TEST_CASE("every route leads from its source to its destination, link by link") {
  for (const std::string name : {"p100-4x4", "k80-16x4", "dgx-a100-2", "dgx-h100-8", "h200-64", "tpu-v3-128"}) {
    INFO(name);
    const Topology topology = committed_topology(name);
    const std::string arrow = " -> ";
    for (const DeviceId source : topology.devices.indices())
      for (const DeviceId destination : topology.devices.indices()) {
        if (source == destination) continue;
        const Route route = topology.route(source, destination);
        std::string at = topology.devices[source].name;
        double latency_us = 0;
        for (const ChannelId id : route.channels) {
          const std::string& name = topology.channel_name(id);
          if (name.rfind(at + arrow, 0) != 0) FAIL("from " << at << ": " << name);
          at = name.substr(at.size() + arrow.size());
          latency_us += topology.channels[id].latency_us;
        }
        if (at != topology.devices[destination].name || std::abs(latency_us - route.latency_us) > 1e-9)
          FAIL("route from " << source << " to " << destination << " ends at " << at << " after " << latency_us);
      }
  }
}

TEST_CASE("routes of devices that are linked alike differ in their ends alone") {
  for (const std::string name : {"k80-16x4", "dgx-a100-2", "dgx-h100-8"}) {
    INFO(name);
    const Topology topology = committed_topology(name);
    int compared = 0;
    for (const DeviceId a : topology.devices.indices())
      for (const DeviceId b : topology.devices.indices()) {
        if (a == b || !topology.linked_alike(a, b)) continue;
        for (const DeviceId other : topology.devices.indices()) {
          if (other == a || other == b) continue;
          const auto channels = [&](DeviceId from, DeviceId to) {
            const std::span<const ChannelId> route = topology.route(from, to).channels;
            return Vector<ChannelId>(route.begin(), route.end());
          };
          Vector<ChannelId> from = channels(a, other), to = channels(other, a);
          from.front() = topology.first_channel(from.front(), a, b);
          to.back() = topology.last_channel(to.back(), a, b);
          if (from != channels(b, other) || to != channels(other, b)) FAIL(a << ", " << b << " and " << other);
          ++compared;
        }
      }
    CHECK(compared > 0);
  }
}

// Whatever the rates: the copy through shared memory occupies both processors, the detour would not.
TEST_CASE("devices that copy through shared memory have no other route to each other") {
  const auto topology = [](const std::string& blocks) {
    return parse_topology(parse_json(
        R"({"format":"fftopology/1","name":"t",
        "device_models":{"m":{"peak_tflops":1,"memory_gb_per_s":1,"launch_us":1}},
        "devices":[{"name":"a","kind":"cpu","model":"m"},{"name":"b","kind":"cpu","model":"m"},
        {"name":"c","kind":"cpu","model":"m"}],"switches":["host"],
        "links":[{"between":["a","b"],"bandwidth_gb_per_s":0.8,"latency_us":1,"blocks_devices":)" +
            blocks + R"(},{"between":["a","host"],"bandwidth_gb_per_s":8,"latency_us":1},
        {"between":["b","host"],"bandwidth_gb_per_s":8,"latency_us":1},
        {"between":["c","host"],"bandwidth_gb_per_s":8,"latency_us":1}]})",
        "t.json"));
  };
  const Topology shared = topology("true");
  for (const auto& [from, to] : {std::pair(0, 1), std::pair(1, 0)}) {
    CHECK(shared.route(from, to).channels.size() == 1);
    CHECK(shared.route(from, to).bandwidth_gb_per_s == 0.8);
    CHECK(shared.route(from, to).blocks_devices);
  }
  CHECK(shared.route(0, 2).channels.size() == 2);
  CHECK(topology("false").route(0, 1).bandwidth_gb_per_s == 8);
}

TEST_CASE("a torus joins each node to the next in every dimension") {
  const auto torus = [](const std::string& count, const std::string& shape) {
    return R"("nodes":{"count":)" + count + R"(,"name":"chip","devices":[{"name":"core","kind":"gpu","model":"m"}],
              "switches":["router"],"links":[{"between":["core","router"],"bandwidth_gb_per_s":8,"latency_us":0}],
              "torus":{"shape":)" +
           shape + R"(,"attach":"router","link":{"bandwidth_gb_per_s":1,"latency_us":1}}})";
  };
  const auto links = [&](const std::string& count, const std::string& shape) {
    const Topology topology = parse_topology(parse_json(
        R"({"format":"fftopology/1","name":"t",
            "device_models":{"m":{"peak_tflops":1,"memory_gb_per_s":1,"launch_us":1}},)" +
            torus(count, shape) + "}",
        "t.json"));
    std::multiset<std::string> names;
    for (const ChannelId channel : topology.channels.indices()) {
      std::string name = topology.channel_name(channel);
      if (name.find("core") != std::string::npos) continue;
      // "chip0.router -> chip1.router" as "0 -> 1"
      for (const std::string part : {"chip", "chip", ".router", ".router"}) name.erase(name.find(part), part.size());
      names.insert(name);
    }
    return names;
  };
  using Links = std::multiset<std::string>;
  CHECK(links("1", "[1]") == Links{});
  CHECK(links("2", "[2]") == Links{"0 -> 1", "1 -> 0"});
  CHECK(links("3", "[1,3]") == Links{"0 -> 1", "1 -> 0", "1 -> 2", "2 -> 1", "2 -> 0", "0 -> 2"});
  CHECK(links("6", "[2,3]") == Links{"0 -> 1", "1 -> 0", "1 -> 2", "2 -> 1", "2 -> 0", "0 -> 2", "3 -> 4", "4 -> 3",
                                     "4 -> 5", "5 -> 4", "5 -> 3", "3 -> 5", "0 -> 3", "3 -> 0", "1 -> 4", "4 -> 1",
                                     "2 -> 5", "5 -> 2"});
  CHECK(links("27", "[3,3,3]").size() == 2 * 3 * 27);
  CHECK(topology_error(torus("6", "[2,2]")) ==
        "t.json: /nodes/torus/shape: the sizes multiply to fewer than 6, the number of nodes");
  CHECK(topology_error(torus("6", "[6,2]")) ==
        "t.json: /nodes/torus/shape: the sizes multiply to more than 6, the number of nodes");
  CHECK(topology_error(torus("6", "[7]")) == "t.json: /nodes/torus/shape/0: found 7, expected an integer from 1 to 6");
  std::string wrong = torus("6", "[2,3]");
  wrong.replace(wrong.find("\"attach\":\"router"), 16, "\"attach\":\"core");
  CHECK(topology_error(wrong).find("t.json: /: no route joins the devices") == 0);
  wrong = torus("6", "[2,3]");
  wrong.insert(wrong.size() - 1, R"(,"network":{"name":"n","attach":[],"link":{}})");
  CHECK(topology_error(wrong) ==
        "t.json: /nodes/torus: is not allowed with \"network\"; one of the two joins the nodes");
}

TEST_CASE("routes of a TPU mesh are the shortest, around its edges too") {
  const Topology topology = committed_topology("tpu-v3-2048");
  const auto distance = [](int a, int b) { return std::min((a - b + 32) % 32, (b - a + 32) % 32); };
  for (const DeviceId source : {0, 1, 777, 2047})
    for (DeviceId other = 0; other < 2048; ++other) {
      if (other == source) continue;
      const int from = source / 2, to = other / 2;  // chips
      const int hops = distance(from / 32, to / 32) + distance(from % 32, to % 32);
      const Route route = topology.route(source, other);
      REQUIRE(static_cast<int>(route.channels.size()) == hops + 2);
      REQUIRE(route.bandwidth_gb_per_s == (hops == 0 ? 328 : 82));
    }
}

TEST_CASE("the order of devices by links does not depend on their numbers") {
  for (const char* name : {"p100-16x4", "dgx-a100-8", "tpu-v3-128", "local-cpu-4"}) {
    CAPTURE(name);
    const Topology topology = committed_topology(name);
    Vector<DeviceId> backwards(topology.devices.size());
    for (const int place : backwards.indices()) backwards[place] = backwards.count() - 1 - place;
    const Topology other = topology.with_devices(backwards);
    const Vector<DeviceId> order = topology.by_links(), other_order = other.by_links();
    for (const int place : order.indices()) {
      CHECK(order[place] == place);  // links are listed in the order of the devices
      REQUIRE(other.devices[other_order[place]].name == topology.devices[place].name);
    }
  }
}
