// Sections that explanations have in common, as text and JSON.
#pragma once

#include <string>

#include "search/explain/explanation.h"
#include "search/explain/shortened.h"
#include "search/explain/what_if.h"

namespace ff {

// "gpt2-small, batch 32, on hosts (4 devices)" with the end of the line.
std::string heading(const Graph& whole, const Topology& topology);
std::string predicted_text(int64_t batch, Nanoseconds makespan);

// Of tables: text with spaces behind it, one at least, or in front of it; "+1.2 ms  (+3.4 %)"; how many rows there are
// after the limit, "" where none.
std::string column(std::string text, size_t width);
std::string right_aligned(const std::string& text, size_t width);
std::string change_text(Nanoseconds change, Nanoseconds whole);
std::string more_text(int64_t all, int limit, const std::string& what);

// What is left out of the plan. `what`: "All numbers are of that".
void describe_part(const ExplainedPart& part, const std::string& what, Explanation& result);
void explain_path(Evaluator& evaluator, const Evaluator::Details& details, int limit, Explanation& result);
// The device that needs most of its memory, and where it goes. Returns whether the plan fits.
bool explain_peak(Evaluator& evaluator, const Evaluator::Details& details, int limit, Explanation& result);
// `of`: what stays the same. Nothing where nothing was asked.
void describe_answers(const Vector<WhatIf>& answers, const std::string& of, Nanoseconds makespan, Explanation& result);

}  // namespace ff
