#include "common/topology.h"

#include <algorithm>
#include <catch2/catch.hpp>
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

Topology committed_topology(const std::string& name) {
  return load_topology(FF_SOURCE_DIR "/topologies/" + name + ".json");
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

TEST_CASE("every committed topology loads, joins all its devices, and has the number of devices of its name") {
  const std::map<std::string, size_t> devices = {
      {"local-cpu-1", 1},     {"local-cpu-2", 2}, {"local-cpu-4", 4}, {"p100-1x4", 4},    {"p100-2x4", 8},
      {"p100-4x4", 16},       {"p100-16x4", 64},  {"k80-1x4", 4},     {"k80-2x4", 8},     {"k80-4x4", 16},
      {"k80-8x4", 32},        {"k80-16x4", 64},   {"dgx-a100-1", 8},  {"dgx-a100-2", 16}, {"dgx-a100-8", 64},
      {"dgx-a100-128", 1024}, {"dgx-h100-1", 8},  {"dgx-h100-2", 16}, {"dgx-h100-8", 64}, {"dgx-h100-128", 1024},
      {"h200-1", 1},          {"h200-8", 8},      {"h200-64", 64}};
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
    CHECK(topology.route(1, 3).busy_endpoints);
    CHECK(std::ranges::equal(topology.route(1, 3).channels, topology.route(3, 1).channels));
  }
}
