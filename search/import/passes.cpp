#include "search/import/passes.h"

#include <cmath>

#include "search/import/analysis.h"

namespace ff::importing {
namespace {

Node node(const std::string& op, const Vector<std::string>& inputs, std::map<std::string, Attribute> attributes = {}) {
  return {"", op, inputs, {}, std::move(attributes)};
}

// A new constant, and its name.
std::string add_constant(Model& model, const Constant& constant) {
  const std::string name = "computed " + std::to_string(model.constants.size());
  model.constants[name] = constant;
  return name;
}

// A constant number that is not trained.
const Constant* fixed_scalar(const Model& model, const std::string& value) {
  const Constant* constant = model.constant(value);
  return constant && constant->is_scalar() && constant->floats && constant->is_fixed() ? constant : nullptr;
}

size_t rank_of(const Model& model, const std::string& value) {
  const Constant* constant = model.constant(value);
  const auto it = model.shapes.find(value);
  return constant ? constant->shape.size() : it == model.shapes.end() ? 0 : it->second.size();
}

// Does the mean go over the last axis alone?
bool is_over_last(const Model& model, const Match& match, const std::string& name) {
  const Node& mean = *match.nodes.at(name);
  const size_t rank = rank_of(model, mean.inputs[0]);
  const Vector<int64_t> axes = model.integers_or_input(mean, "axes", 1, {});
  return rank > 0 && axes.size() == 1 && model.axis(mean, axes[0], rank) == static_cast<int>(rank) - 1 &&
         model.integer(mean, "keepdims", 1) != 0;
}

// Has a constant a number for each element of the last axis of x, and no other axes?
bool is_along_last(const Model& model, const Match& match, const std::string& constant) {
  const auto x = model.shapes.find(match.values.at("x"));
  const Shape& shape = model.constant(match.values.at(constant))->shape;
  return x != model.shapes.end() && !shape.empty() && shape.size() <= x->second.size() &&
         shape.back() == x->second.back() && volume(shape) == shape.back();
}

std::optional<Node> quotient(Model& model, const Match& match) {
  const Constant* divisor = fixed_scalar(model, match.values.at("c"));
  if (!divisor || divisor->at(0) == 0) return std::nullopt;
  Constant factor = Constant::of_floats(divisor->shape, {static_cast<float>(1 / divisor->at(0))});
  return node("Mul", {match.values.at("x"), add_constant(model, factor)});
}

std::optional<Node> difference(Model& model, const Match& match) {
  const Constant* constant = fixed_scalar(model, match.values.at("c"));
  if (!constant) return std::nullopt;
  Constant summand = Constant::of_floats(constant->shape, {static_cast<float>(-constant->at(0))});
  return node("Add", {match.values.at("x"), add_constant(model, summand)});
}

std::optional<Node> square(Model&, const Match& match) { return node("Square", {match.values.at("x")}); }
std::optional<Node> square_root(Model&, const Match& match) { return node("Sqrt", {match.values.at("x")}); }
std::optional<Node> inverse_root(Model&, const Match& match) { return node("InverseSqrt", {match.values.at("v")}); }

std::optional<Node> layer_normalization(Model& model, const Match& match) {
  const Constant* epsilon = fixed_scalar(model, match.values.at("e"));
  for (const char* mean : {"m1", "m2", "m3"})
    if (match.nodes.count(mean) && !is_over_last(model, match, mean)) return std::nullopt;
  if (!epsilon || !is_along_last(model, match, "w") || !is_along_last(model, match, "b")) return std::nullopt;
  const auto& v = match.values;
  return node("LayerNormalization", {v.at("x"), v.at("w"), v.at("b")}, {{"epsilon", epsilon->number()}});
}

std::optional<Node> rms_normalization(Model& model, const Match& match) {
  const Constant* epsilon = fixed_scalar(model, match.values.at("e"));
  if (!epsilon || !is_over_last(model, match, "m1") || !is_along_last(model, match, "w")) return std::nullopt;
  return node("RMSNormalization", {match.values.at("x"), match.values.at("w")}, {{"epsilon", epsilon->number()}});
}

std::optional<Node> gelu(Model&, const Match& match) { return node("Gelu", {match.values.at("x")}); }
std::optional<Node> gelu_by_tanh(Model&, const Match& match) {
  return node("Gelu", {match.values.at("x")}, {{"approximate", std::string("tanh")}});
}
std::optional<Node> silu(Model&, const Match& match) { return node("Silu", {match.values.at("x")}); }

std::optional<Node> log_sigmoid(Model&, const Match& match) { return node("LogSigmoid", {match.values.at("x")}); }
std::optional<Node> log_of_complement(Model&, const Match& match) {
  return node("LogSigmoid", {match.values.at("x")}, {{"complement", int64_t{1}}});
}

std::optional<Node> mish(Model&, const Match& match) { return node("Mish", {match.values.at("x")}); }

std::optional<Node> hard_swish(Model& model, const Match& match) {
  if (const auto it = match.nodes.find("h"); it != match.nodes.end()) {
    const double slope = model.number(*it->second, "alpha", 0.2), offset = model.number(*it->second, "beta", 0.5);
    if (std::abs(slope - 1.0 / 6) > 1e-5 || offset != 0.5) return std::nullopt;
  }
  return node("HardSwish", {match.values.at("x")});
}

// Zeros around an image belong to the convolution or the average after them.
std::optional<Node> padding(Model& model, const Match& match) {
  const Node &pad = *match.nodes.at("p"), &root = *match.root;
  const auto padded = model.shapes.find(pad.inputs[0]);
  const size_t rank = padded == model.shapes.end() ? 0 : padded->second.size(), spatial = rank > 2 ? rank - 2 : 0;
  if (rank < 3) return std::nullopt;
  const Padding both = pads_of(model, pad, padded->second);
  Vector<int64_t> zeros = both.before;
  zeros.insert(zeros.end(), both.behind.begin(), both.behind.end());
  const bool average = root.op == "AveragePool";
  if (pad.has_input(2) && !fixed_scalar(model, pad.inputs[2])) return std::nullopt;
  if (zeros[0] != 0 || zeros[1] != 0 || zeros[rank] != 0 || zeros[rank + 1] != 0 ||
      model.text(pad, "mode", "constant") != "constant" || model.number_or_input(pad, "value", 2, 0) != 0 ||
      model.text(root, "auto_pad", "NOTSET") != "NOTSET" || (average && (model.integer(root, "ceil_mode", 0) != 0)))
    return std::nullopt;
  Vector<int64_t> pads = model.integers(root, "pads", Vector<int64_t>(2 * spatial, 0));
  if (pads.size() != 2 * spatial) return std::nullopt;
  const bool own = std::any_of(pads.begin(), pads.end(), [](int64_t size) { return size != 0; });
  if (average && own && model.integer(root, "count_include_pad", 0) == 0) return std::nullopt;
  for (size_t i = 0; i < spatial; ++i)
    for (const size_t side : {size_t{0}, size_t{1}}) {
      const int64_t zero = zeros[side * rank + 2 + i];
      if (zero < 0) return std::nullopt;
      pads[side * spatial + i] += zero;
    }
  Node result = root;
  result.inputs[0] = match.values.at("x");
  result.attributes["pads"] = pads;
  if (average) result.attributes["count_include_pad"] = int64_t{1};
  return result;
}

std::optional<Node> linear_of_product(Model& model, const Match& match) {
  const Constant &weight = *model.constant(match.values.at("w")), &bias = *model.constant(match.values.at("b"));
  if (weight.shape.size() != 2 || bias.shape != Shape{weight.shape[1]} || model.constant(match.values.at("x")) ||
      !weight.is_parameter() || !bias.is_parameter())
    return std::nullopt;
  return node("Linear", {match.values.at("x"), match.values.at("w"), match.values.at("b")});
}

const char* const erf = "Add(Erf(Mul(x, #0.70710678)), #1)";

// The ways in which x, the number 1/2 and a third factor are multiplied.
Vector<std::string> half_of_x_times(const std::string& third) {
  return {"Mul(Mul(x, " + third + "), #0.5)", "Mul(x, Mul(" + third + ", #0.5))", "Mul(Mul(x, #0.5), " + third + ")"};
}

Vector<std::string> gelu_tanh_patterns() {
  Vector<std::string> all;
  for (const char* cube : {"Pow(x, #3)", "Mul(x, Square(x))"})
    for (const std::string& pattern :
         half_of_x_times("Add(Tanh(Mul(Add(x, Mul(" + std::string(cube) + ", #0.044715)), #0.79788456)), #1)"))
      all.push_back(pattern);
  return all;
}

}  // namespace

const Vector<Pass>& passes() {
  static const std::string variance = "Add(m2:ReduceMean(Square(Sub(x, m3:ReduceMean(x)))), %e)";
  static const std::string squares = "Add(m1:ReduceMean(Square(x)), %e)";
  static const Vector<Pass> list = {
      {"quotient by a number", {"Div(x, %c)"}, quotient},
      {"difference with a number", {"Sub(x, %c)"}, difference},
      {"square", {"Pow(x, #2)", "Mul(x, x)"}, square},
      {"square root", {"Pow(x, #0.5)"}, square_root},
      {"inverse root", {"Reciprocal(Sqrt(v))", "Div(#1, Sqrt(v))", "Pow(v, #-0.5)"}, inverse_root},
      {"layer normalization",
       {"Add(Mul(Div(Sub(x, m1:ReduceMean(x)), Sqrt(" + variance + ")), %w), %b)",
        "Add(Mul(Mul(Sub(x, m1:ReduceMean(x)), InverseSqrt(" + variance + ")), %w), %b)"},
       layer_normalization},
      {"RMS normalization",
       {"Mul(Mul(x, InverseSqrt(" + squares + ")), %w)", "Mul(Div(x, Sqrt(" + squares + ")), %w)"},
       rms_normalization},
      {"gelu", half_of_x_times(erf), gelu},
      {"gelu by tanh", gelu_tanh_patterns(), gelu_by_tanh},
      {"silu", {"Mul(x, Sigmoid(x))"}, silu},
      {"logarithm of a sigmoid", {"Log(Sigmoid(x))"}, log_sigmoid},
      {"logarithm of 1 - sigmoid", {"Log(Sub(#1, Sigmoid(x)))", "Log(Add(Neg(Sigmoid(x)), #1))"}, log_of_complement},
      {"mish", {"Mul(x, Tanh(Softplus(x)))"}, mish},
      {"hard swish",
       {"Mul(x, h:HardSigmoid(x))", "Mul(Mul(x, Clip(Add(x, #3), #0, #6)), #0.16666667)",
        "Mul(x, Mul(Clip(Add(x, #3), #0, #6), #0.16666667))"},
       hard_swish},
      {"padding", {"AveragePool(p:Pad(x))", "Conv(p:Pad(x))"}, padding},
      {"sum after a product", {"Add(MatMul(x, %w), %b)"}, linear_of_product},
  };
  return list;
}

void run_passes(Model& model) {
  for (const Pass& pass : passes()) {
    Vector<Pattern> patterns;
    for (const std::string& text : pass.patterns) patterns.emplace_back(text);
    const auto producers = model.producers();
    Vector<std::pair<int, Node>> rewritten;  // set when all have been matched, as matches point at nodes
    for (const int n : model.nodes.indices())
      for (const Pattern& pattern : patterns) {
        const auto match = pattern.match(model, producers, model.nodes[n]);
        if (!match) continue;
        auto result = pass.rewrite(model, *match);
        if (!result) continue;
        result->name = model.nodes[n].name;
        result->outputs = {model.nodes[n].outputs[0]};
        rewritten.emplace_back(n, std::move(*result));
        break;
      }
    for (auto& [n, result] : rewritten) model.nodes[n] = std::move(result);
    remove_dead_nodes(model);
  }
}

}  // namespace ff::importing
