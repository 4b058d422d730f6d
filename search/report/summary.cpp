#include "search/report/summary.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "common/readable.h"
#include "search/report/plan_text.h"

namespace ff {
namespace {

// Of SearchReport::sharding; by layers it is said as users write it.
std::string sharding_text(const std::string& sharding) {
  if (sharding.find('=') != std::string::npos) return sharding;
  if (sharding == "optimizer") return "of the optimizer's state";
  return sharding == "gradients" ? "of the optimizer's state and gradients"
                                 : "of the optimizer's state, gradients and weights";
}

std::string padded(std::string text) {
  text.resize(std::max<size_t>(text.size() + 1, 21), ' ');
  return text;
}

std::string local_optimum_text(const Json& local, size_t operators) {
  std::string text = padded("local optimum");
  const int64_t improvements = local["improvements"];
  if (improvements > 0)
    text += with_number("the search ended at %.3f ms, which ", local["before_us"].get<double>() / 1e3) +
            std::to_string(improvements) + " changes improved; now ";
  text += local["proven"].get<bool>()
              ? "no neighbour is better: " + std::to_string(local["neighbours"].get<int64_t>()) + " neighbours, "
              : "not known, interrupted after " + std::to_string(local["evaluated"].get<int64_t>()) +
                    " evaluations of neighbours, none better of " + std::to_string(local["operators"].get<int64_t>()) +
                    " of " + std::to_string(operators) + " operators; ";
  return text + local["neighbourhood"].get<std::string>() + with_number("; %.1f s\n", local["elapsed_s"].get<double>());
}

std::string background_text(const SearchReport& report) {
  std::string text;
  for (const BackgroundEffect& effect : report.background)
    text += padded("in background") + effect.file + ": " + time_text(effect.before) + ", co-located " +
            time_text(effect.after) +
            with_number(" (slowdown %.2f)\n", static_cast<double>(effect.after) / static_cast<double>(effect.before));
  return text;
}

}  // namespace

std::string reason_without_name(const std::string& algorithm, const std::string& message) {
  const std::string prefix = algorithm + ": ";
  return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
}

std::string comparison_to_text(const Vector<SearchReport>& reports,
                               const Vector<std::pair<std::string, std::string>>& failed, int64_t batch_size) {
  char line[200];
  std::snprintf(line, sizeof line, "%-16s %12s %12s %11s %12s %12s %11s %10s\n", "algorithm", "iteration", "samples/s",
                "transfers", "sync bytes", "compute time", "memory", "search");
  std::string text = line, notes;
  for (const SearchReport& report : reports) {
    const int64_t fullest = *std::max_element(report.memory_bytes.begin(), report.memory_bytes.end());
    std::snprintf(line, sizeof line, "%-16s %12s %12.1f %11s %12s %12s %11s %8.1f s%s\n", report.algorithm.c_str(),
                  time_text(report.predicted).c_str(),
                  static_cast<double>(batch_size) * 1e9 / static_cast<double>(report.predicted),
                  bytes_text(report.transfer_bytes).c_str(), bytes_text(report.synchronization_bytes).c_str(),
                  time_text(report.compute).c_str(), bytes_text(fullest).c_str(), report.total_s,
                  report.feasible ? "" : "  exceeds device memory");
    text += line;
    notes += padded(report.algorithm) + report.note + "\n" + background_text(report);
  }
  for (const auto& [name, message] : failed) {
    text += padded(name).substr(0, 17) + "not applicable\n";
    notes += padded(name) + reason_without_name(name, message) + "\n";
  }
  return text + "\n" + notes;
}

namespace {

Json collectives_to_json(const SearchReport& report) {
  Json json = Json::object();
  const auto add = [&](const std::string& name, const SearchReport::CollectiveUse& use) {
    if (use.count > 0) json[name] = {{"count", use.count}, {"us", to_us(use.time)}};
  };
  for (const auto& [kind, use] : report.collectives) add(std::string(to_string(kind)), use);
  add("synchronization", report.synchronization);
  return json;
}

// Of --simulator checked.
Json checks_to_json(const CheckStatistics& checks) {
  return {{"rejections", checks.rejections}, {"predictions", checks.predictions}, {"timelines", checks.timelines}};
}

Json rejections_to_json(const DeltaStatistics& statistics) {
  const auto by = [&](Bound bound) { return statistics.rejected_by[static_cast<size_t>(bound)]; };
  return {{"work", by(Bound::work)},
          {"paths", by(Bound::paths)},
          {"synchronization", by(Bound::synchronization)},
          {"transfers", by(Bound::transfers)}};
}

// What the strategy decides for the network as a whole, where it is not the default or was chosen by `auto`.
std::string settings_text(const SearchReport& report, int64_t batch_size) {
  const auto chosen = [](bool by_auto) { return by_auto ? ", chosen by auto\n" : "\n"; };
  std::string text;
  if (!report.fifo_order)
    text += padded("task order") + report.task_order +
            (report.predicted_fifo > 0 ? "; in FIFO order: " + time_text(report.predicted_fifo) : "") + "\n";
  if (report.micro_batches > 1 || report.chosen.micro_batches)
    text += padded("micro-batches") + std::to_string(report.micro_batches) + " of " +
            std::to_string(batch_size / report.micro_batches) + " samples" + chosen(report.chosen.micro_batches);
  if (report.sharding != "none" || report.chosen.sharding)
    text += padded("sharding") + (report.sharding == "none" ? "none" : sharding_text(report.sharding)) +
            chosen(report.chosen.sharding);
  if (!report.overlaps_reductions) text += padded("gradients") + "reduced after backward\n";
  if (report.precision != Precision::fp32)
    text += padded("precision") + std::string(to_string(report.precision)) + "\n";
  else if (report.bf16_tflops > 0) text += padded("precision") + fp32_text(report.tflops, report.bf16_tflops) + "\n";
  const char* const what = report.details.contains("settings") ? "as the settings say" : "full";
  if (report.chosen.recompute) text += padded("recompute") + (report.recompute.empty() ? "none" : what) + chosen(true);
  for (const std::string& pattern : report.recompute)
    text += padded(&pattern == report.recompute.data() && !report.chosen.recompute ? "recompute" : "") + pattern + "\n";
  if (report.on_demand_buffers)
    text += padded("transfer buffers") + "on demand, which needs less memory than preallocated ones\n";
  return text;
}

// "8 of 24"; empty where all are used, or the strategy is not known.
std::string some_devices(const Strategy& strategy, const Topology& topology) {
  std::set<DeviceId> used;
  for (const Configuration& configuration : strategy)
    used.insert(configuration.devices.begin(), configuration.devices.end());
  if (used.empty() || used.size() >= topology.devices.size()) return "";
  return std::to_string(used.size()) + " of " + std::to_string(topology.devices.size());
}

std::string idle_text(const Strategy& strategy, const Topology& topology) {
  const std::string some = some_devices(strategy, topology);
  return some.empty() ? "" : padded("devices") + some + " used; the others are idle\n";
}

// Among others data parallelism of a micro-batch with fewer samples than there are devices.
std::string used_by_baseline_text(const Baseline& baseline, const Topology& topology) {
  const std::string some = some_devices(baseline.strategy, topology);
  return some.empty() ? "" : "  on " + some + " devices";
}

Json improvements_to_json(const SearchReport& report) {
  Json improvements = Json::array();
  for (const Improvement& found : report.improvements)
    improvements.push_back({{"after_s", found.after_s}, {"predicted_us", to_us(found.makespan)}});
  return improvements;
}

Json baselines_to_json(const SearchReport& report) {
  Json baselines = Json::object();
  for (const Baseline& baseline : report.baselines) baselines[baseline.algorithm] = to_us(baseline.predicted);
  return baselines;
}

// How many operators have their configuration from where.
Json origins_to_json(const SearchReport& report) {
  Json origins = Json::object();
  for (const ConfigurationOrigin origin :
       {ConfigurationOrigin::annotated, ConfigurationOrigin::propagated, ConfigurationOrigin::searched})
    origins[std::string(to_string(origin))] = std::count(report.origins.begin(), report.origins.end(), origin);
  return origins;
}

}  // namespace

Json report_to_json(const SearchReport& report) {
  Json json = {
      {"algorithm", report.algorithm},
      {"note", report.note},
      {"seed", report.seed},
      {"proposals", report.proposals},
      {"accepted", report.accepted},
      {"threads", report.threads},
      {"elapsed_s", report.elapsed_s},
      {"best_found_s", report.best_found_s},
      {"improvements", improvements_to_json(report)},
      {"ended", report.ended},
      {"total_s", report.total_s},
      {"proposals_per_s", report.elapsed_s > 0 ? static_cast<double>(report.proposals) / report.elapsed_s : 0.0},
      {"chain_hash", report.chain_hash},
      {"rejected_before_simulation", report.statistics.rejected_before_simulation},
      {"rejected_by", rejections_to_json(report.statistics)},
      {"checks", checks_to_json(report.statistics.checks)},
      {"rejected_during_simulation", report.statistics.rejected_during_simulation},
      {"proposal_us",
       {{"median", report.statistics.times.quantile_us(0.5)}, {"p99", report.statistics.times.quantile_us(0.99)}}},
      {"events", report.statistics.events},
      {"tasks", report.tasks},
      {"predicted_us", to_us(report.predicted)},
      {"fifo_order", report.fifo_order},
      {"micro_batches", report.micro_batches},
      {"sharding", report.sharding},
      {"recompute", report.recompute},
      {"overlap_grad_reduce", report.overlaps_reductions},
      {"precision", to_string(report.precision)},
      {"predicted_fifo_us", report.predicted_fifo > 0 ? Json(to_us(report.predicted_fifo)) : Json()},
      {"lower_bound_us", to_us(report.lower_bound)},
      {"fits_memory", report.feasible},
      {"baselines", baselines_to_json(report)},
      {"memory_bytes", report.memory_bytes},
      {"transfer_bytes", report.transfer_bytes},
      {"synchronization_bytes", report.synchronization_bytes},
      {"compute_us", to_us(report.compute)},
      {"collectives", collectives_to_json(report)},
      {"costs",
       {{"profile", report.sources.profile},
        {"measured", report.sources.measured},
        {"analytic", report.sources.analytic}}}};
  if (!report.origins.empty()) json["origins"] = origins_to_json(report);
  for (const BackgroundEffect& effect : report.background)
    json["background"].push_back(
        {{"strategy", effect.file}, {"without_us", to_us(effect.before)}, {"co_located_us", to_us(effect.after)}});
  json.update(report.details);
  return json;
}

std::string report_to_text(const SearchReport& report, const Graph& graph, const Topology& topology,
                           const Strategy& strategy) {
  std::string text = graph.name + ", batch " + std::to_string(graph.batch_size) + ", on " + topology.name + " (" +
                     std::to_string(topology.devices.size()) +
                     (topology.devices.size() == 1 ? " device)\n" : " devices)\n");
  const double seconds = static_cast<double>(report.predicted) / 1e9;
  text += "predicted iteration  " + time_text(report.predicted) + "  (" +
          with_number("%.1f", static_cast<double>(graph.batch_size) / seconds) + " samples/s)\n";
  if (!report.note.empty()) text += padded(report.algorithm) + report.note + "\n";
  text += settings_text(report, graph.batch_size) + idle_text(strategy, topology);
  if (report.details.contains("simulated_devices"))
    text += padded("simulated") + report.details["simulated_devices"].dump() +
            (report.details["simulated_devices"] == 1 ? " device" : " devices") +
            "; the others do the same at the same times\n";
  if (report.details.contains("simulated_micro_batches"))
    text += padded("") + report.details["simulated_micro_batches"].dump() + " micro-batches; the others repeat them\n";
  for (const Baseline& baseline : report.baselines)
    text += padded(baseline.algorithm) + time_text(baseline.predicted) +
            with_number("  (%.2f times as long)",
                        static_cast<double>(baseline.predicted) / static_cast<double>(report.predicted)) +
            (baseline.feasible ? "" : "  exceeds device memory") + used_by_baseline_text(baseline, topology) +
            (baseline.algorithm == "settings" ? "  " + report.details["settings"].get<std::string>() : "") + "\n";
  text += background_text(report);
  if (report.lower_bound > 0)
    text += "lower bound          " + time_text(report.lower_bound) +
            with_number("  (%.2f times the bound)\n",
                        static_cast<double>(report.predicted) / static_cast<double>(report.lower_bound));
  text += "transfers            " + bytes_text(report.transfer_bytes) + ", synchronization " +
          bytes_text(report.synchronization_bytes) + "\n";
  if (!report.collectives.empty()) {
    std::string kinds;
    for (const auto& [kind, use] : report.collectives)
      kinds += (kinds.empty() ? "" : ", ") + std::to_string(use.count) + " " + std::string(to_string(kind)) + " (" +
               time_text(use.time) + ")";
    text += "collectives          " + kinds + ", summed up\n";
  }
  if (!report.memory_bytes.empty())
    text += "memory               " +
            bytes_text(*std::max_element(report.memory_bytes.begin(), report.memory_bytes.end())) +
            " on the fullest device" + (report.feasible ? "" : ": exceeds device memory") + "\n";
  text += "kernel costs         " + std::to_string(report.sources.profile) + " from a profile, " +
          std::to_string(report.sources.measured) + " measured, " + std::to_string(report.sources.analytic) +
          " analytic\n";
  if (report.proposals > 0)
    text += "search               " + std::to_string(report.proposals) + " proposals, " +
            std::to_string(report.accepted) + " accepted, " + with_number("%.1f s", report.elapsed_s) +
            (report.threads > 1 ? " on " + std::to_string(report.threads) + " threads" : "") +
            with_number(" (%.0f proposals/s)", static_cast<double>(report.proposals) / report.elapsed_s) +
            (report.ended.empty() ? "" : "; ended: " + report.ended) + "\n";
  if (report.details.contains("local_optimum"))
    text += local_optimum_text(report.details["local_optimum"], graph.operators.size());
  return text + "strategy\n" + plan_text(graph, strategy, report.origins);
}

bool leaves_bf16_unused(Precision precision, const DeviceModel& model) {
  return precision == Precision::fp32 && model.peak_bf16_tflops > 4 * model.peak_tflops;
}

std::string fp32_text(double tflops, double bf16_tflops) {
  return "fp32: products at " + with_number("%.3g", tflops) + " TFLOP/s, in bf16 at " +
         with_number("%.3g", bf16_tflops);
}

}  // namespace ff
