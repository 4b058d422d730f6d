// The report of a strategy as one HTML file without scripts, which needs nothing else: for people who do not have this
// program.
#pragma once

#include <string>

#include "search/report/html/analysis.h"

namespace ff {

// `alternatives`: what else there was, to say why it is not the one.
std::string html_report(const html::Analysis& analysis, const SearchReport& report,
                        const Vector<html::Alternative>& alternatives);
// Throws MachineError.
void write_html_report(const std::string& path, Evaluator& evaluator, const Strategy& strategy,
                       const Evaluator::Details& details, const SearchReport& report,
                       const Vector<html::Alternative>& alternatives);
// The algorithms without a search, as alternatives.
Vector<html::Alternative> cheap_alternatives(Evaluator& evaluator, const SearchSpace& space,
                                             const std::atomic<bool>& stop);

}  // namespace ff
