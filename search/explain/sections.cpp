#include "search/explain/sections.h"

#include <algorithm>
#include <map>

#include "common/readable.h"
#include "search/explain/critical_path.h"
#include "search/explain/memory_shortage.h"
#include "search/report/summary.h"

namespace ff {

std::string column(std::string text, size_t width) {
  text.resize(std::max(text.size() + 1, width), ' ');
  return text;
}

std::string right_aligned(const std::string& text, size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

std::string change_text(Nanoseconds change, Nanoseconds whole) {
  return right_aligned((change < 0 ? "-" : "+") + time_text(std::abs(change)), 13) +
         right_aligned(with_number("(%+.1f %%)", 100 * static_cast<double>(change) / static_cast<double>(whole)), 12);
}

std::string heading(const Graph& whole, const Topology& topology) {
  const size_t devices = topology.devices.size();
  return whole.name + ", batch " + std::to_string(whole.batch_size) + ", on " + topology.name + " (" +
         std::to_string(devices) + (devices == 1 ? " device)\n" : " devices)\n");
}

std::string more_text(int64_t all, int limit, const std::string& what) {
  return all > limit ? "  and " + std::to_string(all - limit) + " more " + what + " (--limit)\n" : "";
}

std::string predicted_text(int64_t batch, Nanoseconds makespan) {
  return "predicted iteration  " + time_text(makespan) + "  (" +
         with_number("%.1f", static_cast<double>(batch) * 1e9 / static_cast<double>(makespan)) + " samples/s)\n";
}

namespace {

std::string share_text(Nanoseconds part, Nanoseconds whole) {
  return right_aligned(with_number("%.1f %%", 100 * static_cast<double>(part) / static_cast<double>(whole)), 8);
}

std::string piece_kind(const PathPiece& piece, const LinkKinds& links) {
  return std::string(to_string(piece.kind)) + (piece.link_kind < 0 ? "" : " over " + links.names()[piece.link_kind]);
}

Json piece_to_json(const PathPiece& piece, const LinkKinds& links, bool with_begin) {
  Json json = {{"what", joined_names(piece.names)}, {"kind", std::string(to_string(piece.kind))}};
  if (piece.link_kind >= 0) json["link"] = links.names()[piece.link_kind];
  if (with_begin) json["begin_us"] = to_us(piece.begin);
  json.update({{"us", to_us(piece.time)},
               {"tasks", piece.tasks},
               {"waited_for_us",
                {{"data", to_us(piece.after_data)},
                 {"device busy", to_us(piece.after_device)},
                 {"link busy", to_us(piece.after_link)}}}});
  return json;
}

// "data", "link busy", or with their shares where there are several.
std::string waits_text(const PathPiece& piece) {
  std::string text;
  for (const auto& [wait, time] : {std::pair{Wait::data, piece.after_data}, std::pair{Wait::device, piece.after_device},
                                   std::pair{Wait::link, piece.after_link}}) {
    if (time == 0) continue;
    text += (text.empty() ? "" : ", ") + std::string(to_string(wait));
    if (time < piece.time)
      text += with_number(" %.0f %%", 100 * static_cast<double>(time) / static_cast<double>(piece.time));
  }
  return text.empty() ? "nothing" : text;
}

Json items_to_json(const Vector<MemoryItem>& items) {
  Json json = Json::object();
  for (const MemoryItem& item : items) json[item.name] = item.bytes;
  return json;
}

}  // namespace

void describe_part(const ExplainedPart& part, const std::string& what, Explanation& result) {
  if (part.is_whole()) return;
  result.json["explained_micro_batches"] = part.micro_batches;
  result.json["micro_batches"] = part.of_all;
  result.text +=
      "explained            an iteration with " + std::to_string(part.micro_batches) + " of " +
      std::to_string(part.of_all) + " micro-batches, in 1F1B order. " + what +
      "; what is\n                     done once an iteration, such as reducing gradients, has a larger share of it\n";
}

void explain_path(Evaluator& evaluator, const Evaluator::Details& details, int limit, Explanation& result) {
  const Topology& topology = evaluator.problem().topology;
  const LinkKinds links(topology);
  const TimelineCauses causes(details.tasks, details.costs, details.timeline, details.fifo_order);
  const Vector<PathPiece> pieces =
      path_pieces(evaluator.builder(), details.tasks, details.costs, details.timeline, causes, links);
  const Vector<PathPiece> merged = merged_pieces(pieces);
  const Nanoseconds makespan = details.timeline.makespan;
  std::map<std::string, Nanoseconds> kinds;
  for (const PathPiece& piece : merged) kinds[piece_kind(piece, links)] += piece.time;
  Vector<std::pair<std::string, Nanoseconds>> by_time(kinds.begin(), kinds.end());
  std::stable_sort(by_time.begin(), by_time.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  result.text += "\ncritical path: the chain of tasks that sets the iteration time\n";
  Json& json = result.json["critical_path"] = {{"kinds", Json::object()}, {"pieces", Json::array()}};
  for (const auto& [kind, time] : by_time) {
    result.text += "  " + column(kind, 44) + right_aligned(time_text(time), 12) + share_text(time, makespan) + "\n";
    json["kinds"][kind] = to_us(time);
  }
  for (const PathPiece& piece : pieces) json["pieces"].push_back(piece_to_json(piece, links, true));
  result.text += "\nits pieces, merged by operator and kind, and what they waited for\n";
  for (const int p : merged.indices()) {
    if (p == limit) break;
    result.text += "  " + column(joined_names(merged[p].names), 44) + right_aligned(time_text(merged[p].time), 12) +
                   share_text(merged[p].time, makespan) + "  " + column(piece_kind(merged[p], links), 36) +
                   std::to_string(merged[p].tasks) + (merged[p].tasks == 1 ? " task" : " tasks") +
                   "; waited for: " + waits_text(merged[p]) + "\n";
  }
  result.text += more_text(merged.count(), limit, "pieces");
}

bool explain_peak(Evaluator& evaluator, const Evaluator::Details& details, int limit, Explanation& result) {
  const Problem& problem = evaluator.problem();
  const MemoryPeak peak = memory_peak(evaluator, details);
  const bool fits = peak.fullness() <= 1;
  const DeviceId device = problem.replicas ? problem.replicas->devices[peak.device][0] : peak.device;
  result.json["memory"] = {{"fits", fits},
                           {"device", device},
                           {"bytes", peak.needed},
                           {"capacity_bytes", peak.capacity},
                           {"peak_task", peak.task},
                           {"kinds", items_to_json(peak.kinds)},
                           {"largest", items_to_json(peak.largest)}};
  const std::string at = "device " + std::to_string(device) + " (" + problem.topology.devices[peak.device].name + ")";
  result.text += "\nmemory: " + at + " needs " + bytes_text(peak.needed);
  if (peak.capacity > 0)
    result.text += " of " + bytes_text(peak.capacity) + with_number(", %.1f %%", 100 * peak.fullness()) +
                   (fits ? "" : ": exceeds device memory by " + bytes_text(peak.needed - peak.capacity));
  result.text += "\n  at the peak, during " + (peak.task.empty() ? "the end of the iteration" : peak.task) + ":\n";
  for (const MemoryItem& item : peak.kinds)
    if (item.bytes > 0) result.text += "  " + column(item.name, 52) + right_aligned(bytes_text(item.bytes), 12) + "\n";
  if (fits) return true;
  result.text += "  largest temporary buffers:\n";
  for (const int i : peak.largest.indices())
    if (i < limit)
      result.text +=
          "    " + column(peak.largest[i].name, 58) + right_aligned(bytes_text(peak.largest[i].bytes), 12) + "\n";
  return false;
}

void describe_answers(const Vector<WhatIf>& answers, const std::string& of, Nanoseconds makespan, Explanation& result) {
  if (answers.empty()) return;
  result.text += "\nwhat if: the same " + of + "\n";
  Json& json = result.json["what_if"] = Json::array();
  for (const WhatIf& answer : answers) {
    const double rate = static_cast<double>(answer.batch_size) * 1e9 / static_cast<double>(answer.predicted);
    result.text += "  " + column(answer.text, 34) + change_text(answer.predicted - makespan, makespan) + "  " +
                   time_text(answer.predicted) + with_number(", %.1f samples/s", rate) +
                   (answer.fullness > 0 ? with_number(", needs %.0f %% of the memory", 100 * answer.fullness) : "") +
                   "\n";
    json.push_back({{"what_if", answer.text},
                    {"predicted_us", to_us(answer.predicted)},
                    {"change_us", to_us(answer.predicted - makespan)},
                    {"samples_per_s", rate},
                    {"fits_memory", answer.fullness <= 1},
                    {"memory_share", answer.fullness}});
  }
}

}  // namespace ff
