#include "search/import/recognition.h"

#include <cmath>

namespace ff::importing {
namespace {

// 0 where something is seen, and a number that softmax makes 0 elsewhere. Parameters do not begin like that.
bool is_mask(const Constant& constant) {
  bool hides = false;
  for (const float value : *constant.floats) {
    if (value != 0 && !(value <= -1e4f)) return false;
    hides = hides || value != 0;
  }
  return hides;
}

// A table [positions, channels], each of whose columns is a sine of the position: a sin(p w + b) fulfils
// y[p - 1] + y[p + 1] = 2 cos(w) y[p]. Of four rows on, numbers drawn by chance do not.
bool is_table_of_sines(const Constant& constant) {
  Shape shape;
  for (const int64_t size : constant.shape)
    if (size != 1) shape.push_back(size);
  if (shape.size() != 2 || shape[0] < 4) return false;
  const int64_t rows = shape[0], columns = shape[1];
  const auto at = [&](int64_t row, int64_t column) {
    return static_cast<double>((*constant.floats)[row * columns + column]);
  };
  // Tables are computed with 32 bits: angles of some thousands have an error of some ten-thousandths.
  constexpr double tolerance = 2e-3;
  double largest = 0;
  bool varies = false;
  for (int64_t column = 0; column < columns; ++column) {
    double products = 0, squares = 0;
    for (int64_t row = 0; row < rows; ++row) {
      const double value = at(row, column);
      if (!(std::abs(value) <= 1 + tolerance)) return false;
      largest = std::max(largest, std::abs(value));
      varies = varies || std::abs(value - at(0, column)) > 0.1;
      if (row == 0 || row + 1 == rows) continue;
      products += value * (at(row - 1, column) + at(row + 1, column));
      squares += value * value;
    }
    const double factor = squares > 0 ? products / squares : 0;
    for (int64_t row = 1; row + 1 < rows; ++row)
      if (std::abs(at(row - 1, column) + at(row + 1, column) - factor * at(row, column)) > tolerance) return false;
  }
  return varies && largest > 0.5;
}

// 1, r, r^2, ..: the frequencies of rotary positions.
bool is_geometric(const Constant& constant) {
  const Vector<float>& values = *constant.floats;
  if (values.empty() || values[0] != 1) return false;
  for (size_t i = 1; i < values.size(); ++i)
    if (!(values[i] > 0 && values[i] < values[i - 1]) ||
        std::abs(values[i] / values[i - 1] / (values[1] / values[0]) - 1) > 1e-3)
      return false;
  return true;
}

// Does everything that is computed from it end in sines and cosines, before it meets a value that is none of a
// constant? Products and what moves numbers may be between.
bool is_read_by_sines_alone(const Model& model, const std::string& initializer) {
  static const std::set<std::string> between = {"Mul",     "MatMul", "Einsum",    "Cast",   "Unsqueeze", "Squeeze",
                                                "Reshape", "Expand", "Transpose", "Concat", "Slice",     "Identity"};
  std::set<std::string> angles{initializer};
  bool found = false;
  for (const Node& node : model.nodes) {
    bool reads = false;
    for (const std::string& input : node.inputs) reads = reads || angles.count(input) > 0;
    if (!reads || node.op == "Shape") continue;
    found = found || node.op == "Sin" || node.op == "Cos";
    if (node.op == "Sin" || node.op == "Cos") continue;
    if (!between.count(node.op)) return false;
    angles.insert(node.outputs.begin(), node.outputs.end());
  }
  for (const std::string& output : model.outputs)
    if (angles.count(output)) return false;
  return found;
}

}  // namespace

bool is_mask(const Model& model, const std::string& initializer) { return is_mask(*model.constant(initializer)); }

std::string recognised_buffer(const Model& model, const std::string& initializer) {
  const Constant& constant = *model.constant(initializer);
  if (is_mask(constant)) return "masks, of 0 and very negative numbers";
  if (is_table_of_sines(constant)) return "tables of sines and cosines";
  if (is_geometric(constant) && is_read_by_sines_alone(model, initializer)) return "frequencies of sines and cosines";
  return "";
}

}  // namespace ff::importing
