#include "search/discovery/discover.h"

#include "common/processors.h"
#include "search/discovery/hwloc.h"
#include "search/discovery/nvml.h"
#include "search/discovery/presets.h"
#include "search/discovery/topology_file.h"

namespace ff {

namespace {

std::string count(int64_t number, const std::string& what, const char* plural = "s") {
  return std::to_string(number) + " " + what + (number == 1 ? "" : plural);
}

// As a topology: nothing that would be refused later is written.
Topology write_topology(const std::string& out, const Json& file) {
  Topology topology = parse_topology(parse_json(file.dump(), out));
  write_json_file(out, file);
  return topology;
}

CommandResult run_preset(const TopologyOptions& options) {
  Json file = discovery::topology_of_preset({.name = *options.preset,
                                             .nodes = options.nodes,
                                             .gpus_per_node = options.gpus_per_node,
                                             .network_gb_per_s = options.network_gb_per_s});
  const Topology topology = write_topology(options.out, file);
  std::string text = topology.name + ": " + file["description"].get<std::string>() + "\n" + options.out + ": " +
                     count(topology.devices.count(), "device") + "\n";
  return {std::move(file), std::move(text)};
}

}  // namespace

CommandResult run_topology(const TopologyOptions& options) {
  Vector<std::string> inputs;
  if (!options.hwloc_xml.empty()) inputs.push_back(options.hwloc_xml);
  expect_all_writable({options.out}, inputs);
  if (options.preset) return run_preset(options);
  discovery::Machine machine = discovery::read_hwloc(options.hwloc_xml);
  const bool here = options.hwloc_xml.empty();
  if (here) discovery::add_nvml(machine);
  Json file = discovery::topology_of(machine, {.nodes = options.nodes,
                                               .network_gb_per_s = options.network_gb_per_s,
                                               .cpu_ranks = options.cpu_ranks,
                                               .usable_processors = here ? usable_processors().count() : 0});
  const Topology topology = write_topology(options.out, file);
  int64_t switches = 0;
  for (const discovery::PcieVertex& vertex : machine.pcie)
    switches += vertex.kind == discovery::PcieVertex::Kind::pcie_switch;
  std::string text = topology.name + ": " + count(machine.numa.count(), "NUMA node") + ", " +
                     count(switches, "PCIe switch", "es") + ", " + count(machine.gpus().count(), "GPU") + ", " +
                     count(machine.nvlinks.count(), "NVLink connection") + ", " +
                     count(machine.adapters().count(), "network adapter") + " (" + machine.source + ")\n" +
                     options.out + ": " + count(topology.devices.count(), "device") + "\n";
  return {std::move(file), std::move(text), machine.notes};
}

}  // namespace ff
