// One machine as its parts are found: NUMA nodes, the PCIe tree with GPUs and network adapters, and NVLinks. Plain
// values, filled in by hwloc.h and nvml.h, and made a topology by topology_file.h.
#pragma once

#include <string>

#include "common/vector.h"

namespace ff::discovery {

// A rate of one direction in 1e9 bytes a second, and who says so; 0: not known.
struct Rate {
  double gb_per_s = 0;
  std::string source;
};

struct NumaNode {
  int package = 0;  // the socket that it is part of
  int cores = 0;    // without the other threads of a core
  int64_t memory_bytes = 0;
};

struct Gpu {
  std::string name;           // "Tesla P100-SXM2-16GB"; "" where nothing says it
  std::string bus_id;         // "0000:03:00.0"
  int64_t memory_bytes = 0;   // 0: not known
  std::string memory_source;  // who says so
  // For GPUs without a known datasheet; 0: not known.
  double peak_tflops = 0;
  Rate memory;
};

struct Adapter {
  std::string name;  // "mlx5_0"
  Rate network;
};

// A switch, a GPU or a network adapter, and its link towards the processors. A bridge with one device after it is no
// switch: the slowest link of the way counts.
struct PcieVertex {
  enum class Kind { pcie_switch, gpu, adapter };
  Kind kind = Kind::pcie_switch;
  int parent = -1;  // index of a switch, which comes first; -1: the NUMA node
  int numa = 0;
  Rate link;
  Gpu gpu;          // of kind gpu
  Adapter adapter;  // of kind adapter
};

// From a GPU to another one, to a processor, or, with neither, to the NVSwitches.
struct Nvlink {
  int from;  // index of Machine::pcie
  int to_gpu = -1;
  int to_numa = -1;
  Rate rate;
};

struct Machine {
  std::string name;       // of the product, or of the host
  std::string processor;  // "Intel(R) Xeon(R) Platinum 8174 CPU @ 3.10GHz"; "" where nothing says it
  std::string source;     // "hwloc 2.9.0"
  Vector<NumaNode> numa;
  Vector<PcieVertex> pcie;
  Vector<Nvlink> nvlinks;
  Vector<std::string> notes;  // what was not found, for the user

  Vector<int> gpus() const { return of_kind(PcieVertex::Kind::gpu); }
  Vector<int> adapters() const { return of_kind(PcieVertex::Kind::adapter); }

 private:
  Vector<int> of_kind(PcieVertex::Kind kind) const {
    Vector<int> found;
    for (const int vertex : pcie.indices())
      if (pcie[vertex].kind == kind) found.push_back(vertex);
    return found;
  }
};

}  // namespace ff::discovery
