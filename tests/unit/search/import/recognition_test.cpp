// Buffers that their numbers tell from parameters.
#include "search/import/recognition.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "search/import/analysis.h"

using namespace ff;
using namespace ff::importing;

namespace {

std::string recognised(const Shape& shape, const Vector<float>& values, const Vector<Node>& nodes = {}) {
  Model model;
  model.constants["c"] = Constant::of_floats(shape, values);
  model.nodes = nodes;
  return recognised_buffer(model, "c");
}

Node node(const std::string& op, const std::string& input, const std::string& output) {
  return {op, op, {input}, {output}};
}

// [rows, 2 * pairs]: sines, then cosines.
Vector<float> table(int rows, int pairs) {
  Vector<float> values;
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < 2 * pairs; ++column) {
      const double angle = row * std::pow(1e4, -static_cast<double>(column % pairs) / pairs);
      values.push_back(static_cast<float>(column < pairs ? std::sin(angle) : std::cos(angle)));
    }
  return values;
}

}  // namespace

TEST_CASE("masks hold zeros and very negative numbers") {
  const std::string mask = "masks, of 0 and very negative numbers";
  REQUIRE(recognised({2, 2}, {0, -INFINITY, 0, 0}) == mask);
  REQUIRE(recognised({2, 2}, {0, -1e4f, 0, 0}) == mask);
  REQUIRE(recognised({2, 2}, {0, 0, 0, 0}) == "");      // class tokens begin like that
  REQUIRE(recognised({2, 2}, {1, -1e9f, 0, 0}) == "");  // another number
  REQUIRE(recognised({2, 2}, {0, -100, 0, 0}) == "");   // softmax does not make it 0
  REQUIRE(recognised({2}, {std::nanf(""), -1e9f}) == "");
}

TEST_CASE("tables of sines are recognised on any axes, learned tables are not") {
  const std::string sines = "tables of sines and cosines";
  REQUIRE(recognised({1, 40, 8}, table(40, 4)) == sines);
  REQUIRE(recognised({1, 1, 2000, 64}, table(2000, 32)) == sines);
  REQUIRE(recognised({40, 1, 8}, table(40, 4)) == sines);
  REQUIRE(recognised({3, 8}, table(3, 4)) == "");  // too few rows to tell
  Vector<float> changed = table(40, 4);
  changed[100] += 0.1f;
  REQUIRE(recognised({40, 8}, changed) == "");
  REQUIRE(recognised({40, 8}, Vector<float>(320, 0)) == "");
  REQUIRE(recognised({40, 8}, Vector<float>(320, 1)) == "");
}

TEST_CASE("frequencies are those that only sines and cosines read") {
  const Vector<float> frequencies{1, 0.1f, 0.01f};
  const Vector<Node> angles{node("Mul", "c", "a"), node("Cos", "a", "b"), node("Add", "b", "y")};
  REQUIRE(recognised({3}, frequencies, angles) == "frequencies of sines and cosines");
  REQUIRE(recognised({3}, {1, 0.1f, 0.02f}, angles) == "");
  REQUIRE(recognised({3}, frequencies, {node("Mul", "c", "y")}) == "");
  REQUIRE(recognised({3}, frequencies, {node("Sin", "c", "a"), node("Add", "c", "y")}) == "");
}
