// What NVIDIA's management library (NVML, part of the driver) tells of the GPUs of this machine: their models, memory
// and clocks, PCIe links as they are at full speed (idle GPUs slow theirs down), and NVLinks.
#pragma once

#include <string>

#include "search/discovery/machine.h"

namespace ff::discovery {

// Adds to what the machine's PCIe tree shows already, by bus numbers; GPUs that it lacks stand at NUMA node 0. What was
// not found goes into its notes. `library`: tests have one of their own.
void add_nvml(Machine& machine, const std::string& library = "libnvidia-ml.so.1");

}  // namespace ff::discovery
