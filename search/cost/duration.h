// Durations of tasks and the resources that they occupy: what a simulation works on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "common/vector.h"

namespace ff {

using Nanoseconds = int64_t;
inline double to_us(Nanoseconds time) { return static_cast<double>(time) / 1e3; }

// Resources are numbered: devices first (as in the topology), then channels; see TaskCosts for those behind them.
struct ResourceUse {
  int32_t resource;
  Nanoseconds occupancy;  // from the task's start; a fast link of a route is free again before the transfer ends
  bool operator==(const ResourceUse&) const = default;
};

// A device works for a transfer or a collective while it also computes: what it computes next starts so much later.
struct WorkBeside {
  int32_t device;
  Nanoseconds work;
  bool operator==(const WorkBeside&) const = default;
};

// When a device is free after a task that it works for from `begin` on, whether the device is free then or not. A
// device that has nothing else to do waits for the task, whose duration has its work already.
inline Nanoseconds free_behind(Nanoseconds free_at, Nanoseconds begin, Nanoseconds duration, Nanoseconds work) {
  return free_at > begin ? free_at + work : begin + std::min(work, duration);
}

// A collective that runs while devices compute, which they do more slowly then; or for whose beginning they wait, too.
enum class BesideKernels : uint8_t { no, runs, waited_for };

// Duration and resources of every task of a task graph. Every duration and occupancy is at least 1 ns, so that a task
// is ready strictly before it ends and the order (ready time, key) in which tasks are taken is well defined.
struct TaskCosts {
  struct Range {
    int32_t begin, end;  // indices
    bool operator==(const Range&) const = default;
    template <typename T>
    std::span<T> of(std::span<T> all) const {
      return all.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    }
  };
  Vector<Nanoseconds> duration;
  // Ranges of `uses` and `beside`, by task. Collectives that are alike, as those of each layer's weights, share them.
  Vector<Range> use_ranges;
  Vector<ResourceUse> uses;
  Vector<Range> beside_ranges;  // empty if there is none
  Vector<WorkBeside> beside;
  int32_t device_count = 0, channel_count = 0, resource_count = 0;
  // Do collectives of parameters not queue with what else is moved? Their channels follow the others, once more.
  bool separate_parameters = false;
  // The share of a device that collectives of parameters occupy while it computes; empty: none. A resource of its own
  // (the last of all) knows until when there are such collectives.
  Vector<double> slowed;              // [device]
  Vector<BesideKernels> collectives;  // [task]; their devices are those that work beside them

  int32_t collectives_of(int32_t device) const { return resource_count - slowed.count() + device; }
  bool is_device(int32_t resource) const { return resource < device_count; }
  // Of a resource that a task uses, and is no device.
  int32_t channel_of(int32_t resource) const { return (resource - device_count) % channel_count; }
  bool is_parameter_channel(int32_t resource) const { return resource >= device_count + channel_count; }
  std::span<const ResourceUse> uses_of(int task) const {
    return use_ranges[task].of(std::span<const ResourceUse>(uses));
  }
  std::span<const WorkBeside> beside_of(int task) const {
    return beside_ranges.empty() ? std::span<const WorkBeside>{}
                                 : beside_ranges[task].of(std::span<const WorkBeside>(beside));
  }
};

}  // namespace ff
