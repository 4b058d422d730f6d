// Clusters of machines that are sold, by name, as topologies: for planning without having them.
#pragma once

#include <string>

#include "common/json_file.h"
#include "common/vector.h"

namespace ff::discovery {

struct PresetSettings {
  std::string name;
  int64_t nodes = 1;
  int gpus_per_node = 0;        // 0: as sold, 8
  double network_gb_per_s = 0;  // of each GPU's network adapter, in one direction; 0: as sold
};

Vector<std::string> preset_names();
// An fftopology/1 file: nodes whose GPUs are joined by NVSwitch, each with a network adapter of its own. Throws
// InputError for a name that is not known.
Json topology_of_preset(const PresetSettings& settings);

}  // namespace ff::discovery
