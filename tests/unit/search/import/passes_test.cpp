// Patterns and what they become, and what is computed before anything is converted.
#include "search/import/passes.h"

#include <catch2/catch.hpp>

#include "common/errors.h"
#include "search/import/analysis.h"
#include "tests/support/message_of.h"

using namespace ff;
using namespace ff::importing;

namespace {

// Nodes as "y = Op(a, b)"; numbers are constants, [1] and {1} integers with and without an axis.
Model model_of(const Vector<std::string>& lines, const Shape& shape = {2, 4, 8}) {
  Model model;
  model.file = "m.onnx";
  model.opset = 14;
  ModelInput input{"x", ElementType::f32, {}};
  for (const int64_t size : shape) input.dimensions.push_back({size, ""});
  model.inputs = {input};
  for (const char* weight : {"w", "b"}) {
    model.constants[weight] = Constant::of_floats({shape.back()}, Vector<float>(shape.back(), 0.5f));
    model.constants[weight].parameter = weight;
  }
  for (const std::string& line : lines) {
    Node node{"", "", {}, {line.substr(0, line.find(' '))}};
    const size_t begin = line.find("= ") + 2, open = line.find('(');
    node.op = line.substr(begin, open - begin);
    std::string argument;
    for (const char c : line.substr(open + 1)) {
      if (c == ' ') continue;
      if (c != ',' && c != ')') {
        argument += c;
        continue;
      }
      if (argument[0] == '[' || argument[0] == '{')
        model.constants[argument] =
            Constant::of_integers(argument[0] == '[' ? Shape{1} : Shape{}, {std::stoll(argument.substr(1))});
      if (std::isdigit(argument[0]) || argument[0] == '-')
        model.constants[argument] = Constant::scalar(std::stof(argument));
      node.inputs.push_back(argument);
      argument.clear();
    }
    if (node.op == "Concat") node.attributes["axis"] = int64_t{0};
    if (node.op == "ReduceMean") node.attributes["axes"] = Vector<int64_t>{-1};
    model.nodes.push_back(node);
  }
  model.outputs = {"y"};
  bind_inputs(model, shape[0], {});
  sort_nodes(model);
  infer_shapes_and_fold(model);
  return model;
}

// The operators that are left, in their order.
std::string after_passes(const Vector<std::string>& lines) {
  Model model = model_of(lines);
  run_passes(model);
  std::string text;
  for (const Node& node : model.nodes) {
    text += (text.empty() ? "" : " ") + node.op;
    if (node.attributes.count("approximate")) text += "/" + model.text(node, "approximate", "");
  }
  return text;
}

}  // namespace

TEST_CASE("layer normalization in pieces is one operator, in the orders that exporters write") {
  REQUIRE(after_passes({"m = ReduceMean(x)", "d = Sub(x, m)", "s = Pow(d, 2)", "v = ReduceMean(s)", "e = Add(v, 1e-5)",
                        "r = Sqrt(e)", "n = Div(d, r)", "o = Mul(n, w)", "y = Add(o, b)"}) == "LayerNormalization");
  REQUIRE(after_passes({"m = ReduceMean(x)", "d = Sub(x, m)", "s = Mul(d, d)", "v = ReduceMean(s)", "e = Add(1e-5, v)",
                        "q = Sqrt(e)", "r = Reciprocal(q)", "n = Mul(r, d)", "o = Mul(w, n)", "y = Add(b, o)"}) ==
          "LayerNormalization");
  // The mean is another value's: only what follows the difference is a normalization, by the root mean square.
  REQUIRE(after_passes({"z = Relu(x)", "m = ReduceMean(z)", "d = Sub(x, m)", "s = Pow(d, 2)", "v = ReduceMean(s)",
                        "e = Add(v, 1e-5)", "r = Sqrt(e)", "n = Div(d, r)", "o = Mul(n, w)", "y = Add(o, b)"}) ==
          "Relu ReduceMean Sub RMSNormalization Add");
}

TEST_CASE("RMS normalization in pieces is one operator") {
  REQUIRE(after_passes({"s = Pow(x, 2)", "v = ReduceMean(s)", "e = Add(v, 1e-6)", "q = Sqrt(e)", "r = Reciprocal(q)",
                        "n = Mul(x, r)", "y = Mul(w, n)"}) == "RMSNormalization");
  REQUIRE(after_passes({"s = Mul(x, x)", "v = ReduceMean(s)", "e = Add(v, 1e-6)", "q = Sqrt(e)", "n = Div(x, q)",
                        "y = Mul(n, w)"}) == "RMSNormalization");
}

TEST_CASE("gelu in pieces is one operator, by the error function and by tanh") {
  REQUIRE(after_passes({"a = Div(x, 1.4142135)", "e = Erf(a)", "o = Add(e, 1)", "p = Mul(x, o)", "y = Mul(p, 0.5)"}) ==
          "Gelu");
  REQUIRE(after_passes({"a = Mul(x, 0.70710678)", "e = Erf(a)", "o = Add(1, e)", "h = Mul(0.5, x)", "y = Mul(h, o)"}) ==
          "Gelu");
  const Vector<std::string> tanh = {"c = Pow(x, 3)",          "d = Mul(c, 0.044715)", "s = Add(x, d)",
                                    "f = Mul(s, 0.79788456)", "t = Tanh(f)",          "o = Add(t, 1)"};
  Vector<std::string> first = tanh, second = tanh;
  first.insert(first.end(), {"h = Mul(x, 0.5)", "y = Mul(h, o)"});
  second.insert(second.end(), {"h = Mul(o, 0.5)", "y = Mul(x, h)"});
  REQUIRE(after_passes(first) == "Gelu/tanh");
  REQUIRE(after_passes(second) == "Gelu/tanh");
  REQUIRE(after_passes({"a = Div(x, 1.5)", "e = Erf(a)", "o = Add(e, 1)", "p = Mul(x, o)", "y = Mul(p, 0.5)"})
              .find("Gelu") == std::string::npos);
}

TEST_CASE("silu and hard swish in pieces are one operator each") {
  REQUIRE(after_passes({"s = Sigmoid(x)", "y = Mul(s, x)"}) == "Silu");
  REQUIRE(after_passes({"a = Add(x, 3)", "c = Clip(a, 0, 6)", "m = Mul(x, c)", "y = Div(m, 6)"}) == "HardSwish");
  REQUIRE(after_passes({"s = Sigmoid(x)", "y = Mul(s, w)"}) == "Sigmoid Mul");
}

TEST_CASE("what is used elsewhere as well stays") {
  REQUIRE(after_passes({"s = Sigmoid(x)", "z = Mul(s, x)", "y = Add(z, s)"}) == "Sigmoid Silu Add");
}

TEST_CASE("chains from a shape to a shape are numbers") {
  const Model model = model_of({"s = Shape(x)", "g = Gather(s, {0})", "u = Unsqueeze(g, [0])", "r = Slice(s, [1], [9])",
                                "c = Concat(u, [4], [-1])", "y = Reshape(x, c)"});
  REQUIRE(model.nodes.size() == 1);
  REQUIRE(model.shapes.at("y") == Shape{2, 4, 8});
  REQUIRE(*model.constant("c")->integers == Vector<int64_t>{2, 4, -1});
  REQUIRE(*model.constant("r")->integers == Vector<int64_t>{4, 8});
}

TEST_CASE("shapes that do not go together are refused with the node's name") {
  REQUIRE(message_of<InputError>([] {
            model_of({"y = MatMul(x, w)", "z = Add(x, y)"}, {2, 4, 8});
          }).find("m.onnx: Add \"z\": ") == 0);
}
