#include "executor/calibration/device_rates.h"

#include <numeric>

#include "executor/buffer.h"
#include "executor/calibration/calibration_kernel.h"
#include "executor/calibration/values.h"

namespace ff {
namespace {

// Median of `function`'s time after a warm-up: at least 5 times and about 60 ms.
template <typename Function>
double median_us(Function function) {
  function();
  Vector<double> times;
  double total_us = 0;
  while (times.size() < 5 || (total_us < 60e3 && times.size() < 2000)) {
    times.push_back(time_us(function));
    total_us += times.back();
  }
  return median(times);
}

// Over several of the periods, of 0.1 s mostly, in which a quota is handed out.
template <typename Function>
double rate_per_s(Function function) {
  constexpr double least_us = 1e6;
  double total_us = 0;
  int count = 0;
  for (; total_us < least_us; ++count) total_us += time_us(function);
  return count / total_us * 1e6;
}

}  // namespace

ComputeRates measure_compute(Backend& backend) {
  ComputeRates rates{};
  constexpr int64_t side = 1024;
  CalibrationKernel least = CalibrationKernel::least(backend), product = CalibrationKernel::product(backend, side);
  const auto run = [&] { product.run(); };
  rates.peak_tflops = 2.0 * side * side * side / median_us(run) * 1e-6;
  rates.products_per_s = rate_per_s(run);
  rates.launch_us = median_us([&] { least.run(); });
  constexpr int64_t bytes = 64 << 20;
  const Buffer from = allocate_buffer(backend, bytes / 4, true), to = allocate_buffer(backend, bytes / 4, true);
  const Block block{{0, bytes / 4}};
  const double us = median_us([&] {
    backend.copy_block(from.get(), block, to.get(), block, block);
    backend.wait();
  });
  rates.memory_gb_per_s = 2.0 * bytes / us * 1e-3;  // read and written
  return rates;
}

namespace {

// Ranks that are about equally fast, the fastest first: a quarter slower is another kind. [kind]: ranks
Vector<Vector<int>> kinds_of_ranks(const Vector<ComputeRates>& ranks) {
  constexpr double about_equal = 0.75;
  Vector<int> by_speed(ranks.size());
  std::iota(by_speed.begin(), by_speed.end(), 0);
  std::stable_sort(by_speed.begin(), by_speed.end(),
                   [&](int a, int b) { return ranks[a].products_per_s > ranks[b].products_per_s; });
  Vector<Vector<int>> kinds;
  for (const int rank : by_speed) {
    if (kinds.empty() || ranks[rank].products_per_s < about_equal * ranks[kinds.back()[0]].products_per_s)
      kinds.emplace_back();
    kinds.back().push_back(rank);
  }
  return kinds;
}

// The slowest rank's rates: a step ends when the last rank has ended.
Json device_model(const Vector<ComputeRates>& ranks, int cores, int64_t memory_bytes) {
  ComputeRates slowest = ranks[0];
  for (const ComputeRates& rank : ranks) {
    slowest.peak_tflops = std::min(slowest.peak_tflops, rank.peak_tflops);
    slowest.memory_gb_per_s = std::min(slowest.memory_gb_per_s, rank.memory_gb_per_s);
    slowest.launch_us = std::max(slowest.launch_us, rank.launch_us);
  }
  return {{"peak_tflops", rounded(slowest.peak_tflops)},
          {"memory_gb_per_s", rounded(slowest.memory_gb_per_s)},
          {"memory_bytes", memory_bytes},
          {"launch_us", rounded(slowest.launch_us)},
          {"cores", cores},
          {"source", "measured by ffexec --calibrate" +
                         (ranks.size() > 1 ? ", " + std::to_string(ranks.size()) + " ranks at once" : std::string())}};
}

double mean_products_per_s(const Vector<ComputeRates>& all, const Vector<int>& ranks) {
  double sum = 0;
  for (const int rank : ranks) sum += all[rank].products_per_s;
  return sum / static_cast<double>(ranks.size());
}

}  // namespace

bool ranks_hinder_each_other(const ComputeRates& alone, const Vector<ComputeRates>& at_once) {
  constexpr double hinders = 0.85;
  return at_once.size() > 1 && at_once[0].products_per_s < hinders * alone.products_per_s;
}

void add_devices(const ComputeRates& alone, const Vector<ComputeRates>& at_once, const Vector<std::string>& nodes,
                 int cores, int64_t memory_bytes, Calibration& calibration) {
  const Vector<Vector<int>> kinds = kinds_of_ranks(at_once);
  const bool shared = ranks_hinder_each_other(alone, at_once);
  const double base = shared ? alone.products_per_s : mean_products_per_s(at_once, kinds[0]);
  Json models = Json::object();
  if (shared) models["cpu"] = device_model({alone}, cores, memory_bytes);
  Vector<std::string> model_of(at_once.size());
  for (const int kind : kinds.indices()) {
    const std::string name = kind > 0 ? "slower-cpu" + (kind == 1 ? "" : "-" + std::to_string(kind))
                             : shared ? "shared-cpu"
                                      : "cpu";
    Vector<ComputeRates> own;
    for (const int rank : kinds[kind]) {
      own.push_back(at_once[rank]);
      model_of[rank] = name;
    }
    models[name] = device_model(own, cores, memory_bytes);
    if (name == "cpu") continue;
    const double speed = mean_products_per_s(at_once, kinds[kind]) / base;
    models[name]["peak_tflops"] = rounded(speed * models["cpu"]["peak_tflops"].get<double>());
    models[name]["scaled_from"] = "cpu";
    models[name]["speed"] = rounded(speed);
    const std::string which = std::to_string(kinds[kind].size()) +
                              (kinds[kind].size() == 1 ? " rank (the first: " : " ranks (the first: ") +
                              std::to_string(kinds[kind][0]) + ") computes at " + number_text(speed) + " of the speed ";
    calibration.notes.push_back(which +
                                (shared ? "that rank 0 has alone: do ranks share processors? D"
                                        : "of the fastest (rank " + std::to_string(kinds[0][0]) + "): d") +
                                "evice model \"" + name +
                                "\" has the kernel times of \"cpu\" at this speed; let ffsearch measure " +
                                (shared ? "while nothing else runs" : "on a host of the fastest"));
  }
  Json devices = Json::array();
  for (const int rank : at_once.indices())
    devices.push_back({{"name", rank_name(rank)}, {"kind", "cpu"}, {"model", model_of[rank]}, {"node", nodes[rank]}});
  calibration.topology["device_models"] = std::move(models);
  calibration.topology["devices"] = std::move(devices);
}

}  // namespace ff
