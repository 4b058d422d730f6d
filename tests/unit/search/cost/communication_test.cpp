#include "search/cost/communication.h"

#include <catch2/catch.hpp>
#include <map>

#include "common/topology.h"
#include "search/discovery/presets.h"

using namespace ff;

namespace {

Topology parse(const std::string& rest) {
  return parse_topology(parse_json(
      R"({"format":"fftopology/1","name":"t","device_models":{"m":{"peak_tflops":1,"memory_gb_per_s":1,"launch_us":3}},
      )" + rest +
          "}",
      "t"));
}

// d0, d1 on switch a; d2, d3 on switch b; one full-duplex link of 1 GB/s between the switches. Said of the first and
// the last two: in which node they are.
Topology two_switches(const std::string& of_first = "", const std::string& of_last = "") {
  std::string text = R"("devices":[)";
  for (int d = 0; d < 4; ++d)
    text += (d ? "," : "") + std::string(R"({"name":"d)") + std::to_string(d) + R"(","kind":"gpu","model":"m")" +
            (d < 2 ? of_first : of_last) + "}";
  text += R"(],"switches":["a","b"],"links":[{"between":["a","b"],"bandwidth_gb_per_s":1,"latency_us":10})";
  for (int d = 0; d < 4; ++d)
    text += R"(,{"between":["d)" + std::to_string(d) + (d < 2 ? R"(","a"])" : R"(","b"])") +
            R"(,"bandwidth_gb_per_s":4,"latency_us":1})";
  return parse(text + "]");
}

}  // namespace

TEST_CASE("a transfer takes its latencies plus bytes over the narrowest link, and holds each link for its own time") {
  const Topology topology = two_switches();
  CommunicationModel model(topology);
  CommunicationCost cost;
  model.transfer(0, 3, 4000, cost);
  CHECK(cost.duration == 12000 + 4000);
  REQUIRE(cost.uses.size() == 3);
  CHECK(cost.uses[0].occupancy == 1000);
  CHECK(cost.uses[1].occupancy == 4000);
  CHECK(cost.uses[2].occupancy == 1000);
}

TEST_CASE("an all-reduce takes the cheaper of ring and tree") {
  const Topology topology = two_switches();
  CommunicationModel model(topology);
  CommunicationCost cost;
  // Ring of 4: 2*3 latencies of the slowest hop (1+10+1 us), and the switch link carries 1.5 times the bytes in each
  // direction. Tree (0; 1, 2; 3 under 1): 2*2 latencies of 12 us; d1-d3 and d0-d2 both cross the switch link: 2 times
  // the bytes.
  model.all_reduce({0, 1, 2, 3}, 40, cost);
  CHECK(cost.duration == 48000 + 2 * 40);
  model.all_reduce({0, 1, 2, 3}, 4000000, cost);
  CHECK(cost.duration == 72000 + 6000000);
  // Two holders on one switch: nothing crosses the other.
  model.all_reduce({0, 1}, 4000, cost);
  CHECK(cost.duration == 4000 + 1000);
  CHECK(cost.uses.size() == 4);
}

TEST_CASE("collectives take the cheapest of their algorithms") {
  const Topology topology = two_switches();
  CommunicationModel model(topology);
  CommunicationCost cost;
  const auto time = [&](CollectiveKind kind, int64_t bytes) {
    model.collective(kind, {0, 1, 2, 3}, bytes, cost);
    return cost.duration;
  };
  for (auto kind : {CollectiveKind::all_gather, CollectiveKind::reduce_scatter}) {
    // Direct: one latency of 12 us, and four quarters cross between the switches each way. Ring: three quarters do.
    CHECK(time(kind, 40) == 12000 + 40);
    CHECK(time(kind, 4000000) == 36000 + 3000000);
  }
  // Each sends a quarter of its bytes to each: four quarters cross.
  CHECK(time(CollectiveKind::all_to_all, 4000000) == 12000 + 4000000);
  // Tree: two latencies, and two of its three edges cross. Line: three latencies, and one hop crosses each way.
  for (auto kind : {CollectiveKind::broadcast, CollectiveKind::reduce}) {
    CHECK(time(kind, 40) == 24000 + 2 * 40);
    CHECK(time(kind, 4000000) == 36000 + 4000000);
  }
}

TEST_CASE("between nodes with equally many devices collectives go level by level") {
  const Topology topology = two_switches(R"(,"node":"a")", R"(,"node":"b")");
  CommunicationModel model(topology);
  CommunicationCost cost;
  // Half of all within each node, over its devices' links of 4 bytes a nanosecond and 2 us; a quarter between d0 and d2
  // and one between d1 and d3.
  model.collective(CollectiveKind::all_gather, {0, 1, 2, 3}, 4000000, cost);
  CHECK(cost.duration == 2000 + 500000 + 12000 + 2000000);
  // Both ways through both levels: less than a ring's 72000 + 6000000.
  model.all_reduce({0, 1, 2, 3}, 4000000, cost);
  CHECK(cost.duration == 2 * (2000 + 500000 + 12000 + 2000000));
  // Not with two devices here and one there: direct, two thirds cross.
  model.collective(CollectiveKind::all_gather, {0, 1, 2}, 3000000, cost);
  CHECK(cost.duration == 12000 + 2000000);
}

// Two rings, d0 d1 d2 d3 and d1 d0 d3 d2, with half of the bytes each: both cross the link between the switches, which
// so carries all bytes. Around a ring are 2 + 12 + 2 + 12 us, of which a broadcast takes three of four hops.
TEST_CASE("broadcasts go around rings, one after the other") {
  const Topology topology = two_switches(R"(,"node":"a")", R"(,"node":"b")");
  CommunicationModel model(topology);
  CommunicationCost cost;
  model.broadcasts({0, 1, 2, 3}, 3, 4000, cost);
  CHECK(cost.duration == 3 * 21000 + 4000);
  REQUIRE(cost.uses.size() == 10);  // every link, both ways
  for (const ResourceUse& use : cost.uses) CHECK(use.occupancy == cost.duration);
  model.broadcasts({0, 1}, 0.5, 4000, cost);  // half of one that several units share
  CHECK(cost.duration == 1000 + 1000);
  model.broadcasts({2}, 3, 4000, cost);
  CHECK(cost.duration == 1);
  CHECK(cost.uses.empty());
}

// 128 GPUs are too many for all pairs of nodes to be looked at.
TEST_CASE("a small collective of many nodes, direct, loads the links of all their GPUs alike") {
  const Json preset = discovery::topology_of_preset({"dgx-a100-80gb", 16});
  const Topology topology = parse_topology(JsonPlace(std::make_shared<Json>(preset), "preset"));
  CommunicationModel model(topology);
  CommunicationCost cost;
  Vector<DeviceId> all;
  for (const DeviceId device : topology.devices.indices()) all.push_back(device);
  for (const CollectiveKind kind : {CollectiveKind::all_gather, CollectiveKind::all_to_all}) {
    model.collective(kind, all, 98304, cost);
    std::map<Nanoseconds, int> channels;  // by occupancy
    for (const ResourceUse& use : cost.uses) ++channels[use.occupancy];
    CHECK(channels.size() == 2);  // to the GPUs of the node, and to other nodes
    for (const auto& [occupancy, count] : channels) CHECK(count % topology.devices.count() == 0);
  }
}

TEST_CASE("measured all-reduce rates replace a link's own") {
  const Topology topology =
      parse(R"("devices":[{"name":"x","kind":"cpu","model":"m"},{"name":"y","kind":"cpu","model":"m"}],
    "links":[{"between":["x","y"],"bandwidth_gb_per_s":8,"latency_us":1,"blocks_devices":true,"all_reduce_gb_per_s":2,
    "all_reduce_latency_us":3}])");
  CommunicationModel model(topology);
  CommunicationCost cost;
  model.all_reduce({0, 1}, 8000, cost);
  CHECK(cost.duration == 2 * 3000 + 4000);
  CHECK(cost.uses.size() == 4);  // both devices are busy too
  model.transfer(0, 1, 8000, cost);
  CHECK(cost.duration == 2000);
}
