#include "executor/report.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "common/readable.h"

namespace ff {
namespace {

[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text, sizeof text, pattern, arguments);
  va_end(arguments);
  return text;
}

std::string duration_text(double us) {
  if (us >= 1e6) return format("%.3g s", us * 1e-6);
  if (us >= 1e3) return format("%.4g ms", us * 1e-3);
  return format("%.4g us", us);
}

// "2.30259", or "not a number": whatever the sign of that is.
std::string loss_text(double loss) { return std::isnan(loss) ? "not a number" : format("%.6g", loss); }

// Which iterations the median is of.
std::string timed_text(const RunResult& result) {
  const size_t count = result.losses.size();
  if (count == 1) return "the first iteration, a warm-up";
  const int64_t warm_up = result.warm_up_iterations;
  return "median of " + std::to_string(static_cast<int64_t>(count) - warm_up) + " after " +
         (warm_up == 1 ? "1 warm-up iteration" : std::to_string(warm_up) + " warm-up iterations");
}

std::string time_text(const StrategyFile& file, const RunResult& result) {
  std::string text = "iteration   " + duration_text(result.median_us) + " measured (" + timed_text(result) + ")";
  if (const auto predicted = predicted_us(file)) {
    const double difference = (*predicted - result.median_us) / result.median_us * 100;
    return text + ", " + duration_text(*predicted) + " predicted (" + format("%+.1f %%", difference) + ")\n";
  }
  return text + (file.edited ? "; no prediction: the strategy was edited by hand\n"
                             : "; no prediction in the strategy file\n");
}

}  // namespace

std::optional<double> predicted_us(const StrategyFile& file) {
  if (file.edited || !file.provenance.is_object()) return std::nullopt;
  const auto it = file.provenance.find("predicted_us");
  if (it == file.provenance.end() || !it->is_number()) return std::nullopt;
  return it->get<double>();
}

std::string summary_text(const StrategyFile& file, const RunResult& result,
                         const std::optional<Verification>& verification) {
  std::string text;
  if (result.interrupted)
    text += "interrupted after " + std::to_string(result.losses.size()) +
            (result.losses.size() == 1 ? " iteration\n" : " iterations\n");
  if (!result.losses.empty())
    text +=
        "loss        " + loss_text(result.losses.front()) + " first, " + loss_text(result.losses.back()) + " last\n";
  if (result.evaluation)
    text += "evaluation  loss " + loss_text(result.evaluation->loss) +
            format(", top-1 %.2f %%\n", result.evaluation->top1 * 100);
  if (!result.losses.empty()) text += time_text(file, result);
  text += "  rank  device                busy   transfer   idle     memory    data\n";
  for (size_t r = 0; r < result.ranks.size(); ++r) {
    const RankReport& rank = result.ranks[r];
    text += format("  %4zu  %-18s %5.1f %%  %6.1f %%  %5.1f %%  %9s  %s\n", r, file.topology.devices[r].name.c_str(),
                   rank.busy * 100, rank.transfer * 100, rank.idle * 100, bytes_text(rank.memory_bytes).c_str(),
                   duration_text(rank.loading_us).c_str());
  }
  if (verification && verification->max_relative_error == 0)
    text += "verified    against one device: losses and parameters are equal to the last bit\n";
  else if (verification)
    text += format("verified    against one device: largest relative error %.3g (%s)\n",
                   verification->max_relative_error, verification->worst.c_str());
  if (verification && verification->rounding_error > 0)
    text += format("            weights that differ in their last place alone make %.3g on one device\n",
                   verification->rounding_error);
  return text;
}

Json summary_json(const StrategyFile& file, const RunResult& result, const std::optional<Verification>& verification) {
  Json json;
  json["iterations"] = result.losses.size();
  json["measured_us"] = result.median_us;
  json["warm_up_iterations"] = result.warm_up_iterations;
  const auto predicted = predicted_us(file);
  json["predicted_us"] = predicted ? Json(*predicted) : Json();
  json["losses"] = result.losses;
  if (!result.epoch_losses.empty()) json["epoch_losses"] = result.epoch_losses;
  if (result.evaluation) json["eval"] = {{"loss", result.evaluation->loss}, {"top1", result.evaluation->top1}};
  json["memory_bytes"] = Json::array();
  json["shares"] = Json::array();
  double loading_us = 0;
  for (const RankReport& rank : result.ranks) {
    json["memory_bytes"].push_back(rank.memory_bytes);
    json["shares"].push_back({{"busy", rank.busy}, {"transfer", rank.transfer}, {"idle", rank.idle}});
    loading_us = std::max(loading_us, rank.loading_us);
  }
  json["loading_us"] = loading_us;
  if (verification) {
    const double error = verification->max_relative_error;
    json["verified"] = {{"max_relative_error", std::isfinite(error) ? Json(error) : Json()},
                        {"passed", verification->passed()}};
    if (verification->rounding_error > 0) json["verified"]["rounding_error"] = verification->rounding_error;
  }
  if (result.interrupted) json["interrupted"] = true;
  return json;
}

}  // namespace ff
