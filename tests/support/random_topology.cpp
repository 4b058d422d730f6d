#include "tests/support/random_topology.h"

#include <cmath>
#include <optional>

namespace ff {

Topology random_topology(RandomSource& random, int devices, bool alike) {
  const auto between = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  Json json = {{"format", "fftopology/1"}, {"name", "random"}};
  // Either everything takes the launch time (all ties), or times follow work.
  const bool ties = between(0, 1) == 0;
  json["device_models"]["m"] = {
      {"peak_tflops", ties ? 1e9 : 1e-4}, {"memory_gb_per_s", ties ? 1e9 : 0.05}, {"launch_us", between(0, 3)}};
  json["device_models"]["n"] = {
      {"peak_tflops", ties ? 1e9 : 2e-4}, {"memory_gb_per_s", ties ? 1e9 : 0.1}, {"launch_us", between(0, 3)}};
  std::optional<Json> same;
  const auto link = [&](const std::string& a, const std::string& b) {
    Json result =
        same ? *same : Json{{"bandwidth_gb_per_s", std::pow(2.0, between(-6, 0))}, {"latency_us", between(0, 2)}};
    if (!same) {
      if (between(0, 3) == 0) result["duplex"] = "half";
      if (between(0, 4) == 0) result["blocks_devices"] = true;
      if (between(0, 4) == 0) result["cpu_overhead_fraction"] = 0.125 * static_cast<double>(between(1, 8));
      if (between(0, 4) == 0) result["cpu_overhead_us"] = between(0, 2);
      if (between(0, 4) == 0) result["all_reduce_gb_per_s"] = 0.25;
      if (alike) same = result;
    }
    result["between"] = {a, b};
    return result;
  };
  for (int d = 0; d < devices; ++d)
    json["devices"].push_back(
        {{"name", "d" + std::to_string(d)}, {"kind", "gpu"}, {"model", alike || between(0, 3) ? "m" : "n"}});
  json["links"] = Json::array();
  if (between(0, 1)) {
    json["switches"] = {"s0", "s1"};
    json["links"].push_back(link("s0", "s1"));
    for (int d = 0; d < devices; ++d)
      json["links"].push_back(link("d" + std::to_string(d), alike || between(0, 1) ? "s0" : "s1"));
  } else {
    for (int d = 0; d < devices; ++d)
      for (int other = 0; other < d; ++other)
        json["links"].push_back(link("d" + std::to_string(d), "d" + std::to_string(other)));
  }
  return parse_topology(parse_json(json.dump(), "topology"));
}

}  // namespace ff
