// Operators of ONNX in terms of others.
#include "search/import/lowering.h"

#include <catch2/catch.hpp>

#include "common/errors.h"
#include "tests/support/message_of.h"

using namespace ff;
using namespace ff::importing;

namespace {

Constant integers(const Vector<int64_t>& values) { return Constant::of_integers({values.count()}, values); }

// One node on "x" of this shape and on constants, lowered.
Model lowered(const Shape& x, const Node& node, const std::map<std::string, Constant>& constants = {}) {
  Model model;
  model.file = "m.onnx";
  model.opset = 13;
  ModelInput input{"x", ElementType::f32, {}};
  for (const int64_t size : x) input.dimensions.push_back({size, ""});
  model.inputs = {input};
  model.constants = constants;
  model.nodes = {node};
  model.outputs = {"y"};
  bind_inputs(model, x[0], {});
  infer_shapes_and_fold(model);
  lower(model);
  return model;
}

// "Reshape[2, 3] Concat[2, 6]": what is left, with shapes.
std::string text_of(const Model& model) {
  std::string text;
  for (const Node& node : model.nodes)
    if (node.op != "Identity")
      text += (text.empty() ? "" : " ") + node.op + to_string(model.shapes.at(node.outputs[0]));
  return text;
}

Node node(const std::string& op, const Vector<std::string>& inputs, std::map<std::string, Attribute> attributes = {}) {
  return {"n", op, inputs, {"y"}, std::move(attributes)};
}

}  // namespace

TEST_CASE("a transposed convolution whose windows do not overlap is a convolution of kernel 1") {
  const Model model = lowered({2, 3, 4, 5}, node("ConvTranspose", {"x", "w"}, {{"strides", Vector<int64_t>{2, 2}}}),
                              {{"w", Constant::of_floats({3, 6, 2, 2}, Vector<float>(72, 1.0f))}});
  CHECK(text_of(model) ==
        "Reshape[2, 3, 20, 1] Conv[2, 24, 20, 1] Reshape[2, 6, 2, 2, 4, 5] "
        "Transpose[2, 6, 4, 2, 5, 2] Reshape[2, 6, 8, 10]");
}

TEST_CASE("a transposed convolution with padding is none of kernel 1, whatever its size") {
  const Model model = lowered({2, 3, 4, 5},
                              node("ConvTranspose", {"x", "w"},
                                   {{"strides", Vector<int64_t>{3, 3}},
                                    {"pads", Vector<int64_t>{1, 1, 1, 1}},
                                    {"output_padding", Vector<int64_t>{2, 2}}}),
                              {{"w", Constant::of_floats({3, 6, 3, 3}, Vector<float>(162, 1.0f))}});
  CHECK(model.shapes.at("y") == Shape{2, 6, 12, 15});
  CHECK(text_of(model).find("Conv[2, 6, 12, 15]") != std::string::npos);
}

TEST_CASE("the kernel of a transposed convolution is turned, and its channels change places") {
  Vector<float> values;
  for (int i = 0; i < 12; ++i) values.push_back(static_cast<float>(i));
  Constant weight = Constant::of_floats({2, 2, 3}, values);  // [in, out, kernel]
  weight.parameter = "w";
  weight.origin = Origin::of(Progressions::consecutive(100, weight.elements()));
  const Model model = lowered({2, 2, 5}, node("ConvTranspose", {"x", "w"}), {{"w", weight}});
  const Node& conv = model.nodes[0];
  REQUIRE(conv.op == "Conv");
  const Constant& turned = *model.constant(conv.inputs[1]);
  CHECK(*turned.floats == Vector<float>{2, 1, 0, 8, 7, 6, 5, 4, 3, 11, 10, 9});
  CHECK(turned.origin.at(0) == 102);
  CHECK(model.integers(conv, "pads", {}) == Vector<int64_t>{2, 2});
}

TEST_CASE("nearest enlargement is copies, linear enlargement a product with a constant matrix") {
  const std::map<std::string, Constant> twice = {{"s", Constant::of_floats({3}, {1, 1, 2})}};
  CHECK(text_of(lowered({2, 3, 4},
                        node("Resize", {"x", "", "s"},
                             {{"coordinate_transformation_mode", std::string("asymmetric")},
                              {"nearest_mode", std::string("floor")}}),
                        twice)) == "Reshape[2, 12, 1, 1] Concat[2, 12, 2, 1] Reshape[2, 3, 8]");
  const Model model = lowered({2, 3, 2}, node("Resize", {"x", "", "s"}, {{"mode", std::string("linear")}}), twice);
  CHECK(text_of(model) == "FixedProduct[2, 3, 4]");
  CHECK(*model.constant(model.nodes[0].inputs[1])->floats == Vector<float>{1, 0, 0.75f, 0.25f, 0.25f, 0.75f, 0, 1});
}

TEST_CASE("every other element is a row of its own, and chosen elements are ranges") {
  const auto every_other = [](int64_t size, int64_t begin) {
    return text_of(
        lowered({2, size}, node("Slice", {"x", "b", "e", "a", "s"}),
                {{"b", integers({begin})}, {"e", integers({size})}, {"a", integers({1})}, {"s", integers({2})}}));
  };
  CHECK(every_other(6, 1) == "Reshape[2, 3, 2] Slice[2, 3, 1] Reshape[2, 3]");
  CHECK(every_other(6, 3) == "Reshape[2, 3, 2] Slice[2, 3, 1] Slice[2, 2, 1] Reshape[2, 2]");
  CHECK(every_other(7, 2) == "Slice[2, 5] Pad[2, 6] Reshape[2, 3, 2] Slice[2, 3, 1] Reshape[2, 3]");
  CHECK(text_of(lowered({2, 6}, node("Gather", {"x", "i"}, {{"axis", int64_t{1}}}), {{"i", integers({4, 5, 0, 1})}})) ==
        "Slice[2, 2] Slice[2, 2] Concat[2, 4]");
}

TEST_CASE("running sums are a product with zeros and ones") {
  const Model model = lowered({2, 3}, node("CumSum", {"x", "a"}, {{"reverse", int64_t{1}}, {"exclusive", int64_t{1}}}),
                              {{"a", integers({-1})}});
  CHECK(text_of(model) == "FixedProduct[2, 3]");
  CHECK(*model.constant(model.nodes[0].inputs[1])->floats == Vector<float>{0, 1, 1, 0, 0, 1, 0, 0, 0});
}

TEST_CASE("a convolution of volumes is one of images") {
  const Model model = lowered({2, 3, 4, 5, 6}, node("Conv", {"x", "w"}, {{"pads", Vector<int64_t>{1, 1, 1, 1, 1, 1}}}),
                              {{"w", Constant::of_floats({7, 3, 3, 3, 3}, Vector<float>(567, 1.0f))}});
  CHECK(model.shapes.at("y") == Shape{2, 7, 4, 5, 6});
  CHECK(text_of(model).find("Conv[2, 7, 28, 6]") != std::string::npos);
}

TEST_CASE("an Einsum of one value is sums and another order") {
  CHECK(text_of(lowered({2, 3, 4, 5}, node("Einsum", {"x"}, {{"equation", std::string("nchw->nwh")}}))) ==
        "ReduceMean[2, 1, 4, 5] Mul[2, 1, 4, 5] Reshape[2, 4, 5] Transpose[2, 5, 4]");
  CHECK(text_of(lowered({2, 3, 4}, node("Einsum", {"x"}, {{"equation", std::string("nab -> nba")}}))) ==
        "Transpose[2, 4, 3]");
}

TEST_CASE("an Einsum by a weight is a layer, one for each letter that all have") {
  const auto by_weight = [](const Shape& x, const std::string& equation, const Shape& shape,
                            bool weight_first = false) {
    Vector<float> values;
    for (int64_t i = 0; i < volume(shape); ++i) values.push_back(static_cast<float>(i));
    Constant weight = Constant::of_floats(shape, values);
    weight.parameter = "w";
    weight.origin = Origin::of(Progressions::consecutive(0, weight.elements()));
    const Vector<std::string> inputs = weight_first ? Vector<std::string>{"w", "x"} : Vector<std::string>{"x", "w"};
    return lowered(x, node("Einsum", inputs, {{"equation", equation}}), {{"w", weight}});
  };
  const Model heads = by_weight({2, 5, 3}, "bnd,dhk->bhnk", {3, 2, 4});
  CHECK(text_of(heads) == "MatMul[2, 5, 8] Reshape[2, 5, 2, 4] Transpose[2, 2, 5, 4]");
  CHECK(text_of(by_weight({2, 5, 3}, "dk,bnd->bnk", {3, 4}, true)) == "MatMul[2, 5, 4]");
  CHECK(text_of(by_weight({2, 2, 3}, "bec,ec->bec", {2, 3})) == "Mul[2, 2, 3]");
  const Model experts = by_weight({2, 2, 3}, "bec,ecd->bed", {2, 3, 4});
  CHECK(text_of(experts) ==
        "Slice[2, 1, 3] Reshape[2, 3] MatMul[2, 4] Reshape[2, 1, 4] "
        "Slice[2, 1, 3] Reshape[2, 3] MatMul[2, 4] Reshape[2, 1, 4] Concat[2, 2, 4]");
  Vector<int64_t> first;  // the first number of each expert's matrix
  for (const Node& each : experts.nodes)
    if (each.op == "MatMul") first.push_back(experts.constant(each.inputs[1])->origin.at(0));
  CHECK(first == Vector<int64_t>{0, 12});
}

TEST_CASE("recurrent layers that are not understood are refused") {
  const std::map<std::string, Constant> weights = {{"w", Constant::of_floats({1, 6, 3}, Vector<float>(18, 1.0f))},
                                                   {"r", Constant::of_floats({1, 6, 2}, Vector<float>(12, 1.0f))}};
  const auto refusal = [&](std::map<std::string, Attribute> attributes) {
    return message_of<InputError>([&] { lowered({2, 4, 3}, node("GRU", {"x", "w", "r"}, attributes), weights); });
  };
  CHECK(refusal({{"activations", std::string("Relu,Tanh")}}) ==
        "m.onnx: GRU \"n\": has the activations Relu,Tanh, expected Sigmoid and Tanh");
  CHECK(refusal({{"clip", 1.0}}) == "m.onnx: GRU \"n\": has an attribute clip, which is not understood");
}

TEST_CASE("elements by constant indices that are the same for all rows are a Gather") {
  const Constant indices = Constant::of_integers({2, 3, 2}, {1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3});
  const Model model = lowered({2, 3, 4}, node("GatherElements", {"x", "i"}, {{"axis", int64_t{2}}}), {{"i", indices}});
  CHECK(text_of(model) == "Slice[2, 3, 1] Slice[2, 3, 1] Concat[2, 3, 2]");
}

TEST_CASE("elements by constant indices of each row are taken row by row, those of other samples never") {
  const Constant rows = Constant::of_integers({2, 2, 1}, {0, 1, 0, 1});
  const Model model = lowered({2, 2, 3}, node("GatherElements", {"x", "i"}, {{"axis", int64_t{2}}}), {{"i", rows}});
  CHECK(text_of(model) == "Slice[2, 1, 3] Slice[2, 1, 1] Slice[2, 1, 3] Slice[2, 1, 1] Concat[2, 2, 1]");
  const Constant samples = Constant::of_integers({2, 1, 1}, {0, 1});
  CHECK(message_of<InputError>([&] {
          lowered({2, 1, 3}, node("GatherElements", {"x", "i"}, {{"axis", int64_t{2}}}), {{"i", samples}});
        }) == "m.onnx: GatherElements \"n\": takes elements by indices that differ among the samples");
}

TEST_CASE("matrices that differ along an axis are taken one by one") {
  Constant weight = Constant::of_floats({1, 2, 3, 4}, Vector<float>(24, 1.0f));
  weight.parameter = "w";
  weight.origin = Origin::of(Progressions::consecutive(0, weight.elements()));
  const Model model = lowered({5, 2, 4, 6}, node("MatMul", {"w", "x"}), {{"w", weight}});
  CHECK(text_of(model).find("MatMul[5, 6, 3]") != std::string::npos);
  CHECK(model.shapes.at("y") == Shape{5, 2, 3, 6});
}

TEST_CASE("an Einsum of three operands is two of them, and the result with the third") {
  const Model model = lowered({2, 3}, node("Einsum", {"x", "x", "x"}, {{"equation", std::string("bi,bj,bj->bij")}}));
  CHECK(text_of(model) == "Einsum[2, 3, 3] Einsum[2, 3, 3]");
}

TEST_CASE("an LSTM of as many sequences as samples stays, of others it is unrolled") {
  const std::map<std::string, Constant> weights = {{"w", Constant::of_floats({1, 8, 3}, Vector<float>(24, 1.0f))},
                                                   {"r", Constant::of_floats({1, 8, 2}, Vector<float>(16, 1.0f))},
                                                   {"p", Constant::of_floats({1, 6}, Vector<float>(6, 1.0f))}};
  const auto lstm = [&](const Shape& x, bool peepholes) {
    Vector<std::string> inputs{"x", "w", "r"};
    if (peepholes) inputs.insert(inputs.end(), {"", "", "", "", "p"});
    Model model;
    model.file = "m.onnx";
    model.opset = 13;
    ModelInput input{"x", ElementType::f32, {{x[0], ""}, {x[1], ""}, {x[2], ""}}};
    input.sample_axis = 1;
    model.inputs = {input};
    model.constants = weights;
    model.nodes = {node("LSTM", inputs)};
    model.outputs = {"y"};
    bind_inputs(model, x[1], {});
    infer_shapes_and_fold(model);
    lower(model);
    return text_of(model);
  };
  CHECK(lstm({2, 4, 3}, false) == "LSTM[2, 1, 4, 2]");
  CHECK(lstm({1, 4, 3}, true).find("LSTM") == std::string::npos);
}

TEST_CASE("what would be another function is refused") {
  CHECK(message_of<InputError>([&] {
          lowered({2, 3, 4, 4},
                  node("Resize", {"x", "", "", "s"}, {{"keep_aspect_ratio_policy", std::string("not_larger")}}),
                  {{"s", integers({2, 3, 8, 6})}});
        }) == "m.onnx: Resize \"n\": keeps the ratio of its sizes (keep_aspect_ratio_policy), which is not understood");
}
