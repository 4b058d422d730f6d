// Replaces NVIDIA's management library: a machine with two GPUs that 4 NVLinks join, and which have 8 links to
// NVSwitches each, and a third one that tells nothing.
#include <cstdio>
#include <cstring>

#include "search/discovery/nvml_api.h"

struct NvmlDeviceHandle {
  unsigned number;
};

namespace {

constexpr int not_supported = 3;
NvmlDeviceHandle devices[] = {{0}, {1}, {2}};

void set_bus(NvmlPciInfo* pci, unsigned number) {
  pci->domain = 0;
  pci->bus = 0x34 + 2 * number;
  pci->device = 0;
}

int told(NvmlDevice device, unsigned* to, unsigned value) {
  if (device->number == 2) return not_supported;
  *to = value;
  return 0;
}

}  // namespace

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int) { return "an error"; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::snprintf(text, size, "999.1");
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 3;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned number, NvmlDevice* device) {
  *device = devices + number;
  return 0;
}
int nvmlDeviceGetName(NvmlDevice, char* text, unsigned size) {
  std::snprintf(text, size, "NVIDIA X9 Test");
  return 0;
}
int nvmlDeviceGetPciInfo_v3(NvmlDevice device, NvmlPciInfo* pci) {
  set_bus(pci, device->number);
  return 0;
}
int nvmlDeviceGetMemoryInfo(NvmlDevice, NvmlMemory* memory) {
  *memory = {48ULL << 30, 0, 0};
  return 0;
}
int nvmlDeviceGetNumGpuCores(NvmlDevice device, unsigned* cores) { return told(device, cores, 10000); }
int nvmlDeviceGetMemoryBusWidth(NvmlDevice device, unsigned* bits) { return told(device, bits, 4096); }
int nvmlDeviceGetMaxClockInfo(NvmlDevice device, int clock, unsigned* mhz) {
  return told(device, mhz, clock == ff::discovery::nvml_clock_sm ? 1500 : 1000);
}
int nvmlDeviceGetMaxPcieLinkGeneration(NvmlDevice device, unsigned* generation) { return told(device, generation, 4); }
int nvmlDeviceGetMaxPcieLinkWidth(NvmlDevice device, unsigned* lanes) { return told(device, lanes, 16); }
int nvmlDeviceGetNvLinkState(NvmlDevice device, unsigned link, int* enabled) {
  *enabled = link < 12;
  return device->number == 2 || link >= 18 ? not_supported : 0;
}
int nvmlDeviceGetNvLinkVersion(NvmlDevice, unsigned, unsigned* version) {
  *version = 3;
  return 0;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(NvmlDevice, unsigned link, int* type) {
  *type = link < 4 ? ff::discovery::nvml_link_to_gpu : 2;
  return 0;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(NvmlDevice device, unsigned link, NvmlPciInfo* pci) {
  if (link < 4) set_bus(pci, 1 - device->number);
  else pci->bus = 0xf0 + link;
  return 0;
}
}
