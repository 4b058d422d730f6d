// The sections of a report, each as HTML.
#pragma once

#include <string>

#include "search/report/html/analysis.h"
#include "search/report/html/svg.h"

namespace ff::html {

std::string verdict(const Analysis& analysis, const SearchReport& report);
std::string plan_section(const Analysis& analysis);
std::string path_section(const Analysis& analysis);
std::string pipeline_section(const Analysis& analysis);  // "" without micro-batches
std::string timeline_section(const Analysis& analysis);
std::string devices_section(const Analysis& analysis);
std::string memory_section(const Analysis& analysis);
std::string communication_section(const Analysis& analysis);
std::string alternatives_section(const Analysis& analysis, const Vector<Alternative>& alternatives);
std::string decisions_section(const Analysis& analysis);
std::string costs_section(const SearchReport& report);

constexpr double page_width = 1040;  // pixels
constexpr const char* computing_color = "#3b6ea5";
constexpr const char* nothing_color = "#efefef";  // idle
inline double ms(Nanoseconds time) { return static_cast<double>(time) / 1e6; }
inline double fraction(Nanoseconds part, Nanoseconds whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}
std::string link_color(int link_kind);
// The kinds of links that something moves over.
Vector<LegendEntry> link_legend(const Analysis& analysis, const std::string& prefix);
std::string percent(double fraction);

}  // namespace ff::html
