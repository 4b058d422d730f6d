#include "search/report/html/svg.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace ff::html {
namespace {

std::string pixels(double value) {
  std::string text = fixed(value, 1);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

// 1, 2 or 5 times a power of ten: at most so many steps up to `most`.
double round_step(double most, int steps) {
  const double power = std::pow(10, std::floor(std::log10(most / steps)));
  for (const double factor : {1., 2., 5.})
    if (most / (factor * power) <= steps) return factor * power;
  return 10 * power;
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string result;
  for (const char letter : text) switch (letter) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      case '\'': result += "&#39;"; break;
      default:  // control characters are no text of HTML
        result += static_cast<unsigned char>(letter) < 0x20 ? ' ' : letter;
    }
  return result;
}

std::string clipped(const std::string& text, int letters) {
  if (static_cast<int>(text.size()) <= letters) return text;
  size_t end = static_cast<size_t>(letters) - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not within a letter of UTF-8
  return text.substr(0, end) + "...";
}

std::string fixed(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

void Svg::rectangle(double x, double y, double width, double height, const std::string& color,
                    const std::string& tooltip) {
  body_ += "<rect x=\"" + pixels(x) + "\" y=\"" + pixels(y) + "\" width=\"" + fixed(std::max(width, 0.2), 1) +
           "\" height=\"" + pixels(height) + "\" fill=\"" + color + "\"" +
           (tooltip.empty() ? "/>" : "><title>" + escaped(tooltip) + "</title></rect>");
}

void Svg::text(double x, double y, const std::string& text, Anchor anchor, const std::string& style) {
  body_ += "<text x=\"" + pixels(x) + "\" y=\"" + pixels(y) + "\"";
  if (anchor != Anchor::start)
    body_ += std::string(" text-anchor=\"") + (anchor == Anchor::end ? "end" : "middle") + "\"";
  if (!style.empty()) body_ += " style=\"" + style + "\"";
  body_ += ">" + escaped(text) + "</text>";
}

void Svg::line(double x1, double y1, double x2, double y2, const std::string& color, bool dashed) {
  body_ += "<line x1=\"" + pixels(x1) + "\" y1=\"" + pixels(y1) + "\" x2=\"" + pixels(x2) + "\" y2=\"" + pixels(y2) +
           "\" stroke=\"" + color + "\"" + (dashed ? " stroke-dasharray=\"4 3\"/>" : "/>");
}

std::string Svg::str() const {
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + pixels(width_) + "\" height=\"" + pixels(height_) +
         "\" viewBox=\"0 0 " + pixels(width_) + " " + pixels(height_) + "\">" + body_ + "</svg>\n";
}

void Axis::draw(Svg& svg, double top, double bottom) const {
  const double step = std::max(least_step, round_step(most, 8));
  const int decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
  svg.line(left, bottom, left + width, bottom, "#888");
  for (int tick = 0; tick * step <= most * (1 + 1e-9); ++tick) {
    svg.line(at(tick * step), top, at(tick * step), bottom + 4, tick == 0 ? "#888" : "#ddd");
    svg.text(at(tick * step), bottom + 16, fixed(tick * step, decimals), Svg::Anchor::middle);
  }
  svg.text(left + width / 2, bottom + 31, label, Svg::Anchor::middle, "fill:#555");
}

std::string legend(const Vector<LegendEntry>& entries) {
  std::string text = "<p class=\"legend\">";
  for (const LegendEntry& entry : entries)
    text += "<span><i style=\"background:" + entry.color + "\"></i>" + escaped(entry.name) + "</span> ";
  return text + "</p>\n";
}

std::string table(const Vector<Vector<std::string>>& rows, const Vector<int>& right_aligned) {
  std::string text = "<table>\n";
  for (const int r : rows.indices()) {
    text += "<tr>";
    for (const int c : rows[r].indices()) {
      const std::string tag = r == 0 ? "th" : "td";
      const bool right = std::find(right_aligned.begin(), right_aligned.end(), c) != right_aligned.end();
      text += "<" + tag + (right ? " class=\"number\">" : ">") + rows[r][c] + "</" + tag + ">";
    }
    text += "</tr>\n";
  }
  return text + "</table>\n";
}

}  // namespace ff::html
