// What the commands print: the JSON objects of --json, and the same as text for people.
#pragma once

#include <map>
#include <string>

#include "common/readable.h"
#include "common/vector.h"
#include "search/algorithms/algorithms.h"
#include "search/settings/choice.h"

namespace ff {

// What a job that runs on the same devices takes without and with the one that was planned.
struct BackgroundEffect {
  std::string file;
  Nanoseconds before = 0, after = 0;
};

// Result of one algorithm on one graph and topology.
struct SearchReport {
  std::string algorithm;
  std::string note;               // one line: what the algorithm did
  Json details = Json::object();  // further keys, of the algorithm's own
  uint64_t seed = 0;
  int64_t proposals = 0, accepted = 0;
  int threads = 1;  // of the chains
  double best_found_s = 0;
  double elapsed_s = 0;    // of the chains; of an algorithm without any: of the whole
  double total_s = 0;      // with candidates and checks
  std::string chain_hash;  // "" for algorithms without a chain
  Nanoseconds predicted = 0, lower_bound = 0;
  Nanoseconds predicted_fifo = 0;  // with tasks in the order in which they become ready; 0: not simulated
  bool overlaps_reductions = true;
  int micro_batches = 1;
  Vector<std::string> recompute;  // patterns
  std::string sharding = "none";  // sharding_name
  Precision precision = Precision::fp32;
  double tflops = 0, bf16_tflops = 0;  // of the first device, where fp32 leaves most of it unused; else 0
  SettingsChoice chosen;               // which of these three `auto` chose
  std::string task_order;              // what people call it
  bool on_demand_buffers = false;
  bool fifo_order = true;  // which is the order of the plan; else it is by critical path, or the file's own
  bool feasible = true;
  int64_t tasks = 0, transfer_bytes = 0, synchronization_bytes = 0;
  // forward and backward tasks with their copies, summed over the devices; updates are not counted
  Nanoseconds compute = 0;
  // Collectives of edges, and the all-reduces of gradients: how many, and how long they take one after another.
  struct CollectiveUse {
    int64_t count = 0;
    Nanoseconds time = 0;
  };
  std::map<CollectiveKind, CollectiveUse> collectives;
  CollectiveUse synchronization;
  Vector<int64_t> memory_bytes;
  CostCounts sources;
  DeltaStatistics statistics;
  Vector<Improvement> improvements;
  std::string ended;  // why the chains did; "" for algorithms without any
  Vector<Baseline> baselines;
  Vector<ConfigurationOrigin> origins;  // by OperatorId; empty where nothing is known of them
  Vector<BackgroundEffect> background;
};

Json report_to_json(const SearchReport& report);
std::string report_to_text(const SearchReport& report, const Graph& graph, const Topology& topology,
                           const Strategy& strategy);

// Why an algorithm gave no result, without its name in front.
std::string reason_without_name(const std::string& algorithm, const std::string& message);

// Results side by side, a line each; `failed`: what some algorithms said instead of giving a result.
std::string comparison_to_text(const Vector<SearchReport>& reports,
                               const Vector<std::pair<std::string, std::string>>& failed, int64_t batch_size);

// In fp32 most of such a device is unused: its products are more than four times as fast in bf16.
bool leaves_bf16_unused(Precision precision, const DeviceModel& model);

// "fp32: products at 19.5 TFLOP/s, in bf16 at 312"
std::string fp32_text(double tflops, double bf16_tflops);

}  // namespace ff
