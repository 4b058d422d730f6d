// Shapes of what ONNX nodes write, by the rules of its specification.
#include <catch2/catch.hpp>

#include "common/errors.h"
#include "search/import/analysis.h"
#include "tests/support/message_of.h"

using namespace ff;
using namespace ff::importing;

namespace {

Constant constant_of(const Vector<int64_t>& values) { return Constant::of_integers({values.count()}, values); }

// Shapes of the node's inputs by name; the others are constants.
struct Values {
  std::map<std::string, Shape> shapes;
  std::map<std::string, Constant> constants{};
};

Vector<Shape> inferred(const std::string& op, const Vector<std::string>& inputs, const Values& values,
                       std::map<std::string, Attribute> attributes = {}, const Vector<std::string>& outputs = {"y"}) {
  Model model;
  model.file = "m.onnx";
  model.opset = 13;
  model.shapes = values.shapes;
  model.constants = values.constants;
  const std::optional<Vector<Shape>> shapes = infer_shapes(model, {"n", op, inputs, outputs, std::move(attributes)});
  return shapes ? *shapes : Vector<Shape>();
}

// Of one input "x".
Shape shape(const std::string& op, const Shape& x, std::map<std::string, Attribute> attributes = {},
            const std::map<std::string, Constant>& constants = {}) {
  Vector<std::string> inputs{"x"};
  for (const auto& [name, value] : constants) inputs.push_back(name);
  return inferred(op, inputs, {{{"x", x}}, constants}, std::move(attributes)).at(0);
}

// Of "x" and "w".
Shape shape_with(const std::string& op, const Shape& x, const Shape& w,
                 std::map<std::string, Attribute> attributes = {}) {
  return inferred(op, {"x", "w"}, {{{"x", x}, {"w", w}}}, std::move(attributes)).at(0);
}

using Integers = Vector<int64_t>;

}  // namespace

// (size + padding - dilation * (kernel - 1) - 1) / stride + 1
TEST_CASE("shapes of convolutions and pools") {
  CHECK(shape_with("Conv", {2, 3, 32, 32}, {8, 3, 3, 3}) == Shape{2, 8, 30, 30});
  CHECK(shape_with("Conv", {2, 3, 32, 32}, {8, 3, 3, 3},
                   {{"pads", Integers{1, 1, 1, 1}}, {"strides", Integers{2, 2}}}) == Shape{2, 8, 16, 16});
  CHECK(shape_with("Conv", {2, 3, 10}, {8, 3, 3}, {{"dilations", Integers{2}}}) == Shape{2, 8, 6});
  CHECK(shape_with("Conv", {2, 3, 7, 7}, {8, 3, 3, 3}, {{"auto_pad", std::string("SAME_UPPER")}}) == Shape{2, 8, 7, 7});
  CHECK(shape("MaxPool", {2, 3, 5, 5}, {{"kernel_shape", Integers{2, 2}}, {"strides", Integers{2, 2}}}) ==
        Shape{2, 3, 2, 2});
  // The last window begins inside and hangs over the end.
  CHECK(shape("MaxPool", {2, 3, 5, 5},
              {{"kernel_shape", Integers{2, 2}}, {"strides", Integers{2, 2}}, {"ceil_mode", int64_t{1}}}) ==
        Shape{2, 3, 3, 3});
  CHECK(shape("GlobalAveragePool", {2, 3, 5, 7}) == Shape{2, 3, 1, 1});
  // (4 - 1) * 2 + 1 * (3 - 1) + 1 + 1 - 2 = 8
  CHECK(shape_with("ConvTranspose", {2, 3, 4}, {3, 5, 3},
                   {{"strides", Integers{2}}, {"pads", Integers{1, 1}}, {"output_padding", Integers{1}}}) ==
        Shape{2, 5, 8});
}

TEST_CASE("shapes of products") {
  CHECK(shape_with("Gemm", {4, 6}, {6, 5}) == Shape{4, 5});
  CHECK(shape_with("Gemm", {6, 4}, {5, 6}, {{"transA", int64_t{1}}, {"transB", int64_t{1}}}) == Shape{4, 5});
  CHECK(shape_with("MatMul", {2, 1, 4, 6}, {3, 6, 5}) == Shape{2, 3, 4, 5});
  CHECK(shape_with("MatMul", {4, 6}, {6}) == Shape{4});
  CHECK(shape_with("MatMul", {6}, {2, 6, 5}) == Shape{2, 5});
  CHECK(shape_with("Einsum", {2, 3, 4}, {4, 5}, {{"equation", std::string("bld,dh->blh")}}) == Shape{2, 3, 5});
}

TEST_CASE("shapes of what moves values") {
  CHECK(shape("Transpose", {2, 3, 4}) == Shape{4, 3, 2});
  CHECK(shape("Transpose", {2, 3, 4}, {{"perm", Integers{1, 0, 2}}}) == Shape{3, 2, 4});
  CHECK(shape_with("Concat", {2, 3}, {2, 5}, {{"axis", int64_t{1}}}) == Shape{2, 8});
  CHECK(shape_with("Gather", {7, 5}, {2, 3}) == Shape{2, 3, 5});
  CHECK(shape("Flatten", {2, 3, 4}) == Shape{2, 12});
  CHECK(shape("Flatten", {2, 3, 4}, {{"axis", int64_t{3}}}) == Shape{24, 1});
  CHECK(shape("Reshape", {2, 3, 4}, {}, {{"s", constant_of({0, -1})}}) == Shape{2, 12});
  CHECK(shape("Squeeze", {2, 1, 4, 1}) == Shape{2, 4});
  CHECK(shape("Squeeze", {2, 1, 4, 1}, {}, {{"a", constant_of({-1})}}) == Shape{2, 1, 4});
  CHECK(shape("Unsqueeze", {2, 4}, {}, {{"a", constant_of({0, 3})}}) == Shape{1, 2, 4, 1});
  CHECK(shape("Expand", {2, 1}, {}, {{"s", constant_of({3, 1, 5})}}) == Shape{3, 2, 5});
  CHECK(shape("Tile", {2, 3}, {}, {{"r", constant_of({1, 4})}}) == Shape{2, 12});
  CHECK(shape("Pad", {2, 3}, {}, {{"p", constant_of({0, 1, 0, 2})}}) == Shape{2, 6});
  CHECK(inferred("Split", {"x", "s"}, {{{"x", {2, 6}}}, {{"s", constant_of({1, 5})}}}, {{"axis", int64_t{1}}},
                 {"y", "z"}) == Vector<Shape>{{2, 1}, {2, 5}});
  CHECK(shape("DepthToSpace", {2, 12, 3, 4}, {{"blocksize", int64_t{2}}}) == Shape{2, 3, 6, 8});
  CHECK(shape("SpaceToDepth", {2, 3, 6, 8}, {{"blocksize", int64_t{2}}}) == Shape{2, 12, 3, 4});
}

TEST_CASE("shapes of reductions, broadcasts and recurrent layers") {
  CHECK(shape("ReduceMean", {2, 3, 4}, {{"keepdims", int64_t{0}}}, {{"a", constant_of({1})}}) == Shape{2, 4});
  CHECK(shape("ReduceMean", {2, 3, 4}, {}, {{"a", constant_of({-1})}}) == Shape{2, 3, 1});
  CHECK(shape("ReduceSum", {2, 3, 4}) == Shape{1, 1, 1});
  CHECK(shape_with("Add", {2, 1, 4}, {3, 1}) == Shape{2, 3, 4});
  // x [sequence, batch, input], w [directions, gates * hidden, input], r [directions, gates * hidden, hidden]
  CHECK(inferred("LSTM", {"x", "w", "r"}, {{{"x", {5, 2, 3}}, {"w", {2, 16, 3}}, {"r", {2, 16, 4}}}}) ==
        Vector<Shape>{{5, 2, 2, 4}, {2, 2, 4}, {2, 2, 4}});
}

TEST_CASE("what is not known has no shape") {
  CHECK(inferred("Relu", {"unknown"}, {}).empty());
  CHECK(inferred("NoSuchOperator", {"x"}, {{{"x", {2, 3}}}}).empty());
}

TEST_CASE("shapes that do not go together are refused, with the node's name") {
  const auto refusal = [](const std::string& op, const Shape& x, const Shape& w,
                          std::map<std::string, Attribute> attributes = {}) {
    return message_of<InputError>([&] { shape_with(op, x, w, attributes); });
  };
  CHECK(refusal("Gemm", {4, 6}, {5, 6}) == "m.onnx: Gemm \"n\": multiplies shapes [4, 6] and [5, 6]");
  CHECK(refusal("MatMul", {4, 6}, {5, 6}) == "m.onnx: MatMul \"n\": multiplies shapes [4, 6] and [5, 6]");
  CHECK(refusal("Concat", {2, 3}, {3, 5}, {{"axis", int64_t{1}}}) ==
        "m.onnx: Concat \"n\": joins shapes [2, 3] and [3, 5]");
  CHECK(refusal("Conv", {2, 3, 2, 2}, {8, 3, 3, 3}) ==
        "m.onnx: Conv \"n\": has a kernel of 3 on an input of shape [2, 3, 2, 2]");
  CHECK(refusal("Einsum", {2, 3}, {4, 5}, {{"equation", std::string("ab,bc->ac")}}) ==
        "m.onnx: Einsum \"n\": has different sizes for one letter");
}
