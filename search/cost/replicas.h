// Data-parallel groups that do the same at the same time, of which one is simulated.
//
// Where every group of devices has the same kernels and links, reads samples of its own, and meets the others only
// where parameters are synchronized, all groups have the same timeline: the one that is simulated stands for all. What
// it synchronizes is priced as among the devices of all groups, and shards are cut for all of them (sharded_units.h).
// optimizer/folding.h says when this is so.
#pragma once

#include "common/topology.h"
#include "common/vector.h"

namespace ff {

struct Replicas {
  int count = 1;                     // groups that the simulated one stands for, itself included
  Topology topology;                 // of all groups; channels are numbered as in the one that is simulated
  Vector<Vector<DeviceId>> devices;  // [simulated device]: those of `topology` that it stands for; its own comes first
};

}  // namespace ff
