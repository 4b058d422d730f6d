#include "search/discovery/hwloc.h"

#include <catch2/catch.hpp>

#include "common/errors.h"
#include "common/topology.h"
#include "search/discovery/topology_file.h"
#include "tests/support/message_of.h"

namespace ff::discovery {
namespace {

Machine recorded(const std::string& name) { return read_hwloc(FF_SOURCE_DIR "/tests/hwloc/" + name + ".xml"); }

Topology loaded(Machine machine, const ClusterSettings& settings = {}) {
  const Json json = topology_of(machine, settings);
  return parse_topology(parse_json(json.dump(), "discovered"));
}

}  // namespace

TEST_CASE("a DGX-2 as hwloc recorded it") {
  const Machine machine = recorded("nvidiaDGX2");
  CHECK(machine.name == "NVIDIA DGX-2H");
  CHECK(machine.processor == "Intel(R) Xeon(R) Platinum 8174 CPU @ 3.10GHz");
  CHECK(machine.numa.size() == 2);
  CHECK(machine.numa[1].package == 1);
  const Vector<int> gpus = machine.gpus();
  REQUIRE(gpus.size() == 16);
  CHECK(machine.pcie[gpus[0]].gpu.name == "Tesla V100-SXM3-32GB-H");
  CHECK(machine.pcie[gpus[0]].gpu.bus_id == "0000:34:00.0");
  CHECK(machine.pcie[gpus[0]].numa == 0);
  CHECK(machine.pcie[gpus[15]].numa == 1);
  CHECK(machine.pcie[gpus[0]].link.gb_per_s == Approx(15.754).margin(0.001));
  // Pairs of GPUs share a switch, and two such switches one more.
  CHECK(machine.pcie[gpus[0]].parent == machine.pcie[gpus[1]].parent);
  const int pair = machine.pcie[gpus[0]].parent, other = machine.pcie[gpus[2]].parent;
  CHECK(pair != other);
  CHECK(machine.pcie[pair].parent == machine.pcie[other].parent);
  CHECK(machine.pcie[machine.pcie[pair].parent].parent == -1);
  REQUIRE(machine.nvlinks.size() == 16);
  for (const Nvlink& nvlink : machine.nvlinks) {
    CHECK(nvlink.to_gpu == -1);
    CHECK(nvlink.to_numa == -1);
    CHECK(nvlink.rate.gb_per_s == 150);  // six links of 25 GB/s
  }
  const Topology topology = loaded(machine);
  CHECK(topology.devices.size() == 16);
  CHECK(topology.models[0].name == "v100");
  CHECK(topology.models[0].memory_bytes == 32'000'000'000);
  CHECK(topology.route(0, 15).bandwidth_gb_per_s == 150);
}

TEST_CASE("NVLinks between pairs of GPUs and to processors, as hwloc recorded them") {
  const Machine machine = recorded("power8gpudistances");
  const Vector<int> gpus = machine.gpus();
  REQUIRE(gpus.size() == 4);
  CHECK(machine.pcie[gpus[0]].gpu.memory_bytes == 16671616LL * 1024);
  CHECK(machine.nvlinks.size() == 6);
  const Topology topology = loaded(machine);
  CHECK(topology.route(0, 1).bandwidth_gb_per_s == 40);
  CHECK(topology.route(0, 1).channels.size() == 1);
  CHECK(topology.route(0, 3).bandwidth_gb_per_s == 20);  // over the link between the NUMA nodes
  CHECK(topology.route(0, 3).channels.size() == 3);
}

TEST_CASE("GPUs next to a network adapter, and a cluster of such machines") {
  Machine machine = recorded("32em64t-2n8c2t-pci-normalio");
  CHECK(machine.gpus().size() == 3);
  const Vector<int> adapters = machine.adapters();
  REQUIRE(adapters.size() == 3);
  CHECK(machine.pcie[adapters[2]].adapter.name == "mlx5_0");
  CHECK(message_of<InputError>([&] { topology_of(machine, {.nodes = 4}); }) ==
        "--nodes: the rate of no network adapter is known; give --network-gb-per-s");
  CHECK(loaded(machine, {.nodes = 4, .network_gb_per_s = 7}).devices.size() == 12);
  machine.pcie[adapters[2]].adapter.network = {7, "test"};
  const Json json = topology_of(machine, {.nodes = 4});
  CHECK(json["nodes"]["network"]["attach"] == Json{"mlx5_0"});
  CHECK(json["nodes"]["network"]["link"]["bandwidth_gb_per_s"] == 7);
}

TEST_CASE("this machine, and files that hwloc cannot read") {
  const Machine machine = read_hwloc("");
  REQUIRE_FALSE(machine.numa.empty());
  CHECK(machine.numa[0].cores > 0);
  CHECK(machine.numa[0].memory_bytes > 0);
  CHECK_THROWS_AS(read_hwloc("/nowhere.xml"), InputError);
  CHECK(message_of<InputError>([] {
          read_hwloc(FF_SOURCE_DIR "/graphs/lenet.json");
        }).find("cannot read it, expected a file that lstopo wrote, of this version or an older one") !=
        std::string::npos);
}

TEST_CASE("without hwloc, processors are what the operating system counts") {
  Machine machine = machine_without_hwloc("hwloc was not found");
  CHECK(machine.notes[0] ==
        "hwloc was not found: sockets, NUMA nodes, PCIe switches and network adapters are not known");
  CHECK(loaded(machine, {.cpu_ranks = 2, .usable_processors = 2}).devices.size() == 2);
}

}  // namespace ff::discovery
