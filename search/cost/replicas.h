// Data-parallel groups that do the same at the same time, of which one is simulated; and within it, of each
// tensor-parallel group, one device.
//
// Where every group of devices has the same kernels and links, reads samples of its own, and meets the others only
// where parameters are synchronized, all groups have the same timeline: the one that is simulated stands for all. What
// it synchronizes is priced as among the devices of all groups, and shards are cut for all of them (sharded_units.h).
// optimizer/folding.h says when this is so, optimizer/alike_ranks.h for the devices of a tensor-parallel group.
#pragma once

#include <memory>

#include "common/task_graph/task_graph.h"
#include "common/topology.h"
#include "common/vector.h"
#include "search/cost/communication.h"

namespace ff {

struct Replicas {
  int count = 1;  // groups that the simulated one stands for, itself included
  // Of all groups; channels are numbered as in the one that is simulated.
  std::shared_ptr<const Topology> topology = {};
  Vector<Vector<DeviceId>> devices;  // [simulated device]: those of `topology` that it stands for; its own comes first
  // Of this topology, shared by all who price the same plan; one thread at a time. It leaves out channels that are in
  // the place of another one that simulated devices use, which every collective of parameters loads equally: they are
  // never busy when that one is free.
  std::shared_ptr<CommunicationModel> communication = {};
  // [simulated device]: the one of its tensor-parallel group whose tasks are simulated for both; empty: all are.
  Vector<DeviceId> stand_ins = {};

  // Whose tasks and memory are the device's own, too.
  DeviceId stand_in(DeviceId simulated) const { return stand_ins.empty() ? simulated : stand_ins[simulated]; }
  // Ascending; empty: those of all devices.
  Vector<DeviceId> devices_with_tasks() const {
    Vector<DeviceId> devices = stand_ins;
    sort_and_unique(devices);
    return devices;
  }
  // How many devices do what this one does, itself included; 0: another one is simulated for it.
  int64_t devices_alike(DeviceId simulated) const {
    return stand_ins.empty() ? 1 : std::count(stand_ins.begin(), stand_ins.end(), simulated);
  }
  // How many tasks of the simulated groups a task stands for, itself included: each of the devices that are like one of
  // a collective's takes part in one such collective, those of several ranks together in the same.
  int64_t tasks_of(const TaskGraph& tasks, const Task& task) const {
    if (stand_ins.empty()) return 1;
    if (!is_collective(task.kind)) return devices_alike(task.device);
    const Vector<DeviceId>& holders = tasks.holders(task);
    const auto simulated =
        std::find_if(holders.begin(), holders.end(), [&](DeviceId device) { return stand_ins[device] == device; });
    return devices_alike(*simulated) / std::count_if(holders.begin(), holders.end(),
                                                     [&](DeviceId device) { return stand_ins[device] == *simulated; });
  }
};

}  // namespace ff
