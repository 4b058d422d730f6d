#include "search/discovery/nvml.h"

#include <catch2/catch.hpp>

#include "search/discovery/topology_file.h"

namespace ff::discovery {

// tests/support/nvml/nvml.cpp replaces the library.
TEST_CASE("what NVML tells goes into the PCIe tree, by bus numbers") {
  Machine machine;
  machine.numa = {{0, 4, 1 << 30}, {1, 4, 1 << 30}};
  PcieVertex second;  // as hwloc found it, with its link slowed down
  second.kind = PcieVertex::Kind::gpu;
  second.numa = 1;
  second.link = {0.25, "hwloc"};
  second.gpu.bus_id = "0000:36:00.0";
  machine.pcie = {second};
  add_nvml(machine, FF_TEST_NVML);
  REQUIRE(machine.pcie.size() == 3);
  const PcieVertex& vertex = machine.pcie[0];
  CHECK(vertex.numa == 1);
  CHECK(vertex.gpu.name == "NVIDIA X9 Test");
  CHECK(vertex.gpu.memory_bytes == 48LL << 30);
  CHECK(vertex.gpu.memory_source == "NVML, driver 999.1");
  CHECK(vertex.gpu.peak_tflops == Approx(30));
  CHECK(vertex.gpu.memory.gb_per_s == Approx(1024));
  CHECK(vertex.link.gb_per_s == Approx(31.504));
  CHECK(vertex.link.source == "NVML, driver 999.1: PCIe 4.0 x16");
  CHECK(machine.pcie[1].gpu.bus_id == "0000:34:00.0");
  CHECK(machine.pcie[2].link.gb_per_s == 0);
  double between = 0, switches = 0;
  for (const Nvlink& nvlink : machine.nvlinks) (nvlink.to_gpu >= 0 ? between : switches) += nvlink.rate.gb_per_s;
  CHECK(between == 100);       // 4 links of 25 GB/s, told by both ends
  CHECK(switches == 2 * 200);  // 8 of each
  CHECK(machine.notes.empty());
  const Json json = topology_of(machine, {});
  CHECK(json["nodes"]["devices"].size() == 3);
}

TEST_CASE("a machine without NVML") {
  Machine machine;
  add_nvml(machine, "libno_such_library.so");
  REQUIRE(machine.notes.size() == 1);
  CHECK(machine.notes[0].rfind("NVML was not found (libno_such_library.so: ", 0) == 0);
  CHECK(machine.gpus().empty());
}

}  // namespace ff::discovery
