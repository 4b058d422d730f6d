// What an import says besides its result, and what it refuses because it would otherwise be ignored: attributes, and
// activations of recurrent layers.
#include "search/import/notes.h"

#include <catch2/catch.hpp>

#include "common/errors.h"
#include "search/import/import.h"
#include "tests/support/message_of.h"

using namespace ff;
using namespace ff::importing;

namespace {

using Attributes = std::map<std::string, Attribute>;

Constant weight(const Shape& shape, float value = 1) {
  return Constant::of_floats(shape, Vector<float>(static_cast<size_t>(volume(shape)), value));
}

Node node_of(const std::string& op, const Vector<std::string>& inputs, const Vector<std::string>& outputs,
             Attributes attributes = {}) {
  return {op, op, inputs, outputs, std::move(attributes)};
}

// Nodes from "x" of this shape, whose first axis is the batch's, to "y".
Model model_of(int64_t opset, const Shape& x, const Vector<Node>& nodes, std::map<std::string, Constant> constants) {
  Model model;
  model.file = "m.onnx";
  model.opset = opset;
  ModelInput input{"x", ElementType::f32, {}};
  for (const int64_t size : x) input.dimensions.push_back({size, ""});
  model.inputs = {input};
  for (auto& [name, constant] : constants)
    if (constant.floats && !constant.shape.empty()) constant.parameter = name;
  model.constants = std::move(constants);
  model.nodes = nodes;
  model.outputs = {"y"};
  return model;
}

ImportedModel imported_from(const Model& model, bool cross_entropy = false) {
  ImportOptions options;
  options.batch = 2;
  options.cross_entropy = cross_entropy;
  return import_model(model, options);
}

using Notes = Vector<std::string>;

const std::map<std::string, Constant> statistics = {
    {"s", weight({3})}, {"b", weight({3})}, {"m", weight({3}, 0)}, {"v", weight({3})}};

Node normalization(const std::string& from, const std::string& to, Attributes attributes, int outputs = 1) {
  Vector<std::string> names{to};
  for (int i = 1; i < outputs; ++i) names.push_back(to + std::to_string(i));
  return node_of("BatchNormalization", {from, "s", "b", "m", "v"}, names, std::move(attributes));
}

}  // namespace

TEST_CASE("batch normalizations that use their running statistics are noted, in every operator set") {
  const auto notes = [](int64_t opset, const Vector<Node>& nodes) {
    return imported_from(model_of(opset, {2, 3, 4, 4}, nodes, statistics)).notes;
  };
  const auto said = [](const std::string& count) {
    return Notes{count +
                 " batch normalizations of the file use their running statistics; here they are trained with the "
                 "statistics of the batch"};
  };
  CHECK(notes(15, {normalization("x", "y", {})}) == said("1 of 1"));
  CHECK(notes(15, {normalization("x", "y", {{"training_mode", int64_t{0}}})}) == said("1 of 1"));
  CHECK(notes(15, {normalization("x", "y", {{"training_mode", int64_t{1}}}, 3)}) == Notes{});
  CHECK(notes(15, {normalization("x", "h", {{"training_mode", int64_t{1}}}, 3), normalization("h", "y", {})}) ==
        said("1 of 2"));
  // Until operator set 13, more outputs mean training; until 6, an attribute.
  CHECK(notes(9, {normalization("x", "y", {})}) == said("1 of 1"));
  CHECK(notes(9, {normalization("x", "y", {}, 5)}) == Notes{});
  CHECK(notes(6, {normalization("x", "y", {{"is_test", int64_t{1}}})}) == said("1 of 1"));
  CHECK(notes(6, {normalization("x", "y", {{"is_test", int64_t{0}}})}) == Notes{});
}

TEST_CASE("batch normalizations in the branch that is taken are noted, in the other one they are not") {
  for (const int64_t condition : {1, 0}) {
    Node choice = node_of("If", {"c", "x", "s", "b", "m", "v"}, {"y"});
    Subgraph taken{{}, {"n"}, {normalization("x", "n", {})}, {{"x", 1}, {"s", 2}, {"b", 3}, {"m", 4}, {"v", 5}}};
    Subgraph other{{}, {"r"}, {node_of("Relu", {"x"}, {"r"})}, {{"x", 1}}};
    choice.graphs["then_branch"] = std::make_shared<const Subgraph>(taken);
    choice.graphs["else_branch"] = std::make_shared<const Subgraph>(other);
    auto constants = statistics;
    constants["c"] = Constant::of_integers({}, {condition}, ElementType::boolean);
    CHECK(imported_from(model_of(15, {2, 3, 4, 4}, {choice}, constants)).notes.size() == (condition ? 1 : 0));
  }
}

TEST_CASE("dropouts that are left out are noted") {
  const auto result = [](int64_t opset, Attributes attributes, Vector<std::string> inputs = {"x"}) {
    return imported_from(model_of(
        opset, {2, 3}, {node_of("Dropout", inputs, {"h"}, std::move(attributes)), node_of("Relu", {"h"}, {"y"})},
        {{"half", weight({}, 0.5f)},
         {"none", weight({}, 0)},
         {"yes", Constant::of_integers({}, {1}, ElementType::boolean)},
         {"no", Constant::of_integers({}, {0}, ElementType::boolean)}}));
  };
  const Vector<std::string> training{"x", "half", "yes"};
  CHECK(result(13, {}, training).notes == Notes{});
  CHECK(result(13, {}, training).operators == 2);
  const std::string not_training = "1 of 1 dropouts of the file are left out: they are not in training mode";
  for (const Vector<std::string>& inputs : {Vector<std::string>{"x"}, {"x", "half"}, {"x", "half", "no"}}) {
    CHECK(result(13, {}, inputs).notes == Notes{not_training});
    CHECK(result(13, {}, inputs).operators == 1);
  }
  CHECK(result(13, {}, {"x", "none", "no"}).notes == Notes{});
  CHECK(result(11, {{"ratio", 0.5}}).notes ==
        Notes{"1 of 1 dropouts of the file are left out: operator set 11 cannot say that they drop anything"});
  CHECK(result(6, {{"is_test", int64_t{1}}}).operators == 1);
  CHECK(result(6, {{"is_test", int64_t{0}}}).operators == 2);
}

TEST_CASE("a cross entropy of probabilities is noted") {
  const Model model = model_of(13, {2, 3}, {node_of("Softmax", {"x"}, {"y"}, {{"axis", int64_t{-1}}})}, {});
  CHECK(imported_from(model, true).notes ==
        Notes{"the output \"y\" is a softmax; the cross entropy takes its numbers as scores, and computes a softmax of "
              "them"});
  CHECK(imported_from(model, false).notes == Notes{});
}

TEST_CASE("attributes that are not understood are refused") {
  const auto refusal = [](const Node& each, int64_t opset = 13, std::map<std::string, Constant> constants = {}) {
    return message_of<InputError>([&] { imported_from(model_of(opset, {2, 3, 4, 4}, {each}, constants)); });
  };
  CHECK(refusal(node_of("Relu", {"x"}, {"y"}, {{"slope", 0.1}})) ==
        "m.onnx: Relu \"Relu\": has the attribute slope, which is not understood");
  CHECK(refusal(node_of("Upsample", {"x"}, {"y"}, {{"height_scale", 2.0}, {"width_scale", 2.0}}), 1) ==
        "m.onnx: Upsample \"Upsample\": has the attribute height_scale, which is not understood");
  CHECK(refusal(node_of("Add", {"x", "w"}, {"y"}, {{"broadcast", int64_t{1}}, {"axis", int64_t{1}}}), 6,
                {{"w", weight({3})}}) ==
        "m.onnx: Add \"Add\": has the attribute axis of operator sets before 7, which is not understood");
  CHECK(refusal(node_of("Add", {"x", "w"}, {"y"}, {{"broadcast", int64_t{1}}, {"axis", int64_t{2}}}), 6,
                {{"w", weight({4, 4})}})
            .find("is trained") != std::string::npos);  // as it is now
  CHECK(refusal(normalization("x", "y", {{"spatial", int64_t{0}}}), 7, statistics) ==
        "m.onnx: BatchNormalization \"BatchNormalization\": has statistics of each position (spatial = 0), which are "
        "not understood");
}

TEST_CASE("activations of recurrent layers that are not understood are refused, also where they are lowered") {
  struct Layer {
    const char* op;
    int64_t gates;
    const char* expected;
  };
  // With peepholes, an LSTM is lowered.
  for (const Layer& layer : {Layer{"RNN", 1, "expected Tanh or Relu"}, Layer{"GRU", 3, "expected Sigmoid and Tanh"},
                             Layer{"LSTM", 4, "expected Sigmoid, Tanh, Tanh"},
                             Layer{"LSTM with peepholes", 4, "expected Sigmoid, Tanh, Tanh"}}) {
    const std::string op = layer.op, expected = layer.expected;
    const int64_t gates = layer.gates;
    const bool peepholes = op.find(' ') != std::string::npos;
    const std::string name = peepholes ? "LSTM" : op;
    const auto refusal = [&](const Attributes& attributes) {
      Vector<std::string> inputs{"t", "w", "r"};
      if (peepholes) inputs.insert(inputs.end(), {"", "", "", "", "p"});
      return message_of<InputError>([&] {
        imported_from(
            model_of(13, {2, 4, 3},
                     {node_of("Transpose", {"x"}, {"t"}, {{"perm", Vector<int64_t>{1, 0, 2}}}),
                      node_of(name, inputs, {"s"}, attributes),
                      node_of("Transpose", {"s"}, {"y"}, {{"perm", Vector<int64_t>{2, 0, 1, 3}}})},
                     {{"w", weight({1, gates * 2, 3})}, {"r", weight({1, gates * 2, 2})}, {"p", weight({1, 6})}}));
      });
    };
    INFO(op);
    const std::string start = "m.onnx: " + name + " \"" + name + "\": ";
    CHECK(refusal({{"activations", std::string("Affine,Tanh,Tanh")}}) ==
          start + "has the activations Affine,Tanh,Tanh, " + expected);
    CHECK(refusal({{"activations", std::string("HardSigmoid")}}) ==
          start + "has the activations HardSigmoid, " + expected);
    CHECK(refusal({{"clip", 3.0}}).rfind(start + "has an attribute clip", 0) == 0);
    CHECK(refusal({{"layout", int64_t{1}}}).rfind(start, 0) == 0);
    CHECK(refusal({{"no_such", int64_t{1}}}) == start + "has the attribute no_such, which is not understood");
  }
}

TEST_CASE("both activations of a recurrent layer are computed, another one for one direction is refused") {
  const auto text = [](const std::string& activations, int64_t directions) {
    Attributes attributes = {{"activations", activations}};
    if (directions == 2) attributes["direction"] = std::string("bidirectional");
    return imported_from(model_of(13, {2, 4, 3},
                                  {node_of("Transpose", {"x"}, {"t"}, {{"perm", Vector<int64_t>{1, 0, 2}}}),
                                   node_of("RNN", {"t", "w", "r"}, {"s"}, attributes),
                                   node_of("Transpose", {"s"}, {"y"}, {{"perm", Vector<int64_t>{2, 0, 1, 3}}})},
                                  {{"w", weight({directions, 2, 3})}, {"r", weight({directions, 2, 2})}}))
        .graph.dump();
  };
  CHECK(text("Relu", 1).find("\"tanh\"") == std::string::npos);
  CHECK(text("Tanh", 1).find("\"relu\"") == std::string::npos);
  CHECK(text("Relu,Relu", 2).find("\"tanh\"") == std::string::npos);
  CHECK(message_of<InputError>([&] { text("Relu,Tanh", 2); }) ==
        "m.onnx: RNN \"RNN\": has the activations Relu,Tanh, expected Tanh or Relu");
}
