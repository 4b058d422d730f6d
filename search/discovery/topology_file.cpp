#include "search/discovery/topology_file.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>

#include "common/errors.h"
#include "search/discovery/datasheets.h"

namespace ff::discovery {
namespace {

// No source reports latencies: these are estimates, as those of scripts/generate_topologies.py.
constexpr double gpu_latency_us = 2.5, switch_latency_us = 0.5, adapter_latency_us = 1;
constexpr double launch_of_gpu_us = 5, launch_of_cpu_us = 1;
constexpr const char* latency_estimated = "; latency estimated";

double rounded(double value) { return std::round(value * 1000) / 1000; }

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

Json link(const std::string& a, const std::string& b, const Rate& rate, double latency_us) {
  return {{"between", {a, b}},
          {"bandwidth_gb_per_s", rounded(rate.gb_per_s)},
          {"latency_us", latency_us},
          {"source", rate.source + latency_estimated}};
}

class Writer {
 public:
  Writer(Machine& machine, const ClusterSettings& settings) : machine_(machine), settings_(settings) {}

  Json write() {
    if (machine_.gpus().empty()) add_processors();
    else add_gpus();
    return assemble();
  }

 private:
  void note(const std::string& text) {
    if (std::find(machine_.notes.begin(), machine_.notes.end(), text) == machine_.notes.end())
      machine_.notes.push_back(text);
  }

  // The machine's GPUs are devices; its processors forward.
  void add_gpus() {
    for (const int numa : machine_.numa.indices()) switches_.push_back(numa_name(numa));
    for (const int a : machine_.numa.indices())
      for (int b = a + 1; b < machine_.numa.count(); ++b)
        links_.push_back(link(numa_name(a), numa_name(b), {20, "estimate: between NUMA nodes"}, switch_latency_us));
    name_vertices();
    for (const int vertex : machine_.pcie.indices()) {
      const PcieVertex& found = machine_.pcie[vertex];
      const bool gpu = found.kind == PcieVertex::Kind::gpu;
      if (gpu) devices_.push_back({{"name", names_[vertex]}, {"kind", "gpu"}, {"model", model_of_gpu(found.gpu)}});
      else switches_.push_back(names_[vertex]);
      links_.push_back(link(names_[vertex], found.parent < 0 ? numa_name(found.numa) : names_[found.parent],
                            pcie_rate(found, names_[vertex]),
                            gpu                                       ? gpu_latency_us
                            : found.kind == PcieVertex::Kind::adapter ? adapter_latency_us
                                                                      : switch_latency_us));
    }
    add_nvlinks();
  }

  void name_vertices() {
    int pcie_switches = 0, gpus = 0;
    for (const PcieVertex& vertex : machine_.pcie) switch (vertex.kind) {
        case PcieVertex::Kind::pcie_switch: names_.push_back("pcie" + std::to_string(pcie_switches++)); break;
        case PcieVertex::Kind::gpu: names_.push_back("gpu" + std::to_string(gpus++)); break;
        case PcieVertex::Kind::adapter: names_.push_back(vertex.adapter.name); break;
      }
  }
  static std::string numa_name(int numa) { return "numa" + std::to_string(numa); }

  Rate pcie_rate(const PcieVertex& vertex, const std::string& name) {
    if (vertex.link.gb_per_s > 0) return vertex.link;
    unknown_links_ += (unknown_links_.empty() ? "" : ", ") + name;
    return {15.75, "not known, taken as PCIe 3.0 x16"};
  }

  void add_nvlinks() {
    bool any_switch = false;
    for (const Nvlink& nvlink : machine_.nvlinks) any_switch = any_switch || (nvlink.to_gpu < 0 && nvlink.to_numa < 0);
    if (any_switch) switches_.push_back("nvswitch");
    for (const Nvlink& nvlink : machine_.nvlinks) {
      const std::string to = nvlink.to_gpu >= 0    ? names_[nvlink.to_gpu]
                             : nvlink.to_numa >= 0 ? numa_name(nvlink.to_numa)
                                                   : "nvswitch";
      links_.push_back(link(names_[nvlink.from], to, nvlink.rate, gpu_latency_us));
    }
    if (machine_.nvlinks.empty()) note("no NVLinks were found: GPUs exchange data over PCIe");
  }

  // Adds the model where it is new; its key.
  std::string model_of_gpu(const Gpu& gpu) {
    const GpuDatasheet* sheet = gpu_datasheet(gpu.name);
    const std::string shown = gpu.name.empty() ? "a GPU without a name" : gpu.name;
    double peak = gpu.peak_tflops, memory_rate = gpu.memory.gb_per_s;
    std::string source = shown + ". peak_tflops and memory_gb_per_s: ";
    if (sheet) {
      peak = sheet->peak_tflops;
      memory_rate = sheet->memory_gb_per_s;
      source += sheet->title;
    } else if (peak > 0 && memory_rate > 0) {
      source += gpu.memory.source + ", cores and their clock";
    } else {
      note(shown + ": its rates are not known, 10 TFLOPS and 500 GB/s are estimates; correct them in device_models");
      peak = 10, memory_rate = 500;
      source += "estimates";
    }
    const int64_t memory = gpu.memory_bytes > 0 ? gpu.memory_bytes
                           : sheet              ? static_cast<int64_t>(sheet->memory_gb * 1e9)
                                                : 0;
    if (memory == 0) note(shown + ": its memory is not known and so not limited");
    source += "; memory_bytes: " +
              (gpu.memory_bytes > 0 ? gpu.memory_source
               : sheet              ? std::string("datasheet")
                                    : std::string("not known")) +
              "; launch_us: estimate";
    Json model = {{"peak_tflops", rounded(peak)}};
    if (sheet && sheet->peak_tf32_tflops > 0) model["peak_tf32_tflops"] = rounded(sheet->peak_tf32_tflops);
    if (sheet && sheet->peak_bf16_tflops > 0) model["peak_bf16_tflops"] = rounded(sheet->peak_bf16_tflops);
    model.update({{"memory_gb_per_s", rounded(memory_rate)},
                  {"memory_bytes", memory},
                  {"launch_us", launch_of_gpu_us},
                  {"source", source}});
    // GPUs of one key can differ, as in their memory.
    std::string key = gpu_key(gpu.name);
    for (int number = 2; models_.contains(key) && models_[key] != model; ++number)
      key = gpu_key(gpu.name) + "-" + std::to_string(number);
    models_[key] = model;
    return key;
  }

  // Without GPUs: ranks on processors, which exchange data through shared memory.
  void add_processors() {
    const int nodes = machine_.numa.count(), ranks = settings_.cpu_ranks > 0 ? settings_.cpu_ranks : nodes;
    int64_t cores = 0, memory = 0;
    for (const NumaNode& numa : machine_.numa) cores += numa.cores, memory += numa.memory_bytes;
    if (settings_.usable_processors > 0) cores = std::min<int64_t>(cores, settings_.usable_processors);
    if (ranks > cores)
      note(std::to_string(ranks) + " ranks on " + std::to_string(cores) +
           " cores: they take turns, and iterations take longer than predicted");
    const int64_t each = std::max<int64_t>(1, cores / ranks);
    for (int rank = 0; rank < ranks; ++rank)
      devices_.push_back({{"name", "cpu" + std::to_string(rank)}, {"kind", "cpu"}, {"model", "cpu"}});
    for (int a = 0; a < ranks; ++a)
      for (int b = a + 1; b < ranks; ++b) {
        Json shared = link("cpu" + std::to_string(a), "cpu" + std::to_string(b),
                           {8, "estimate: copies through shared memory"}, 0.8);
        shared.update({{"duplex", "half"}, {"blocks_devices", true}});
        links_.push_back(shared);
      }
    models_["cpu"] = processor_model(each, memory / ranks);
    note("no GPU was found: the devices are processors, with estimated rates; mpirun -n " + std::to_string(ranks) +
         " ffexec --calibrate measures them");
    if (settings_.nodes > 1) {  // what the network is attached to
      switches_.push_back("host");
      for (int rank = 0; rank < ranks; ++rank)
        links_.push_back(
            link("cpu" + std::to_string(rank), "host", {8, "estimate: copies through shared memory"}, 0.8));
    }
  }

  Json processor_model(int64_t cores, int64_t memory_bytes) {
    std::string units = "AVX2 and FMA, two units, assumed";
    const bool here = settings_.usable_processors > 0;
    const double per_cycle = here ? flops_per_cycle_here(units) : 32;
    const auto [ghz, clock_source] = clock_ghz(here);
    const double memory_rate = std::min(80.0, 10.0 * static_cast<double>(cores));
    const std::string name = machine_.processor.empty() ? "processor" : machine_.processor;
    return {{"peak_tflops", rounded(std::max(0.001, static_cast<double>(cores) * per_cycle * ghz * 1e-3))},
            {"memory_gb_per_s", memory_rate},
            {"memory_bytes", memory_bytes},
            {"launch_us", launch_of_cpu_us},
            {"cores", cores},
            {"source", name + ", " + std::to_string(cores) + " cores a rank, " + machine_.source +
                           ". peak_tflops: " + number_text(per_cycle) + " f32 operations a core and cycle (" + units +
                           ") at " + number_text(ghz) + " GHz (" + clock_source +
                           "); memory_gb_per_s: estimate, 10 a core, at most 80; memory_bytes: the rank's share; "
                           "launch_us: estimate"}};
  }

  std::pair<double, std::string> clock_ghz(bool here) const {
    if (const size_t at = machine_.processor.find("@ "); at != std::string::npos)
      if (const double ghz = std::atof(machine_.processor.c_str() + at + 2); ghz > 0) return {ghz, "its name"};
    std::ifstream file(here ? "/proc/cpuinfo" : "");
    for (std::string line; std::getline(file, line);)
      if (line.rfind("cpu MHz", 0) == 0) return {std::atof(line.c_str() + line.find(':') + 1) * 1e-3, "/proc/cpuinfo"};
    return {2.5, "assumed"};
  }

  // Where the network is attached: to the adapters that have a known rate and the highest one, or else to the node.
  Json network() {
    Json attach = Json::array();
    Rate rate{settings_.network_gb_per_s, "given by --network-gb-per-s"};
    for (const int vertex : machine_.adapters())
      if (settings_.network_gb_per_s == 0 && machine_.pcie[vertex].adapter.network.gb_per_s > rate.gb_per_s)
        rate = machine_.pcie[vertex].adapter.network;
    if (rate.gb_per_s == 0)
      throw InputError("--nodes: the rate of no network adapter is known; give --network-gb-per-s");
    if (!machine_.gpus().empty())
      for (const int vertex : machine_.adapters()) {
        const double own = machine_.pcie[vertex].adapter.network.gb_per_s;
        if (own == rate.gb_per_s || (settings_.network_gb_per_s > 0 && own == fastest_adapter()))
          attach.push_back(names_[vertex]);
      }
    if (attach.empty()) attach.push_back(machine_.gpus().empty() ? "host" : numa_name(0));
    return {{"name", "network"},
            {"attach", attach},
            {"link",
             {{"bandwidth_gb_per_s", rounded(rate.gb_per_s)},
              {"latency_us", adapter_latency_us},
              {"source", rate.source + latency_estimated}}}};
  }

  double fastest_adapter() const {
    double fastest = 0;
    for (const int vertex : machine_.adapters())
      fastest = std::max(fastest, machine_.pcie[vertex].adapter.network.gb_per_s);
    return fastest;
  }

  Json assemble() {
    Json nodes = {{"count", settings_.nodes}, {"name", "node"}, {"devices", devices_}};
    if (!switches_.empty()) nodes["switches"] = switches_;
    if (!links_.empty()) nodes["links"] = links_;
    if (settings_.nodes > 1) nodes["network"] = network();
    Json adapters = Json::object();
    std::string unknown_rates;
    for (const int vertex : machine_.adapters()) {
      const Adapter& adapter = machine_.pcie[vertex].adapter;
      adapters[adapter.name] = adapter.network.gb_per_s > 0
                                   ? number_text(adapter.network.gb_per_s) + " GB/s, " + adapter.network.source
                                   : "network rate not known";
      if (adapter.network.gb_per_s == 0) unknown_rates += (unknown_rates.empty() ? "" : ", ") + adapter.name;
    }
    const bool several = settings_.nodes > 1;  // else the network does not matter
    if (several && adapters.empty()) note("no network adapters were found");
    if (several && !unknown_rates.empty()) note("the network's rate is not known of " + unknown_rates);
    if (!unknown_links_.empty()) note("taken as PCIe 3.0 x16, as nothing tells of the links of " + unknown_links_);
    return {{"format", "fftopology/1"},
            {"name", machine_.name + (settings_.nodes > 1 ? "-x" + std::to_string(settings_.nodes) : "")},
            {"description", "Written by ffsearch topology. Each number has a source; estimates are marked."},
            {"sources", {{"machine", machine_.source}, {"processor", machine_.processor}, {"adapters", adapters}}},
            {"device_models", models_},
            {"nodes", nodes}};
  }

  Machine& machine_;
  const ClusterSettings& settings_;
  Vector<std::string> names_;  // of vertices
  std::string unknown_links_;
  Json models_ = Json::object(), devices_ = Json::array(), switches_ = Json::array(), links_ = Json::array();
};

}  // namespace

Json topology_of(Machine& machine, const ClusterSettings& settings) { return Writer(machine, settings).write(); }

}  // namespace ff::discovery
