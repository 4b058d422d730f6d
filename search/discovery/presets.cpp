#include "search/discovery/presets.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "common/errors.h"
#include "search/discovery/datasheets.h"

namespace ff::discovery {
namespace {

struct Preset {
  const char *name, *system, *gpu;  // gpu: a name that its datasheet is found by
  const char* chip;                 // a GPU with the same chip, whose microbenchmarks count
  double nvlink_gb_per_s;           // in one direction: half of what a datasheet says
  const char* nvlink_source;
  double network_gb_per_s;  // of each GPU's adapter
  const char* network_source;
};

constexpr Preset presets[] = {
    {"dgx-a100-40gb", "DGX A100 (320 GB)", "A100 40GB", "a100", 300, "NVLink 3 (NVIDIA A100 datasheet)", 25,
     "HDR InfiniBand 200 Gb/s per GPU (NVIDIA DGX A100 datasheet)"},
    {"dgx-a100-80gb", "DGX A100 (640 GB)", "A100 80GB", "a100", 300, "NVLink 3 (NVIDIA A100 datasheet)", 25,
     "HDR InfiniBand 200 Gb/s per GPU (NVIDIA DGX A100 datasheet)"},
    {"dgx-a800", "DGX A800", "A800", "a100", 200, "NVLink 3, 8 links (NVIDIA A800 datasheet)", 25,
     "HDR InfiniBand 200 Gb/s per GPU, as in DGX A100 (NVIDIA DGX A100 datasheet)"},
    {"dgx-h100", "DGX H100", "H100", "h100", 450, "NVLink 4 (NVIDIA H100 datasheet)", 50,
     "NDR InfiniBand 400 Gb/s per GPU (NVIDIA DGX H100 datasheet)"},
    {"dgx-h800", "DGX H800", "H800", "h100", 200, "NVLink 4, 8 links (NVIDIA H800 datasheet)", 50,
     "NDR InfiniBand 400 Gb/s per GPU, as in DGX H100 (NVIDIA DGX H100 datasheet)"},
    {"hgx-h200", "HGX H200", "H200", "h100", 450, "NVLink 4 (NVIDIA H200 datasheet)", 50,
     "NDR InfiniBand 400 Gb/s per GPU, assumed as in DGX H200 (NVIDIA DGX H200 datasheet)"},
};

// An estimate, as that of scripts/generate_topologies.py.
constexpr double latency_us = 2.5;
constexpr const char* estimated_latency_note = "; latency estimated";

const Preset& preset_of(const std::string& name) {
  for (const Preset& preset : presets)
    if (name == preset.name) return preset;
  throw InputError("--preset: found \"" + name + "\"" + suggestion(name, preset_names()));
}

// Of microbenchmarks, by the name of a datasheet's device model.
struct MeasuredRates {
  std::string_view model, json;
};
constexpr MeasuredRates measured_rates[] = {
#include "search/discovery/measured_rates.inc"
};
constexpr const char* measured_note = "launch_us and efficiency: published microbenchmarks, topologies/microbenchmarks";

Json measured_rates_of(std::string_view model) {
  for (const MeasuredRates& rates : measured_rates)
    if (rates.model == model) return Json::parse(rates.json);
  throw std::logic_error("no microbenchmarks of " + std::string(model));
}

Json device_model(const Preset& preset, const GpuDatasheet& sheet, const Json& measured) {
  const bool own = std::string_view(sheet.model) == preset.chip;
  return {{"peak_tflops", sheet.peak_tflops},
          {"peak_tf32_tflops", sheet.peak_tf32_tflops},
          {"peak_bf16_tflops", sheet.peak_bf16_tflops},
          {"memory_gb_per_s", sheet.memory_gb_per_s},
          {"memory_bytes", static_cast<int64_t>(sheet.memory_gb * 1e9)},
          {"launch_us", measured["launch_us"]},
          {"efficiency", measured["efficiency"]},
          {"source", std::string(sheet.title) + ", TF32 and bf16 dense, memory in 1e9 bytes; " + measured_note +
                         (own ? "" : ", of " + std::string(preset.chip) + ", which has the same chip")}};
}

double thousandths(double value) { return std::round(1e3 * value) / 1e3; }

}  // namespace

Vector<std::string> preset_names() {
  Vector<std::string> names;
  for (const Preset& preset : presets) names.push_back(preset.name);
  return names;
}

Json topology_of_preset(const PresetSettings& settings) {
  const Preset& preset = preset_of(settings.name);
  const GpuDatasheet& sheet = *gpu_datasheet(preset.gpu);
  const int gpus = settings.gpus_per_node > 0 ? settings.gpus_per_node : 8;
  const Json measured = measured_rates_of(preset.chip);
  const Json& of_nvlink = measured["nvlink"];
  const Json& of_network = measured["network"];
  Json devices = Json::array(), links = Json::array(), names = Json::array();
  for (int gpu = 0; gpu < gpus; ++gpu) {
    const std::string name = "gpu" + std::to_string(gpu);
    names.push_back(name);
    devices.push_back({{"name", name}, {"kind", "gpu"}, {"model", sheet.model}});
    if (gpus == 1) continue;
    links.push_back(
        {{"between", {name, "nvswitch"}},
         {"bandwidth_gb_per_s", preset.nvlink_gb_per_s},
         {"latency_us", latency_us},
         {"all_reduce_gb_per_s", thousandths(preset.nvlink_gb_per_s * of_nvlink["all_reduce_share"].get<double>())},
         {"all_reduce_latency_us", of_nvlink["all_reduce_latency_us"]},
         {"source", std::string(preset.nvlink_source) + estimated_latency_note}});
  }
  Json nodes = {{"count", settings.nodes}, {"name", "node"}, {"devices", devices}};
  if (gpus > 1) nodes.update({{"switches", {"nvswitch"}}, {"links", links}});
  const bool given = settings.network_gb_per_s > 0;
  const double network_gb_per_s = given ? settings.network_gb_per_s : preset.network_gb_per_s;
  const Json network = {
      {"bandwidth_gb_per_s", network_gb_per_s},
      {"latency_us", latency_us},
      {"all_reduce_gb_per_s", thousandths(network_gb_per_s * of_network["all_reduce_share"].get<double>())},
      {"all_reduce_latency_us", of_network["all_reduce_latency_us"]},
      {"source",
       (given ? "given by --network-gb-per-s" : preset.network_source) + std::string(estimated_latency_note)}};
  if (settings.nodes > 1) nodes["network"] = {{"name", "network"}, {"attach", names}, {"link", network}};
  return {
      {"format", "fftopology/1"},
      {"name", settings.name + "-" + std::to_string(settings.nodes)},
      {"description", "Written by ffsearch topology --preset: " + std::to_string(settings.nodes) + " " + preset.system +
                          " with " + std::to_string(gpus) + (gpus > 1 ? " GPUs joined by NVSwitch" : " GPU") +
                          ". Rates are of datasheets, NVLink in one direction; those of collectives, and the shares "
                          "that kernels reach, of published microbenchmarks (topologies/microbenchmarks). The network "
                          "is one switch without contention inside."},
      {"device_models", {{sheet.model, device_model(preset, sheet, measured)}}},
      {"nodes", nodes}};
}

}  // namespace ff::discovery
