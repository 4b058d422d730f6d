// The few marks that the charts of a report consist of, as inline SVG: what a browser draws without any script.
#pragma once

#include <string>

#include "common/vector.h"

namespace ff::html {

// For text and attribute values of HTML and SVG.
std::string escaped(const std::string& text);
// At most so many letters; what is cut ends in "...".
std::string clipped(const std::string& text, int letters);
std::string fixed(double value, int decimals);

// All in pixels; y grows downwards.
class Svg {
 public:
  Svg(double width, double height) : width_(width), height_(height) {}
  void rectangle(double x, double y, double width, double height, const std::string& color,
                 const std::string& tooltip = "");
  enum class Anchor { start, middle, end };
  void text(double x, double y, const std::string& text, Anchor anchor = Anchor::start, const std::string& style = "");
  void line(double x1, double y1, double x2, double y2, const std::string& color, bool dashed = false);
  std::string str() const;

 private:
  double width_, height_;
  std::string body_;
};

// A horizontal axis from 0 to `most` of a unit, at least a round step apart.
struct Axis {
  double left, width;  // pixels
  double most;         // in units; above 0
  std::string label;   // with the unit: "time in ms"
  double least_step = 0;
  double at(double value) const { return left + width * value / most; }
  // Lines from `top` to `bottom`, with numbers and the label below.
  void draw(Svg& svg, double top, double bottom) const;
  static constexpr double height = 38;  // below `bottom`
};

struct LegendEntry {
  std::string color, name;
};
std::string legend(const Vector<LegendEntry>& entries);

// Rows of cells; the first is the heading. Cells are HTML. Columns from `numbers_from` on are aligned to the right.
std::string table(const Vector<Vector<std::string>>& rows, const Vector<int>& right_aligned);

}  // namespace ff::html
