// The part of NVML's interface that is used here. Its header comes with CUDA and the library with the driver; the
// interface is kept compatible between versions (NVML API Reference Guide, "Feature Queries"), so that programs need
// neither of them to be built.
#pragma once

extern "C" {
struct NvmlDeviceHandle;
using NvmlDevice = NvmlDeviceHandle*;

struct NvmlPciInfo {  // nvmlPciInfo_t of nvmlDeviceGetPciInfo_v3
  char bus_id_legacy[16];
  unsigned domain, bus, device;
  unsigned device_id, subsystem_id;
  char bus_id[32];
};
struct NvmlMemory {  // nvmlMemory_t
  unsigned long long total, free, used;
};
}

namespace ff::discovery {

constexpr int nvml_success = 0;
constexpr int nvml_clock_sm = 1, nvml_clock_memory = 2;          // nvmlClockType_t
constexpr int nvml_link_to_gpu = 0, nvml_link_to_processor = 1;  // nvmlIntNvLinkDeviceType_t; 2: a switch
constexpr unsigned nvml_most_links = 36;  // above NVML_NVLINK_MAX_LINKS of all versions so far: 18

}  // namespace ff::discovery
