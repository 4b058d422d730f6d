#include "search/discovery/topology_file.h"

#include <catch2/catch.hpp>

#include "common/topology.h"
#include "search/discovery/datasheets.h"

namespace ff::discovery {
namespace {

PcieVertex gpu(const std::string& name, int64_t memory_bytes = 0) {
  PcieVertex vertex;
  vertex.kind = PcieVertex::Kind::gpu;
  vertex.link = {31.5, "test"};
  vertex.gpu.name = name;
  vertex.gpu.memory_bytes = memory_bytes;
  vertex.gpu.memory_source = "test";
  return vertex;
}

Machine machine_with(Vector<PcieVertex> pcie) {
  Machine machine;
  machine.name = "m";
  machine.source = "test";
  machine.processor = "Some CPU @ 2.50GHz";
  machine.numa = {{0, 8, 64 << 20}, {1, 8, 64 << 20}};
  machine.pcie = std::move(pcie);
  return machine;
}

}  // namespace

TEST_CASE("GPUs and their datasheets") {
  CHECK(gpu_key("NVIDIA H100 80GB HBM3") == "h100");
  CHECK(gpu_datasheet("NVIDIA H100 80GB HBM3")->peak_tflops == 67);
  CHECK(gpu_datasheet("NVIDIA H100 PCIe")->peak_tflops == 51);
  CHECK(gpu_datasheet("NVIDIA A100-SXM4-40GB")->memory_gb_per_s == 1555);
  CHECK(gpu_datasheet("NVIDIA A100-SXM4-80GB")->memory_gb_per_s == 2039);
  CHECK(gpu_datasheet("NVIDIA A1000") == nullptr);  // a word of its own
  CHECK(gpu_key("NVIDIA GeForce RTX 4090") == "4090");
  CHECK(gpu_key("") == "gpu");
}

TEST_CASE("every link and device model has its source") {
  Machine machine = machine_with({gpu("NVIDIA H100 80GB HBM3"), gpu("NVIDIA H100 80GB HBM3")});
  machine.nvlinks = {{0, 1, -1, {100, "test"}}};
  const Json json = topology_of(machine, {.nodes = 2, .network_gb_per_s = 25});
  for (const auto& [name, model] : json["device_models"].items()) CHECK(model["source"].is_string());
  for (const Json& link : json["nodes"]["links"]) CHECK(link["source"].is_string());
  CHECK(json["nodes"]["network"]["link"]["source"] == "given by --network-gb-per-s; latency estimated");
  CHECK(json["nodes"]["network"]["attach"] == Json{"numa0"});
  const Topology topology = parse_topology(parse_json(json.dump(), "t"));
  CHECK(topology.devices.size() == 4);
  CHECK(topology.route(0, 1).bandwidth_gb_per_s == 100);
  CHECK(topology.route(0, 2).bandwidth_gb_per_s == 25);
}

TEST_CASE("rates of a GPU without a known datasheet are calculated, or guessed with a note") {
  PcieVertex known = gpu("NVIDIA X9", 1000);
  known.gpu.peak_tflops = 12;
  known.gpu.memory = {600, "clocks"};
  Machine machine = machine_with({known});
  CHECK(topology_of(machine, {})["device_models"]["x9"]["peak_tflops"] == 12);
  machine = machine_with({gpu("NVIDIA X9", 1000)});
  CHECK(topology_of(machine, {})["device_models"]["x9"]["peak_tflops"] == 10);
  CHECK(machine.notes[0] ==
        "NVIDIA X9: its rates are not known, 10 TFLOPS and 500 GB/s are estimates; correct them in device_models");
}

TEST_CASE("GPUs of one model that differ in memory are two device models") {
  Machine machine = machine_with({gpu("Tesla T4", 1000), gpu("Tesla T4", 2000), gpu("Tesla T4", 1000)});
  const Json json = topology_of(machine, {});
  CHECK(json["device_models"].size() == 2);
  CHECK(json["nodes"]["devices"][1]["model"] == "t4-2");
  CHECK(json["nodes"]["devices"][2]["model"] == "t4");
}

TEST_CASE("without GPUs the processors are devices, of as many cores as there are for each") {
  Machine machine = machine_with({});
  Json json = topology_of(machine, {});
  CHECK(json["nodes"]["devices"].size() == 2);
  CHECK(json["device_models"]["cpu"]["cores"] == 8);
  CHECK(json["device_models"]["cpu"]["peak_tflops"] == 0.64);  // 8 cores, 32 operations, 2.5 GHz
  json = topology_of(machine, {.cpu_ranks = 4, .usable_processors = 6});
  CHECK(json["device_models"]["cpu"]["cores"] == 1);
  CHECK(parse_topology(parse_json(json.dump(), "t")).devices.size() == 4);
  CHECK(!json["nodes"].contains("switches"));  // shared memory joins the ranks, and nothing else does
  json = topology_of(machine, {.nodes = 3, .network_gb_per_s = 1, .cpu_ranks = 2});
  CHECK(parse_topology(parse_json(json.dump(), "t")).route(0, 5).bandwidth_gb_per_s == 1);
}

}  // namespace ff::discovery
