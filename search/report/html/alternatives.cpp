// The sections that compare the plan with others, and where the costs came from.
#include <algorithm>

#include "common/readable.h"
#include "search/explain/decisions.h"
#include "search/report/html/sections.h"

namespace ff::html {
namespace {

// In what the other strategy's critical path has more of than this one's.
std::string why_not(const Analysis& mine, const Analysis& other) {
  const MemoryPeak& peak = other.peak;
  std::string text;
  if (peak.fullness() > 1)
    text = "Exceeds device memory: device " + std::to_string(peak.device) + " needs " + bytes_text(peak.needed) + ", " +
           bytes_text(peak.needed - peak.capacity) + " more than it has, during " + peak.task + ". ";
  const Nanoseconds slower = other.makespan() - mine.makespan();
  if (slower == 0) return text + "Equally fast.";
  if (slower < 0) return text + "Faster by " + time_text(-slower) + ".";
  Vector<std::pair<Nanoseconds, std::string>> more = {{other.bound.computing - mine.bound.computing, "computation"},
                                                      {other.bound.updates - mine.bound.updates, "updates"}};
  for (const int kind : mine.bound.links.indices())
    more.emplace_back(other.bound.links[kind] - mine.bound.links[kind], "transfers over " + mine.links.names()[kind]);
  const auto most = std::max_element(more.begin(), more.end());
  return text + "Slower by " + time_text(slower) + ": its critical path has " + time_text(most->first) + " more for " +
         most->second + ".";
}

}  // namespace

std::string alternatives_section(const Analysis& analysis, const Vector<Alternative>& alternatives) {
  Vector<Vector<std::string>> rows = {{"strategy", "iteration", "times as long", "why not"}};
  struct Bar {
    std::string name;
    Nanoseconds time;
    bool fits;
  };
  Vector<Bar> bars = {{"this plan", analysis.makespan(), analysis.peak.fullness() <= 1}};
  for (const Alternative& alternative : alternatives) {
    if (alternative.strategy.empty()) {
      rows.push_back({escaped(alternative.name), "", "",
                      escaped("Not applicable: " + reason_without_name(alternative.name, alternative.note))});
      continue;
    }
    const Evaluator::Details details = analysis.evaluator.details(alternative.strategy);
    const Analysis other(analysis.evaluator, alternative.strategy, details);
    rows.push_back({escaped(alternative.name), time_text(other.makespan()),
                    fixed(fraction(other.makespan(), analysis.makespan()), 2), escaped(why_not(analysis, other))});
    bars.push_back({alternative.name, other.makespan(), other.peak.fullness() <= 1});
  }
  // What takes ten times as long would leave no room to see the others' differences: it goes to the end of the axis.
  Nanoseconds most = 1;
  for (const Bar& bar : bars) most = std::max(most, std::min(bar.time, 4 * analysis.makespan()));
  const double row = 20, top = 4;
  const Axis axis{150, page_width - 380, ms(most), "time of an iteration in ms"};
  Svg svg(page_width, top + bars.count() * row + Axis::height);
  for (const int b : bars.indices()) {
    const bool cut = bars[b].time > most;
    const double y = top + b * row, end = axis.at(ms(cut ? most : bars[b].time));
    svg.text(142, y + 14, clipped(bars[b].name, 22), Svg::Anchor::end);
    svg.rectangle(axis.left, y + 2, end - axis.left, row - 4,
                  !bars[b].fits ? "#e3b5ae"
                  : b == 0      ? computing_color
                                : "#a9bfd6");
    svg.text(end + 6, y + 14,
             (cut ? "\u2026 " : "") + time_text(bars[b].time) + (bars[b].fits ? "" : ", exceeds device memory"));
  }
  axis.draw(svg, top + bars.count() * row, top + bars.count() * row + 2);
  return "<h2>Why not another plan?</h2>\n" + svg.str() + table(rows, {1, 2});
}

std::string decisions_section(const Analysis& analysis) {
  const Problem& problem = analysis.problem();
  const Strategy plain = problem.keeping_annotations(data_parallel(problem.graph, problem.topology));
  const Vector<Effect> undone = effects(analysis.evaluator, analysis.strategy, plain, false);
  std::string text = "<h2>Effect of each decision</h2>\n";
  if (undone.empty()) return text + "<p>This is data parallelism: every operator is split by sample.</p>\n";
  Vector<Vector<std::string>> rows = {
      {"operators", "configuration", "in data parallelism", "change if undone", "relative"}};
  for (const int e : undone.indices()) {
    if (e == 10) break;
    const Effect& effect = undone[e];
    const OperatorId op = effect.decision.operators[0];
    rows.push_back({escaped(clipped(effect.decision.name, 44)),
                    escaped(clipped(configuration_text(problem.graph, op, effect.decision.from), 44)),
                    escaped(clipped(configuration_text(problem.graph, op, effect.decision.to), 44)),
                    (effect.change < 0 ? "-" : "+") + time_text(std::abs(effect.change)),
                    (effect.change < 0 ? "-" : "+") + percent(std::abs(fraction(effect.change, analysis.makespan())))});
  }
  return text +
         "<p class=\"note\">Change of the iteration time if one decision alone is replaced by that of "
         "data parallelism.</p>\n" +
         table(rows, {3, 4}) +
         (undone.count() > 10 ? "<p class=\"note\">The first 10 of " + std::to_string(undone.count()) + ".</p>\n" : "");
}

std::string costs_section(const SearchReport& report) {
  const CostCounts& sources = report.sources;
  std::string text = "Times of kernels: " + std::to_string(sources.profile) + " from a profile, " +
                     std::to_string(sources.measured) + " measured on this machine, " +
                     std::to_string(sources.analytic) +
                     " from the analytic model (arithmetic and memory rates of the topology file). ";
  if (sources.analytic > 0)
    text +=
        "Analytic times assume that kernels reach the rates of the device model, by default those of its datasheet, "
        "which they seldom do: expect real iterations to take longer, and trust the order of plans more than their "
        "times (docs/results/published-runs.md). ";
  else
    text +=
        "With measured kernels, 44 of 49 strategies of six networks lay within 30 % of the prediction on two "
        "CPU ranks (docs/results/figure10.md). ";
  text += "Times of transfers are latencies plus bytes over the bandwidth that the topology file says.";
  return "<h2>Where the numbers come from</h2>\n<p>" + escaped(text) + "</p>\n";
}

}  // namespace ff::html
