// Losses that a model computes itself, as weighted means.
#include "search/import/losses.h"

#include <catch2/catch.hpp>

#include "common/errors.h"
#include "search/import/passes.h"
#include "tests/support/message_of.h"

using namespace ff;
using namespace ff::importing;

namespace {

// A model of scores "x" [4, 3], targets "t" [4, 3] and labels "y" [4] whose output is "loss".
Model model_of(const Vector<Node>& nodes, const std::map<std::string, Constant>& constants = {}) {
  Model model;
  model.file = "m.onnx";
  model.opset = 14;
  model.inputs = {{"x", ElementType::f32, {{4, ""}, {3, ""}}},
                  {"t", ElementType::f32, {{4, ""}, {3, ""}}},
                  {"y", ElementType::integer, {{4, ""}}}};
  model.constants = constants;
  model.nodes = nodes;
  model.outputs = {"loss"};
  bind_inputs(model, 4, {});
  infer_shapes_and_fold(model);
  run_passes(model);
  return model;
}

// "MeanLoss(d) * 0.5": the losses that were found, with their factors and the label that they ignore.
std::string losses_of(Model model) {
  if (!find_losses(model)) return "none";
  std::string text;
  for (const Node& node : model.nodes) {
    if (node.op != "MeanLoss" && node.op != "CrossEntropyLoss") continue;
    text += (text.empty() ? "" : ", ") + node.op + "(" + node.inputs[0] + ")";
    char weight[32];
    std::snprintf(weight, sizeof weight, " * %.6g", std::get<double>(node.attributes.at("weight")));
    text += weight;
    if (node.attributes.count("ignored_label"))
      text += " without " + std::to_string(model.integer(node, "ignored_label", 0)) + ", mean over " +
              model.text(node, "mean_over", "");
  }
  return text;
}

Node node(const std::string& op, const Vector<std::string>& inputs, const std::string& output,
          std::map<std::string, Attribute> attributes = {}) {
  return {output, op, inputs, {output}, std::move(attributes)};
}

const std::map<std::string, Attribute> to_a_number = {{"keepdims", int64_t{0}}};

}  // namespace

TEST_CASE("a mean is the loss of what it is of; a sum has its number of elements as a factor") {
  const Node d = node("Sub", {"x", "t"}, "d");
  CHECK(losses_of(model_of({d, node("ReduceMean", {"d"}, "loss", to_a_number)})) == "MeanLoss(d) * 1");
  CHECK(losses_of(model_of({d, node("ReduceSum", {"d"}, "loss", to_a_number)})) == "MeanLoss(d) * 12");
  std::map<std::string, Attribute> rows = to_a_number;
  rows["axes"] = Vector<int64_t>{1};
  CHECK(losses_of(model_of({d, node("ReduceSum", {"d"}, "r", rows), node("ReduceMean", {"r"}, "loss", to_a_number)})) ==
        "MeanLoss(d) * 3");
}

TEST_CASE("sums, differences and factors of losses") {
  const std::map<std::string, Constant> numbers = {{"half", Constant::scalar(0.5f)}, {"five", Constant::scalar(5)}};
  const Vector<Node> nodes = {node("ReduceMean", {"x"}, "a", to_a_number),
                              node("Exp", {"t"}, "e"),
                              node("ReduceMean", {"e"}, "b", to_a_number),
                              node("Mul", {"b", "half"}, "c"),
                              node("Div", {"a", "five"}, "f"),
                              node("Sub", {"c", "f"}, "loss")};
  CHECK(losses_of(model_of(nodes, numbers)) == "MeanLoss(e) * 0.5, MeanLoss(x) * -0.2");
}

TEST_CASE("a constant summand goes into the elements of a mean") {
  Model model = model_of({node("ReduceMean", {"x"}, "a", to_a_number), node("Sub", {"one", "a"}, "loss")},
                         {{"one", Constant::scalar(1)}});
  REQUIRE(find_losses(model));
  const Node &sum = model.nodes[0], &loss = model.nodes[1];
  CHECK(sum.op == "Add");
  CHECK(model.constant(sum.inputs[1])->at(0) == -1);  // -(x - 1) is 1 - x
  CHECK(std::get<double>(loss.attributes.at("weight")) == -1);
}

TEST_CASE("cross entropies, by their reductions and the label that they ignore") {
  const auto loss = [](const std::string& op, const std::string& scores, const std::string& reduction) {
    return node(op, {scores, "y"}, "loss", {{"reduction", reduction}, {"ignore_index", int64_t{-100}}});
  };
  CHECK(losses_of(model_of({loss("SoftmaxCrossEntropyLoss", "x", "mean")})) ==
        "CrossEntropyLoss(x) * 1 without -100, mean over counted");
  CHECK(losses_of(model_of({loss("SoftmaxCrossEntropyLoss", "x", "sum")})) ==
        "CrossEntropyLoss(x) * 4 without -100, mean over all");
  const Node log = node("LogSoftmax", {"x"}, "log", {{"axis", int64_t{1}}});
  CHECK(losses_of(model_of({log, loss("NegativeLogLikelihoodLoss", "log", "mean")})) ==
        "CrossEntropyLoss(x) * 1 without -100, mean over counted");
  Node rows = loss("SoftmaxCrossEntropyLoss", "x", "none");
  rows.outputs = {"rows"};
  CHECK(losses_of(model_of({rows, node("ReduceMean", {"rows"}, "loss", to_a_number)})) ==
        "CrossEntropyLoss(x) * 1 without -100, mean over all");
}

TEST_CASE("logarithms of sigmoids do not overflow") {
  const Vector<Node> nodes = {node("Sigmoid", {"x"}, "p"), node("Log", {"p"}, "a"), node("Sub", {"one", "p"}, "q"),
                              node("Log", {"q"}, "b"), node("Add", {"a", "b"}, "loss")};
  Model model = model_of(nodes, {{"one", Constant::scalar(1)}});
  lower(model);
  std::string text;
  for (const Node& each : model.nodes)
    if (each.op != "Identity") text += each.op + " ";
  CHECK(text == "Neg Softplus Neg Softplus Neg Add ");
}

TEST_CASE("an output with axes is no loss, and what a loss cannot have is said") {
  CHECK(losses_of(model_of({node("Exp", {"x"}, "loss")})) == "none");
  CHECK(message_of<InputError>([] {
          losses_of(model_of({node("SoftmaxCrossEntropyLoss", {"x", "y", "w"}, "loss")},
                             {{"w", Constant::of_floats({3}, {1, 2, 3})}}));
        }) == "m.onnx: SoftmaxCrossEntropyLoss \"loss\": has weights of classes, which are not understood");
  CHECK(message_of<InputError>([] {
          losses_of(model_of({node("SoftmaxCrossEntropyLoss", {"x", "y"}, "a"), node("Add", {"a", "one"}, "loss")},
                             {{"one", Constant::scalar(1)}}));
        }) == "m.onnx: the loss \"loss\" has a constant summand, which is understood of means alone");
  // Twice the same sum, 40 times: 2^40 terms.
  Vector<Node> nodes = {node("ReduceMean", {"x"}, "s0", to_a_number)};
  for (int i = 0; i < 40; ++i) {
    const std::string before = "s" + std::to_string(i);
    nodes.push_back(node("Add", {before, before}, i == 39 ? "loss" : "s" + std::to_string(i + 1)));
  }
  CHECK(message_of<InputError>([&] { losses_of(model_of(nodes)); }) ==
        "m.onnx: the loss \"loss\" is a sum of too many terms");
}

TEST_CASE("one element of each row by its index is a sum with zeros and a one") {
  Model model = model_of(
      {node("Unsqueeze", {"y", "axes"}, "i"), node("GatherElements", {"x", "i"}, "loss", {{"axis", int64_t{1}}})},
      {{"axes", Constant::of_integers({1}, {1})}});
  lower(model);
  std::string text;
  for (const Node& each : model.nodes)
    if (each.op != "Identity") text += each.op + to_string(model.shapes.at(each.outputs[0])) + " ";
  CHECK(text == "Unsqueeze[4, 1] Reshape[4] OneHot[4, 3] Mul[4, 3] ReduceMean[4, 1] Mul[4, 1] ");
}
