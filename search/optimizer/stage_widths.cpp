#include "search/optimizer/stage_widths.h"

#include <algorithm>

namespace ff {
namespace {

constexpr int most_runs = 3;
constexpr double most_times_faster = 2;

struct Run {
  int model = 0, devices = 0;
};

Vector<Run> runs_of_models(const Topology& topology) {
  Vector<Run> runs;
  for (const DeviceId device : topology.by_links()) {
    const int model = topology.devices[device].model;
    if (runs.empty() || runs.back().model != model) runs.push_back({model, 0});
    ++runs.back().devices;
  }
  return runs;
}

struct Way {
  Vector<int> groups;    // [stage]
  Vector<double> rates;  // of each, in TFLOP/s

  bool balanced() const {
    const auto [least, most] = std::minmax_element(rates.begin(), rates.end());
    return *most <= most_times_faster * *least;
  }
  bool equal() const {
    return std::all_of(groups.begin(), groups.end(), [&](int one) { return one == groups[0]; });
  }
};

// The ways with so many groups more, in equal stages.
Vector<Way> with_stages(const Vector<Way>& ways, int groups, double rate) {
  Vector<Way> result;
  for (const Way& way : ways)
    for (int stages = 1; stages <= groups; ++stages) {
      if (groups % stages != 0) continue;
      Way longer = way;
      for (int stage = 0; stage < stages; ++stage) {
        longer.groups.push_back(groups / stages);
        longer.rates.push_back(groups * rate / stages);
      }
      if (longer.balanced()) result.push_back(std::move(longer));
    }
  return result;
}

}  // namespace

Vector<Vector<int>> stage_widths(const Topology& topology, int of_group) {
  const Vector<Run> runs = runs_of_models(topology);
  if (runs.count() == 1 || runs.count() > most_runs) return {};
  const bool all_in_bf16 = std::all_of(topology.models.begin(), topology.models.end(),
                                       [](const DeviceModel& model) { return model.peak_bf16_tflops > 0; });
  Vector<Way> ways = {{}};
  for (const Run& run : runs) {
    if (run.devices % of_group != 0) return {};
    const DeviceModel& model = topology.models[run.model];
    ways = with_stages(ways, run.devices / of_group, all_in_bf16 ? model.peak_bf16_tflops : model.peak_tflops);
  }
  Vector<Vector<int>> result;
  for (Way& way : ways)
    if (!way.equal()) result.push_back(std::move(way.groups));
  return result;
}

}  // namespace ff
