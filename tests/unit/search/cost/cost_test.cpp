#include <catch2/catch.hpp>
#include <cstdio>
#include <map>

#include "search/cost/communication.h"
#include "search/cost/kernel_costs.h"
#include "tests/support/random_network.h"

using namespace ff;

namespace {

Topology parse(const std::string& rest) {
  return parse_topology(parse_json(
      R"({"format":"fftopology/1","name":"t","device_models":{"m":{"peak_tflops":1,"memory_gb_per_s":1,"launch_us":3}},
      )" + rest +
          "}",
      "t"));
}

// d0, d1 on switch a; d2, d3 on switch b; one full-duplex link of 1 GB/s between the switches.
Topology two_switches() {
  std::string text = R"("devices":[)";
  for (int d = 0; d < 4; ++d)
    text += (d ? "," : "") + std::string(R"({"name":"d)") + std::to_string(d) + R"(","kind":"gpu","model":"m"})";
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

TEST_CASE("measured all-reduce rates replace a link's own") {
  const Topology topology =
      parse(R"("devices":[{"name":"x","kind":"cpu","model":"m"},{"name":"y","kind":"cpu","model":"m"}],
    "links":[{"between":["x","y"],"bandwidth_gb_per_s":8,"latency_us":1,"busy_endpoints":true,"all_reduce_gb_per_s":2,
    "all_reduce_latency_us":3}])");
  CommunicationModel model(topology);
  CommunicationCost cost;
  model.all_reduce({0, 1}, 8000, cost);
  CHECK(cost.duration == 2 * 3000 + 4000);
  CHECK(cost.uses.size() == 4);  // both devices are busy too
  model.transfer(0, 1, 8000, cost);
  CHECK(cost.duration == 2000);
}

TEST_CASE("profile files keep what was measured, and rates between measured sizes are interpolated") {
  Profile profile;
  profile.device_model = "m";
  profile.measured = {{"where", "here"}, {"date", "2026-01-01"}};
  profile.entries["forward linear"] = {12.5, 7, 0.25};
  profile.entries["copy 1000"] = {1, 5, 0};
  profile.entries["copy 3000"] = {5, 5, 0};
  const std::string path = "cost_test_profile.json";
  save_profile(path, profile);
  const Profile read = load_profile(path);
  std::remove(path.c_str());
  CHECK(read.device_model == "m");
  CHECK(read.entries.at("forward linear").us == 12.5);
  CHECK(read.entries.at("forward linear").samples == 7);
  CHECK(*interpolated_us(read, "copy", 2000) == Approx(3));
  CHECK(*interpolated_us(read, "copy", 10) == Approx(1));
  CHECK(*interpolated_us(read, "copy", 6000) == Approx(10));
  CHECK_FALSE(interpolated_us(read, "update", 10));
}

TEST_CASE("costs come from the allowed source") {
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/lenet.json", 2);
  const Topology topology = parse(R"("devices":[{"name":"x","kind":"gpu","model":"m"}])");
  const OperatorDefinition& conv = *graph.operators[0].definition;
  Profile profile;
  profile.device_model = "m";
  profile.entries[kernel_signature(conv, conv.whole(), Phase::forward, {})] = {42, 1, 0};

  KernelCosts automatic(topology, CostMode::automatic, {profile});
  CHECK(automatic.kernel(conv, conv.whole(), Phase::forward, true, {}, 0).ns == 42000);
  CHECK(automatic.kernel(conv, conv.whole(), Phase::forward, true, {}, 0).source == CostSource::profile);
  CHECK(automatic.kernel(conv, conv.whole(), Phase::backward, true, {}, 0).source == CostSource::analytic);

  KernelCosts only_profile(topology, CostMode::profile, {profile});
  CHECK_THROWS_WITH(
      only_profile.kernel(conv, conv.whole(), Phase::backward, true, {}, 0),
      Catch::Contains("has no entry \"backward-parameters conv2d") && Catch::Contains("run ffsearch profile"));
  KernelCosts measured(topology, CostMode::measure, {});
  CHECK_THROWS_WITH(measured.kernel(conv, conv.whole(), Phase::forward, true, {}, 0),
                    Catch::Contains("this machine has no such device"));
  profile.device_model = "n";
  profile.file = "n.json";
  CHECK_THROWS_WITH(
      KernelCosts(topology, CostMode::automatic, {profile}),
      "n.json: is the profile of device model \"n\", which the topology \"t\" does not have; did you mean \"m\"?");
}

TEST_CASE("a device model is found by the GPU's name") {
  CHECK(names_model("NVIDIA H200", "h200"));
  CHECK(names_model("Tesla P100-SXM2-16GB", "p100"));
  CHECK(names_model("NVIDIA A100-SXM4-80GB", "a100"));
  CHECK_FALSE(names_model("NVIDIA GH200 480GB", "h200"));
  CHECK_FALSE(names_model("NVIDIA H100 80GB HBM3", "h200"));
}

TEST_CASE("a GPU's profile is used with the precision that it was measured with") {
  const Topology topology = parse(R"("devices":[{"name":"x","kind":"gpu","model":"m"}])");
  Profile profile;
  profile.file = "m.json";
  profile.device_model = "m";
  profile.measured["precision"] = "tf32";
  CHECK_NOTHROW(KernelCosts(topology, CostMode::profile, {profile}, 0, Precision::tf32));
  CHECK_THROWS_WITH(KernelCosts(topology, CostMode::profile, {profile}),
                    "m.json: was measured with precision tf32, not fp32; give --precision tf32 or another profile");
}

TEST_CASE("kernels are measured with the executor's own, forward and backward apart") {
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/lenet.json", 2);
  const Topology topology = parse(R"("devices":[{"name":"x","kind":"cpu","model":"m"}])");
  KernelCosts costs(topology, CostMode::measure, {});
  const OperatorDefinition& conv = *graph.operators[0].definition;
  const KernelCost forward = costs.kernel(conv, conv.whole(), Phase::forward, true, {}, 0);
  CHECK(forward.source == CostSource::measured);
  CHECK(forward.ns > 100);
  CHECK(costs.measured_count() == 2);
  CHECK(costs.kernel(conv, conv.whole(), Phase::forward, true, {}, 0).ns == forward.ns);  // once is enough
  CHECK(costs.measured_count() == 2);
  CHECK(costs.copy(1 << 20, 0) > 1000);
  CHECK(costs.update(1 << 20, 0) > 1000);
}

TEST_CASE("parts of one kind have one signature") {
  int64_t compared = 0;
  for (uint32_t number = 0; number < 300; ++number) {
    RandomSource random(number);
    const Graph graph = parse_graph(parse_json(random_network(random).dump(), "graph"));
    const Strategy strategy = random_strategy(graph, 6, random);
    for (OperatorId op = 0; op < static_cast<OperatorId>(graph.operators.size()); ++op) {
      const OperatorDefinition& definition = *graph.operators[op].definition;
      const Vector<int> kinds = definition.kinds_of_parts(strategy[op].degrees);
      REQUIRE(static_cast<int64_t>(kinds.size()) == strategy[op].parts());
      std::map<int, std::string> signatures;
      for (size_t part = 0; part < kinds.size(); ++part) {
        const std::string signature =
            definition.signature(definition.part(strategy[op].degrees, static_cast<int64_t>(part)));
        const auto [known, added] = signatures.try_emplace(kinds[part], signature);
        INFO("case " << number << ", operator " << graph.operators[op].name << ", part " << part);
        REQUIRE(known->second == signature);
        if (!added) ++compared;
      }
    }
  }
  CHECK(compared > 1000);
}
