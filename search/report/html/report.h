// The report of a strategy as one HTML file without scripts, which needs nothing else: for people who do not have this
// program.
#pragma once

#include <optional>
#include <string>

#include "search/report/html/measured.h"

namespace ff {

struct HtmlContents {
  const SearchReport& report;
  Vector<html::Alternative> alternatives;  // what else there was, to say why it is not the one
  std::optional<html::MeasuredIteration> measured = {};
};
std::string html_report(const html::Analysis& analysis, const HtmlContents& contents);
// Throws MachineError.
void write_html_report(const std::string& path, Evaluator& evaluator, const Strategy& strategy,
                       const Evaluator::Details& details, const HtmlContents& contents);
// The algorithms without a search, as alternatives: those of `known` as they are, the others run now, each for about a
// second at most.
Vector<html::Alternative> baseline_alternatives(Evaluator& evaluator, const SearchSpace& space,
                                                const Vector<Baseline>& known, const std::atomic<bool>& stop);

}  // namespace ff
