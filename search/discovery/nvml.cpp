#include "search/discovery/nvml.h"

#include <cstdio>
#include <map>

#include "search/discovery/nvml_api.h"
#include "search/discovery/shared_library.h"

namespace ff::discovery {
namespace {

struct Api {
  SharedLibrary library;
  int (*init)();
  int (*shutdown)();
  const char* (*error_string)(int);
  int (*driver_version)(char*, unsigned);
  int (*count)(unsigned*);
  int (*handle)(unsigned, NvmlDevice*);
  int (*name)(NvmlDevice, char*, unsigned);
  int (*pci_info)(NvmlDevice, NvmlPciInfo*);
  int (*memory)(NvmlDevice, NvmlMemory*);
  // Older drivers lack these.
  int (*cores)(NvmlDevice, unsigned*);
  int (*bus_width)(NvmlDevice, unsigned*);
  int (*clock)(NvmlDevice, int, unsigned*);
  int (*pcie_generation)(NvmlDevice, unsigned*);
  int (*pcie_width)(NvmlDevice, unsigned*);
  int (*link_state)(NvmlDevice, unsigned, int*);
  int (*link_version)(NvmlDevice, unsigned, unsigned*);
  int (*link_remote_type)(NvmlDevice, unsigned, int*);
  int (*link_remote_pci)(NvmlDevice, unsigned, NvmlPciInfo*);

  explicit Api(const std::string& file) : library(file) {
    library.find("nvmlInit_v2", init);
    library.find("nvmlShutdown", shutdown);
    library.find("nvmlErrorString", error_string);
    library.find("nvmlSystemGetDriverVersion", driver_version);
    library.find("nvmlDeviceGetCount_v2", count);
    library.find("nvmlDeviceGetHandleByIndex_v2", handle);
    library.find("nvmlDeviceGetName", name);
    library.find("nvmlDeviceGetPciInfo_v3", pci_info);
    library.find("nvmlDeviceGetMemoryInfo", memory);
    library.find_optional("nvmlDeviceGetNumGpuCores", cores);
    library.find_optional("nvmlDeviceGetMemoryBusWidth", bus_width);
    library.find_optional("nvmlDeviceGetMaxClockInfo", clock);
    library.find_optional("nvmlDeviceGetMaxPcieLinkGeneration", pcie_generation);
    library.find_optional("nvmlDeviceGetMaxPcieLinkWidth", pcie_width);
    library.find_optional("nvmlDeviceGetNvLinkState", link_state);
    library.find_optional("nvmlDeviceGetNvLinkVersion", link_version);
    library.find_optional("nvmlDeviceGetNvLinkRemoteDeviceType", link_remote_type);
    library.find_optional("nvmlDeviceGetNvLinkRemotePciInfo_v2", link_remote_pci);
  }
};

// A number that a function writes; 0 where there is no such function, or the device does not support it.
template <typename Function, typename... Arguments>
unsigned number(Function function, NvmlDevice device, Arguments... arguments) {
  unsigned value = 0;
  return function && function(device, arguments..., &value) == nvml_success ? value : 0;
}

std::string bus_id(const NvmlPciInfo& pci) {
  char text[32];
  std::snprintf(text, sizeof text, "%04x:%02x:%02x.0", pci.domain, pci.bus, pci.device);
  return text;
}

// One direction of one lane, with its encoding (PCI Express Base Specification).
double pcie_lane_gb_per_s(unsigned generation) {
  constexpr double of_generation[] = {0, 0.25, 0.5, 0.985, 1.969, 3.938, 7.563};
  return generation < std::size(of_generation) ? of_generation[generation] : 0;
}

// One direction of one NVLink (NVIDIA's datasheets of P100, V100, A100, H100 and B200).
double nvlink_gb_per_s(unsigned version) {
  switch (version) {
    case 1: return 20;
    case 2:
    case 3:
    case 4: return 25;
    case 5: return 50;
    default: return 0;
  }
}

class Reader {
 public:
  Reader(const Api& api, Machine& machine) : api_(api), machine_(machine) {}

  void read() {
    char driver[81] = "";
    api_.driver_version(driver, sizeof driver - 1);
    source_ = std::string("NVML, driver ") + driver;
    unsigned count = 0;
    if (const int error = api_.count(&count); error != nvml_success) {
      machine_.notes.push_back(std::string("NVML cannot count the GPUs: ") + api_.error_string(error));
      return;
    }
    std::map<std::string, int> shown;  // by bus number
    for (const int gpu : machine_.gpus()) shown[machine_.pcie[gpu].gpu.bus_id] = gpu;
    for (unsigned i = 0; i < count; ++i) {
      NvmlDevice device = nullptr;
      NvmlPciInfo pci{};
      if (api_.handle(i, &device) != nvml_success || api_.pci_info(device, &pci) != nvml_success) {
        machine_.notes.push_back("NVML does not tell of GPU " + std::to_string(i));
        continue;
      }
      const std::string id = bus_id(pci);
      if (!shown.count(id)) {
        shown[id] = machine_.pcie.count();
        machine_.pcie.push_back(
            {.kind = PcieVertex::Kind::gpu, .parent = -1, .numa = 0, .link = {}, .gpu = {}, .adapter = {}});
        machine_.pcie.back().gpu.bus_id = id;
      }
      describe(machine_.pcie[shown[id]], device);
      devices_[id] = {shown[id], device};
    }
    machine_.nvlinks.clear();  // NVML's are those of now
    for (const auto& [id, found] : devices_) add_links(id, found.second, found.first);
  }

 private:
  void describe(PcieVertex& vertex, NvmlDevice device) {
    Gpu& gpu = vertex.gpu;
    char name[97] = "";
    if (api_.name(device, name, sizeof name - 1) == nvml_success) gpu.name = name;
    NvmlMemory memory{};
    if (api_.memory(device, &memory) == nvml_success) {
      gpu.memory_bytes = static_cast<int64_t>(memory.total);
      gpu.memory_source = source_;
    }
    const double sm_mhz = api_.clock ? number(api_.clock, device, nvml_clock_sm) : 0,
                 memory_mhz = api_.clock ? number(api_.clock, device, nvml_clock_memory) : 0;
    // A multiplication and an addition of each core in each cycle; two transfers of the bus.
    gpu.peak_tflops = 2 * number(api_.cores, device) * sm_mhz * 1e-6;
    gpu.memory = {2 * memory_mhz * 1e-3 * number(api_.bus_width, device) / 8, source_ + ": bus width and clock"};
    const unsigned lanes = number(api_.pcie_width, device), generation = number(api_.pcie_generation, device);
    if (const double rate = lanes * pcie_lane_gb_per_s(generation); rate > 0)
      vertex.link = {rate, source_ + ": PCIe " + std::to_string(generation) + ".0 x" + std::to_string(lanes)};
  }

  // Links with one end are summed up; those between two GPUs are told by both.
  void add_links(const std::string& id, NvmlDevice device, int vertex) {
    if (!api_.link_state || !api_.link_version || !api_.link_remote_pci) return;
    std::map<std::pair<int, bool>, std::pair<double, int>> ends;  // by (GPU or -1, processor): rate and links
    for (unsigned link = 0; link < nvml_most_links; ++link) {
      int enabled = 0, type = -1;
      if (api_.link_state(device, link, &enabled) != nvml_success || !enabled) continue;
      const double rate = nvlink_gb_per_s(number(api_.link_version, device, link));
      if (rate == 0) machine_.notes.push_back(id + ": has an NVLink of a version that is not known; it is left out");
      if (api_.link_remote_type) api_.link_remote_type(device, link, &type);
      NvmlPciInfo remote{};
      int other = -1;
      if (api_.link_remote_pci(device, link, &remote) == nvml_success)
        if (const auto it = devices_.find(bus_id(remote)); it != devices_.end()) other = it->second.first;
      if (rate == 0 || (type == nvml_link_to_gpu && other < 0)) continue;
      auto& [sum, count] = ends[{other, type == nvml_link_to_processor}];
      sum += rate;
      ++count;
    }
    for (const auto& [end, found] : ends) {
      const auto& [other, processor] = end;
      if (other >= 0 && other <= vertex) continue;
      machine_.nvlinks.push_back({vertex,
                                  other,
                                  processor ? machine_.pcie[vertex].numa : -1,
                                  {found.first, source_ + ": " + std::to_string(found.second) + " NVLinks"}});
    }
  }

  const Api& api_;
  Machine& machine_;
  std::string source_;
  std::map<std::string, std::pair<int, NvmlDevice>> devices_;  // by bus number: vertex, and NVML's
};

}  // namespace

void add_nvml(Machine& machine, const std::string& file) {
  const Api api(file);
  if (!api.library.failure().empty()) {
    machine.notes.push_back("NVML was not found (" + api.library.failure() +
                            "): GPUs' models, memory and NVLinks are those that hwloc knows");
    return;
  }
  if (const int error = api.init(); error != nvml_success) {
    machine.notes.push_back(std::string("NVML does not start: ") + api.error_string(error));
    return;
  }
  Reader(api, machine).read();
  api.shutdown();
}

}  // namespace ff::discovery
