// Devices in a pattern, as regular strategies have them.
#pragma once

#include "common/topology.h"
#include "common/vector.h"
#include "search/optimizer/random.h"

namespace ff {

// Part p of `parts` lies on device (first + p stride mod span + p stride / span) mod devices: with stride 1
// consecutive devices; with stride s and a span of all devices the parts jump over nodes of s devices, each of another
// node while there are any. `span` is at least `parts` and divides the devices, `stride` divides the span, so that no
// device has two parts.
struct RegularDevices {
  int first = 0, stride = 1, span = 1;

  Vector<DeviceId> of(int parts, int devices) const {
    Vector<DeviceId> result;
    for (int part = 0; part < parts; ++part)
      result.push_back((first + part * stride % span + part * stride / span) % devices);
    return result;
  }
};

inline int random_divisor(int number, RandomStream& random) {
  Vector<int> divisors;
  for (int divisor = 1; divisor <= number; ++divisor)
    if (number % divisor == 0) divisors.push_back(divisor);
  return random.one_of(divisors);
}

// Half of them consecutive.
inline RegularDevices random_regular_devices(int parts, int devices, RandomStream& random) {
  RegularDevices regular{random.below(devices), 1, devices};
  if (random.below(2) == 0) return regular;
  Vector<int> spans;
  for (int span = parts; span <= devices; ++span)
    if (devices % span == 0) spans.push_back(span);
  if (spans.empty()) return regular;
  regular.span = random.one_of(spans);
  regular.stride = random_divisor(regular.span, random);
  return regular;
}

}  // namespace ff
