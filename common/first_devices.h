// Devices 0 to count - 1: all of a topology, or as many as there are parts.
#pragma once

#include <numeric>

#include "common/topology.h"
#include "common/vector.h"

namespace ff {

inline Vector<DeviceId> first_devices(int count) {
  Vector<DeviceId> devices(count);
  std::iota(devices.begin(), devices.end(), 0);
  return devices;
}

}  // namespace ff
