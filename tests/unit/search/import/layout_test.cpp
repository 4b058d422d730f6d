// Ways of reading a tensor, against the elements themselves: a value is given numbered elements, and every change of
// its axes is done to the numbers too.
#include "search/import/layout.h"

#include <catch2/catch.hpp>
#include <random>

using namespace ff;
using namespace ff::importing;

namespace {

// Where each element, in the order in which ONNX sees them, lies in the tensor.
Vector<int64_t> places(const Value& value) {
  Vector<int64_t> strides(value.atoms.size(), 1);
  for (int atom = value.atoms.count() - 2; atom >= 0; --atom) strides[atom] = strides[atom + 1] * value.atoms[atom + 1];
  Vector<int64_t> all{0};
  for (const int atom : value.in_order()) {
    Vector<int64_t> finer;
    for (const int64_t place : all)
      for (int64_t i = 0; i < value.atoms[atom]; ++i) finer.push_back(place + i * strides[atom]);
    all = std::move(finer);
  }
  return all;
}

Vector<int64_t> transposed(const Vector<int64_t>& elements, const Shape& shape, const Vector<int>& order) {
  Vector<int64_t> result;
  Vector<int64_t> index(order.size(), 0), strides(shape.size(), 1);
  for (int axis = shape.count() - 2; axis >= 0; --axis) strides[axis] = strides[axis + 1] * shape[axis + 1];
  for (size_t i = 0; i < elements.size(); ++i) {
    int64_t at = 0;
    for (const int axis : order.indices()) at += index[axis] * strides[order[axis]];
    result.push_back(elements[at]);
    for (int axis = order.count() - 1; axis >= 0 && ++index[axis] == shape[order[axis]]; --axis) index[axis] = 0;
  }
  return result;
}

}  // namespace

TEST_CASE("a value that is transposed and reshaped is read as the elements would be moved") {
  std::mt19937 random(1);
  const auto between = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  int reshaped = 0;
  for (int round = 0; round < 300; ++round) {
    Shape shape{2};
    for (int axis = between(1, 3); axis > 0; --axis) shape.push_back(Shape{1, 2, 3, 4, 6}[between(0, 4)]);
    Value value = Value::plain("x", shape);
    Vector<int64_t> elements;
    for (int64_t i = 0; i < volume(shape); ++i) elements.push_back(i);
    for (int step = 0; step < 4; ++step) {
      if (between(0, 1) == 0) {
        Vector<int> order;
        for (const int axis : value.axes.indices()) order.push_back(axis);
        std::shuffle(order.begin(), order.end(), random);
        elements = transposed(elements, value.shape(), order);
        value.transpose(order);
      } else {
        Shape target;
        int64_t rest = volume(shape);
        while (rest > 1 && target.size() < 4) {
          const int64_t factor = Shape{1, 2, 3, 4, 6}[between(0, 4)];
          if (rest % factor != 0) continue;
          target.push_back(factor);
          rest /= factor;
        }
        target.push_back(rest);
        const Value before = value;
        if (value.reshape(target)) ++reshaped;
        else REQUIRE(value.shape() == before.shape());
        if (value.shape() == before.shape()) continue;
        REQUIRE(value.shape() == target);
      }
      REQUIRE(places(value) == elements);
    }
  }
  REQUIRE(reshaped > 100);
}

TEST_CASE("the samples are not cut by a reshape") {
  Value value = Value::plain("x", {4, 6});
  REQUIRE_FALSE(value.reshape({2, 12}));
  REQUIRE(value.reshape({24}));
  REQUIRE(value.axes[0] == Axis{0, 1});
  REQUIRE(value.reshape({4, 2, 3}));
  REQUIRE(value.batch_axis() == 0);
  REQUIRE(value.atoms == Shape{4, 2, 3});
}

TEST_CASE("axes of two values get the same factors, where they have common ones") {
  Value a = Value::plain("a", {2, 12}), b = Value::plain("b", {2, 3, 4}), c = Value::plain("c", {2, 4, 3});
  REQUIRE(b.reshape({2, 12}));
  REQUIRE(c.reshape({2, 12}));
  REQUIRE(refine(a, 1, b, 1));
  REQUIRE(a.atoms == Shape{2, 3, 4});
  REQUIRE_FALSE(refine(b, 1, c, 1));
}
