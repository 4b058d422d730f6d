#include "search/report/html/report.h"

#include <algorithm>

#include "common/readable.h"
#include "search/report/html/sections.h"

namespace ff {

std::string html_report(const html::Analysis& analysis, const HtmlContents& contents) {
  const Problem& problem = analysis.problem();
  const std::string title = problem.graph.name + " on " + problem.topology.name;
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><title>" + html::escaped(title) +
         "</title>\n<style>"
         "body{font:14px/1.45 system-ui,sans-serif;color:#222;max-width:1040px;margin:24px auto;padding:0 16px}"
         "h1{font-size:24px}h2{font-size:18px;margin:34px 0 6px;border-bottom:1px solid #ddd}"
         "svg{display:block;max-width:100%;height:auto}svg text{font:11px system-ui,sans-serif;fill:#222}"
         ".verdict{font-size:16px;background:#f3f6fa;padding:12px 16px;border-left:4px solid #3b6ea5}"
         ".legend span{margin-right:16px;white-space:nowrap}"
         ".legend i{display:inline-block;width:12px;height:12px;margin-right:5px}"
         "table{border-collapse:collapse;font-size:13px;margin:8px 0}"
         "th,td{padding:3px 10px 3px 0;text-align:left;vertical-align:top;border-bottom:1px solid #eee}"
         "td:first-child{white-space:nowrap}"
         ".number{text-align:right;white-space:nowrap}.note{color:#555;font-size:13px}"
         "</style></head><body>\n<h1>" +
         html::escaped(title) + "</h1>\n" + html::verdict(analysis, contents.report) +
         (contents.measured ? html::measured_section(analysis, *contents.measured) : "") +
         html::plan_section(analysis) + html::pipeline_section(analysis) + html::path_section(analysis) +
         html::timeline_section(analysis) + html::devices_section(analysis) + html::memory_section(analysis) +
         html::communication_section(analysis) + html::decisions_section(analysis) +
         html::alternatives_section(analysis, contents.alternatives) + html::costs_section(contents.report) +
         "</body></html>\n";
}

void write_html_report(const std::string& path, Evaluator& evaluator, const Strategy& strategy,
                       const Evaluator::Details& details, const HtmlContents& contents) {
  write_file_atomically(path, html_report(html::Analysis(evaluator, strategy, details), contents));
}

Vector<html::Alternative> baseline_alternatives(Evaluator& evaluator, const SearchSpace& space,
                                                const Vector<Baseline>& known, const std::atomic<bool>& stop) {
  Vector<html::Alternative> alternatives;
  for (const std::string& name : heuristic_baseline_names()) {
    const auto same = std::find_if(known.begin(), known.end(), [&](const Baseline& baseline) {
      return baseline.algorithm == name && !baseline.strategy.empty();
    });
    if (same != known.end()) {
      alternatives.push_back({name, "", same->strategy});
      continue;
    }
    try {
      AlgorithmResult result = run_algorithm(name, {.evaluator = evaluator,
                                                    .space = space,
                                                    .settings = {},
                                                    .control = {.stop = stop, .deadline = Deadline(1)},
                                                    .thorough = false});
      alternatives.push_back({name, result.note, std::move(result.strategy)});
    } catch (const NotApplicable& error) {
      alternatives.push_back({name, error.what(), {}});
    }
  }
  return alternatives;
}

}  // namespace ff
