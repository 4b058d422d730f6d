#include "search/background.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "common/first_devices.h"

namespace ff {

JobLoad load_of(const Evaluator::Details& details, const Topology& topology) {
  JobLoad load{Vector<double>(details.costs.resource_count, 0.0), details.memory_bytes};
  for (const int task : details.tasks.tasks.indices()) {
    for (const ResourceUse& use : details.costs.uses_of(task))
      load.busy[use.resource] += static_cast<double>(use.occupancy);
    for (const auto& [device, work] : details.costs.beside_of(task)) load.busy[device] += static_cast<double>(work);
  }
  for (double& busy : load.busy) busy /= static_cast<double>(details.timeline.makespan);
  for (const DeviceId device : topology.devices.indices())
    if (topology.devices[device].kind == DeviceKind::cpu && load.busy[device] > 0) load.busy[device] = 1;
  return load;
}

Topology left_by(const Topology& topology, const Vector<JobLoad>& loads) {
  if (loads.empty()) return topology;
  const double turns = 1 / static_cast<double>(loads.size() + 1);
  const auto left = [&](int resource) {
    double busy = 0;
    for (const JobLoad& load : loads) busy += load.busy[resource];
    return std::max(1 - busy, turns);
  };
  const Vector<DeviceId> all = first_devices(topology.devices.count());
  Topology result = topology.with_devices(all);  // looks for routes anew
  std::map<std::tuple<int, double, int64_t>, int> known;
  for (const DeviceId device : all) {
    const int own = topology.devices[device].model;
    int64_t taken = 0;
    for (const JobLoad& load : loads) taken += load.memory_bytes[device];
    const double speed = left(device);
    const auto [it, added] = known.try_emplace({own, speed, taken}, result.models.count());
    result.devices[device].model = it->second;
    if (!added) continue;
    DeviceModel model = topology.models[own];
    model.scaled_from = model.scaled_from >= 0 ? model.scaled_from : own;
    model.name += " with co-located jobs " + std::to_string(known.size());
    model.speed *= speed;
    model.peak_tflops *= speed;
    model.peak_tf32_tflops *= speed;
    model.peak_bf16_tflops *= speed;
    model.memory_gb_per_s *= speed;
    model.launch_us /= speed;
    if (model.memory_bytes > 0) model.memory_bytes = std::max<int64_t>(1, model.memory_bytes - taken);
    result.models.push_back(model);
  }
  for (const ChannelId channel : result.channels.indices()) {
    const double rate = left(topology.devices.count() + channel);
    result.channels[channel].bandwidth_gb_per_s *= rate;
    result.channels[channel].all_reduce_gb_per_s *= rate;
  }
  return result;
}

Background::Background(const Vector<std::string>& files, const Topology& topology, const CostOptions& costs)
    : mode_(costs.mode) {
  for (const std::string& path : files) {
    StrategyFile file = load_strategy(path);
    if (file.topology.devices.size() != topology.devices.size())
      throw InputError(path + ": is for " + std::to_string(file.topology.devices.size()) +
                       " devices, the topology has " + std::to_string(topology.devices.size()));
    Job job{path,
            std::unique_ptr<Loaded>(new Loaded(load({std::move(file.graph), topology, {}, file.settings}, costs))),
            std::move(file.strategy),
            {}};
    Evaluator evaluator(job.loaded->problem());
    job.load = load_of(evaluator.details(job.strategy), topology);
    jobs_.push_back(std::move(job));
  }
}

Topology Background::left_of(const Topology& topology) const {
  Vector<JobLoad> loads;
  for (const Job& job : jobs_) loads.push_back(job.load);
  return left_by(topology, loads);
}

// With the kernel times that are known already.
Nanoseconds Background::makespan(const Job& job, const Topology& topology, const Vector<JobLoad>& loads) const {
  Vector<Profile> profiles;
  for (const int model : job.loaded->topology.models.indices())
    if (const Profile& profile = job.loaded->kernels.profile(model); !profile.entries.empty())
      profiles.push_back(profile);
  Loaded loaded({job.loaded->problem().whole(), left_by(topology, loads), {}, job.loaded->settings},
                mode_ == CostMode::measure ? CostMode::automatic : mode_, std::move(profiles));
  return Evaluator(loaded.problem()).evaluate(job.strategy).makespan;
}

Vector<BackgroundEffect> Background::effects(const Topology& topology, const Topology& left,
                                             const Evaluator::Details& planned) const {
  // What it is busy with at the rates that are left would take less at full rates.
  JobLoad load = load_of(planned, topology);
  for (const DeviceId device : topology.devices.indices())
    if (topology.devices[device].kind == DeviceKind::gpu)
      load.busy[device] *= left.model_of(device).speed / topology.model_of(device).speed;
  for (const ChannelId channel : topology.channels.indices())
    load.busy[topology.devices.count() + channel] *=
        left.channels[channel].bandwidth_gb_per_s / topology.channels[channel].bandwidth_gb_per_s;
  Vector<BackgroundEffect> effects;
  for (const Job& job : jobs_) {
    Vector<JobLoad> others;
    for (const Job& other : jobs_)
      if (&other != &job) others.push_back(other.load);
    const Nanoseconds before = makespan(job, topology, others);
    others.push_back(load);
    effects.push_back({job.file, before, makespan(job, topology, others)});
  }
  return effects;
}

}  // namespace ff
