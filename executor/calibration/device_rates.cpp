#include "executor/calibration/device_rates.h"

#include <numeric>

#include "executor/calibration/calibration_kernel.h"
#include "executor/calibration/values.h"
#include "executor/program/buffer.h"

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

// By the GPU's clock, of one of `count` that are submitted together. Median of five, after a warm-up.
template <typename Function>
double gpu_us(Backend& backend, int count, Function submit) {
  Vector<double> times;
  for (int i = 0; i < 6; ++i) {
    backend.start_stopwatch();
    for (int k = 0; k < count; ++k) submit();
    const double us = backend.stop_stopwatch_us() / count;
    if (i > 0) times.push_back(us);
  }
  return std::max(1e-3, median(times));
}

// A product so large that it takes milliseconds: then the GPU is full, and its start does not count.
struct ProductRate {
  double tflops, per_s;
};
ProductRate measure_products(Backend& backend) {
  constexpr double long_us = 2e3;
  constexpr int64_t largest = 8192;
  for (int64_t side = 256;; side *= 2) {
    CalibrationKernel product = CalibrationKernel::product(backend, side, side);
    const double us = gpu_us(backend, 1, [&] { product.submit(); });
    if (us < long_us && side < largest) continue;
    return {2.0 * static_cast<double>(side) * static_cast<double>(side) * static_cast<double>(side) / us * 1e-6,
            1e6 / us};
  }
}

// Of a copy that is so large that caches do not matter.
double measure_copy_gb_per_s(Backend& backend) {
  constexpr double long_us = 1e3;
  constexpr int64_t largest = int64_t{1} << 30;
  for (int64_t bytes = 16 << 20;; bytes *= 4) {
    const Buffer from = allocate_buffer(backend, bytes / 4, true), to = allocate_buffer(backend, bytes / 4, true);
    const Block block{{0, bytes / 4}};
    const double us = gpu_us(backend, 1, [&] { backend.copy_block(from.get(), block, to.get(), block, block); });
    if (us >= long_us || bytes >= largest) return 2.0 * static_cast<double>(bytes) / us * 1e-3;  // read and written
  }
}

}  // namespace

ComputeRates measure_compute_of_gpu(Backend& backend, Backend* tf32) {
  ComputeRates rates{};
  const ProductRate products = measure_products(backend);
  rates.peak_tflops = products.tflops;
  rates.products_per_s = products.per_s;
  if (tf32) rates.peak_tf32_tflops = measure_products(*tf32).tflops;
  CalibrationKernel least = CalibrationKernel::least(backend);
  constexpr int many = 64;
  rates.launch_us = gpu_us(backend, many, [&] { least.submit(); });
  rates.memory_gb_per_s = measure_copy_gb_per_s(backend);
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
Json device_model(const Vector<ComputeRates>& ranks, const DeviceKindText& text) {
  ComputeRates slowest = ranks[0];
  for (const ComputeRates& rank : ranks) {
    slowest.peak_tflops = std::min(slowest.peak_tflops, rank.peak_tflops);
    slowest.peak_tf32_tflops = std::min(slowest.peak_tf32_tflops, rank.peak_tf32_tflops);
    slowest.memory_gb_per_s = std::min(slowest.memory_gb_per_s, rank.memory_gb_per_s);
    slowest.launch_us = std::max(slowest.launch_us, rank.launch_us);
  }
  Json model = {
      {"peak_tflops", rounded(slowest.peak_tflops)},
      {"memory_gb_per_s", rounded(slowest.memory_gb_per_s)},
      {"memory_bytes", text.memory_bytes},
      {"launch_us", rounded(slowest.launch_us)},
      {"source", "measured by ffexec --calibrate" +
                     (ranks.size() > 1 ? ", " + std::to_string(ranks.size()) + " ranks at once" : std::string())}};
  if (slowest.peak_tf32_tflops > 0) model["peak_tf32_tflops"] = rounded(slowest.peak_tf32_tflops);
  if (text.cores > 0) model["cores"] = text.cores;
  return model;
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
                 const DeviceKindText& text, Calibration& calibration) {
  const Vector<Vector<int>> kinds = kinds_of_ranks(at_once);
  const bool shared = ranks_hinder_each_other(alone, at_once);
  const double base = shared ? alone.products_per_s : mean_products_per_s(at_once, kinds[0]);
  Json models = Json::object();
  if (shared) models[text.model] = device_model({alone}, text);
  Vector<std::string> model_of(at_once.size());
  for (const int kind : kinds.indices()) {
    const std::string name = kind > 0 ? "slower-" + text.model + (kind == 1 ? "" : "-" + std::to_string(kind))
                             : shared ? "shared-" + text.model
                                      : text.model;
    Vector<ComputeRates> own;
    for (const int rank : kinds[kind]) {
      own.push_back(at_once[rank]);
      model_of[rank] = name;
    }
    models[name] = device_model(own, text);
    if (name == text.model) continue;
    const double speed = mean_products_per_s(at_once, kinds[kind]) / base;
    for (const char* rate : {"peak_tflops", "peak_tf32_tflops"})
      if (models[text.model].contains(rate))
        models[name][rate] = rounded(speed * models[text.model][rate].get<double>());
    models[name]["scaled_from"] = text.model;
    models[name]["speed"] = rounded(speed);
    const std::string which = std::to_string(kinds[kind].size()) +
                              (kinds[kind].size() == 1 ? " rank (the first: " : " ranks (the first: ") +
                              std::to_string(kinds[kind][0]) + ") computes at " + number_text(speed) + " of the speed ";
    calibration.notes.push_back(which +
                                (shared ? "that rank 0 has alone: do ranks share " + text.shared + "? D"
                                        : "of the fastest (rank " + std::to_string(kinds[0][0]) + "): d") +
                                "evice model \"" + name + "\" has the kernel times of \"" + text.model +
                                "\" at this speed; let ffsearch measure " +
                                (shared ? "while nothing else runs" : "on a host of the fastest"));
  }
  Json devices = Json::array();
  for (const int rank : at_once.indices())
    devices.push_back(
        {{"name", rank_name(rank)}, {"kind", text.kind}, {"model", model_of[rank]}, {"node", nodes[rank]}});
  calibration.topology["device_models"] = std::move(models);
  calibration.topology["devices"] = std::move(devices);
}

}  // namespace ff
