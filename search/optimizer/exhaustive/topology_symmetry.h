// Which devices of a topology can change places?
#pragma once

#include "common/topology.h"
#include "common/vector.h"

namespace ff::exhaustive {

struct DevicePermutation {
  Vector<DeviceId> device;    // [device]: its image
  Vector<ChannelId> channel;  // [channel]: its image; -1 for channels on no route
};

// All permutations of the devices under which transfers and compute tasks cost the same: device models map onto
// themselves, and the route between any two devices onto the route between their images, channel by channel, over
// channels with the same rates. The identity comes first. With more than `most_devices` devices (their factorial is
// what it takes) the identity alone.
//
// Collectives are not looked at: a ring or tree runs in topology order and may use other channels for the images of its
// devices. What relies on them has to compare (see simulates_alike).
Vector<DevicePermutation> device_symmetries(const Topology& topology, int most_devices = 8);

}  // namespace ff::exhaustive
