#include "search/import/control_flow.h"

#include <algorithm>
#include <limits>

namespace ff::importing {
namespace {

constexpr int64_t most_nodes = int64_t{1} << 17;       // of all iterations
constexpr int64_t most_iterations = int64_t{1} << 14;  // of one loop

// A number that is known.
std::optional<int64_t> known(const Model& model, const std::string& value) {
  const Constant* constant = model.constant(value);
  if (!constant || !constant->is_scalar()) return std::nullopt;
  return constant->as_integers()[0];
}

// PyTorch writes repeat_interleave along an axis of unknown size as a Loop over the slices along it: Reshape of Expand
// of Unsqueeze. The shape of this Reshape has 0 for the other axes of unknown size, "as in the input", but the input
// has one axis more: behind the repeated axis each 0 means the axis after the one that ONNX reads. The position of this
// Reshape among the nodes.
std::optional<size_t> reshape_of_repetition(const Model& model, const Subgraph& body) {
  if (model.producer != "pytorch") return std::nullopt;
  std::map<std::string, const Node*> writers;
  for (const Node& node : body.nodes)
    for (const std::string& output : node.outputs) writers[output] = &node;
  const auto writer = [&](const Node* node, size_t input, const std::string& op) -> const Node* {
    const auto it = node && node->has_input(input) ? writers.find(node->inputs[input]) : writers.end();
    return it != writers.end() && it->second->op == op ? it->second : nullptr;
  };
  for (const Node& insertion : body.nodes) {
    if (insertion.op != "SequenceInsert") continue;
    const Node* reshape = writer(&insertion, 1, "Reshape");
    const Node* unsqueeze = writer(writer(reshape, 0, "Expand"), 0, "Unsqueeze");
    const Node *axis = writer(unsqueeze, 1, "Constant"), *shape = writer(reshape, 1, "Constant");
    if (!writer(unsqueeze, 0, "SequenceAt") || !axis || !shape) continue;
    const auto value_of = [](const Node& constant) {
      const auto it = constant.attributes.find("value");
      const Constant* value = it == constant.attributes.end() ? nullptr : std::get_if<Constant>(&it->second);
      return value && value->integers ? *value->integers : Vector<int64_t>{};
    };
    const Vector<int64_t> sizes = value_of(*shape), axes = value_of(*axis);
    const int64_t repeated = std::find(sizes.begin(), sizes.end(), -1) - sizes.begin();
    if (axes.size() == 1 && repeated < sizes.count() && axes[0] == repeated + 1)
      return static_cast<size_t>(reshape - body.nodes.data());
  }
  return std::nullopt;
}

}  // namespace

bool is_of_sequences(const std::string& op) {
  static const std::set<std::string> all = {"SequenceConstruct", "SequenceEmpty",     "SequenceInsert",
                                            "SequenceErase",     "SequenceAt",        "SequenceLength",
                                            "SplitToSequence",   "ConcatFromSequence"};
  return all.count(op) > 0;
}

bool ControlFlow::expand(const Node& node) {
  if (node.op == "Loop") return expand_loop(node);
  if (node.op == "If") return expand_branch(node);
  if (node.op == "Identity" && node.has_input(0) && sequences_.count(node.inputs[0])) {
    give(node, 0, node.inputs[0]);
    return true;
  }
  return is_of_sequences(node.op) && expand_sequence(node);
}

void ControlFlow::expect_tensors(const Vector<std::string>& outputs) const {
  for (const std::string& output : outputs)
    if (sequences_.count(output)) model_.fail("the output \"" + output + "\" is a sequence, expected a tensor");
}

const Shape* ControlFlow::shape(const std::string& value) const {
  if (const Constant* constant = model_.constant(value)) return &constant->shape;
  const auto it = model_.shapes.find(value);
  return it == model_.shapes.end() ? nullptr : &it->second;
}

std::string ControlFlow::add_constant(Constant constant) {
  const std::string name = new_name();
  model_.constants[name] = std::move(constant);
  return name;
}

std::string ControlFlow::emit(const Node& node, const std::string& op, const Vector<std::string>& inputs,
                              std::map<std::string, Attribute> attributes) {
  const std::string name = new_name();
  visit_({node.name, op, inputs, {name}, std::move(attributes)});
  return name;
}

void ControlFlow::give(const Node& node, size_t output, const std::string& value) {
  if (!node.has_output(output)) return;
  if (const auto it = sequences_.find(value); it != sequences_.end()) sequences_[node.outputs[output]] = it->second;
  else visit_({node.name, "Identity", {value}, {node.outputs[output]}});
}

Vector<std::string> ControlFlow::run(const Node& node, const Subgraph& graph, Names names) {
  const std::string prefix = new_name() + ": ";
  for (const auto& [name, input] : graph.captured) names[name] = node.inputs[input];
  names[""] = "";
  const auto mended = reshape_of_repetition(model_, graph);
  for (const int i : graph.nodes.indices()) {
    if (++visited_ > most_nodes) model_.fail(node, "has too many nodes in all iterations");
    Node inner = graph.nodes[i];
    for (std::string& input : inner.inputs) input = names.at(input);
    for (std::string& output : inner.outputs)
      if (!output.empty()) output = names[output] = prefix + output;
    if (mended && static_cast<int>(*mended) == i) inner.inputs = mended_inputs(inner.inputs);
    visit_(std::move(inner));
  }
  Vector<std::string> outputs;
  for (const std::string& output : graph.outputs) outputs.push_back(names.at(output));
  return outputs;
}

// The zeros behind the repeated axis are what PyTorch means by them.
Vector<std::string> ControlFlow::mended_inputs(const Vector<std::string>& inputs) {
  const Constant* asked = model_.constant(inputs[1]);
  const Shape* before = shape(inputs[0]);
  if (!asked || !before || before->count() != asked->elements() + 1) return inputs;
  Vector<int64_t> sizes = asked->as_integers();
  const int64_t repeated = std::find(sizes.begin(), sizes.end(), -1) - sizes.begin();
  for (int64_t axis = repeated + 1; axis < sizes.count(); ++axis)
    if (sizes[axis] == 0) sizes[axis] = (*before)[axis + 1];
  return {inputs[0], add_constant(Constant::of_integers({sizes.count()}, sizes))};
}

bool ControlFlow::expand_loop(const Node& node) {
  const auto found = node.graphs.find("body");
  if (found == node.graphs.end()) model_.fail(node, "has no body");
  const Subgraph& body = *found->second;
  const int64_t carried = body.inputs.count() - 2, stacked = body.outputs.count() - 1 - carried;
  if (carried < 0 || stacked < 0 || node.inputs.count() < carried + 2 || node.outputs.count() > carried + stacked)
    model_.fail(node, "has " + std::to_string(node.inputs.size()) + " inputs, and a body of " +
                          std::to_string(body.inputs.size()) + " inputs and " + std::to_string(body.outputs.size()) +
                          " outputs");
  const auto limit = node.has_input(0) ? known(model_, node.inputs[0]) : std::numeric_limits<int64_t>::max();
  auto goes_on = node.has_input(1) ? known(model_, node.inputs[1]) : 1;
  if (!limit || !goes_on) return false;
  Vector<std::string> values(node.inputs.begin() + 2, node.inputs.begin() + 2 + carried);
  Vector<Sequence> rows(static_cast<size_t>(stacked));
  const std::string condition = add_constant(Constant::of_integers({}, {1}, ElementType::boolean));
  for (int64_t i = 0; i < *limit && *goes_on != 0; ++i) {
    if (i >= most_iterations)
      model_.fail(node, "runs more than " + std::to_string(most_iterations) + " times, which is not understood");
    Names names = {{body.inputs[0], add_constant(Constant::of_integers({}, {i}))}, {body.inputs[1], condition}};
    for (int64_t v = 0; v < carried; ++v) names[body.inputs[v + 2]] = values[v];
    const Vector<std::string> outputs = run(node, body, std::move(names));
    goes_on = known(model_, outputs[0]);
    if (!goes_on) model_.fail(node, "ends by a condition that is not known before the model runs");
    for (int64_t v = 0; v < carried; ++v) values[v] = outputs[v + 1];
    for (int64_t row = 0; row < stacked; ++row) rows[row].push_back(outputs[1 + carried + row]);
  }
  for (int64_t v = 0; v < carried; ++v) give(node, static_cast<size_t>(v), values[v]);
  for (int64_t row = 0; row < stacked; ++row) {
    if (!node.has_output(static_cast<size_t>(carried + row))) continue;
    if (rows[row].empty()) model_.fail(node, "joins the results of no iteration");
    give(node, static_cast<size_t>(carried + row), join(node, rows[row], 0, true));
  }
  return true;
}

bool ControlFlow::expand_branch(const Node& node) {
  const auto condition = node.has_input(0) ? known(model_, node.inputs[0]) : std::nullopt;
  if (!condition) return false;
  const auto found = node.graphs.find(*condition != 0 ? "then_branch" : "else_branch");
  if (found == node.graphs.end() || found->second->outputs.size() < node.outputs.size() ||
      !found->second->inputs.empty())
    model_.fail(node, "has branches that do not fit its outputs");
  const Vector<std::string> outputs = run(node, *found->second, {});
  for (size_t i = 0; i < node.outputs.size(); ++i) give(node, i, outputs[static_cast<int64_t>(i)]);
  return true;
}

// An index of a sequence of this size, or its end.
int64_t ControlFlow::position(const Node& node, size_t input, int64_t size, bool end, int64_t otherwise) const {
  if (!node.has_input(input)) return otherwise;
  const auto at = known(model_, node.inputs[input]);
  if (!at) model_.fail(node, "has a position that is not known before the model runs");
  const int64_t index = *at < 0 ? *at + size : *at;
  if (index < 0 || index > size || (index == size && !end))
    model_.fail(node, "has the position " + std::to_string(*at) + " in a sequence of " + std::to_string(size));
  return index;
}

bool ControlFlow::insert_or_erase(const Node& node, Sequence sequence) {
  const int64_t size = sequence.count();
  if (node.op == "SequenceInsert") {
    if (!node.has_input(1)) model_.fail(node, "lacks its input 1");
    sequence.insert(sequence.begin() + position(node, 2, size, true, size), node.inputs[1]);
  } else {
    if (size == 0) model_.fail(node, "takes from an empty sequence");
    sequence.erase(sequence.begin() + position(node, 1, size, false, size - 1));
  }
  sequences_[node.outputs[0]] = std::move(sequence);
  return true;
}

bool ControlFlow::expand_sequence(const Node& node) {
  if (node.op == "SequenceEmpty" || node.op == "SequenceConstruct") {
    sequences_[node.outputs[0]] = node.op == "SequenceEmpty" ? Sequence{} : node.inputs;
    return true;
  }
  if (node.op == "SplitToSequence") return split_to_sequence(node);
  const auto found = node.has_input(0) ? sequences_.find(node.inputs[0]) : sequences_.end();
  if (found == sequences_.end()) return false;
  const Sequence sequence = found->second;
  if (node.op == "SequenceInsert" || node.op == "SequenceErase") return insert_or_erase(node, sequence);
  if (node.op == "SequenceLength") {
    model_.constants[node.outputs[0]] = Constant::of_integers({}, {sequence.count()});
    return true;
  }
  if (node.op == "SequenceAt") {
    if (!node.has_input(1)) model_.fail(node, "lacks its input 1");
    give(node, 0, sequence[position(node, 1, sequence.count(), false, 0)]);
    return true;
  }
  if (sequence.empty()) model_.fail(node, "joins an empty sequence");
  give(node, 0, join(node, sequence, model_.integer(node, "axis", 0), model_.integer(node, "new_axis", 0) != 0));
  return true;
}

std::string ControlFlow::join(const Node& node, Sequence parts, int64_t axis, bool new_axis) {
  if (new_axis) {
    const std::string axes = add_constant(Constant::of_integers({1}, {axis}));
    for (std::string& part : parts) part = emit(node, "Unsqueeze", {part, axes});
  }
  return parts.size() == 1 ? parts[0] : emit(node, "Concat", parts, {{"axis", axis}});
}

bool ControlFlow::split_to_sequence(const Node& node) {
  const Shape* input = node.has_input(0) ? shape(node.inputs[0]) : nullptr;
  if (!input) return false;
  const int axis = model_.axis(node, model_.integer(node, "axis", 0), input->size());
  const int64_t size = (*input)[axis];
  const bool keeps = node.has_input(1) || model_.integer(node, "keepdims", 1) != 0;
  Vector<int64_t> sizes(static_cast<size_t>(node.has_input(1) ? 0 : size), int64_t{1});
  if (node.has_input(1)) {
    const Constant* given = model_.constant(node.inputs[1]);
    if (!given) return false;
    if (given->shape.empty()) {
      const int64_t each = given->as_integers()[0];
      if (each < 1) model_.fail(node, "splits into parts of " + std::to_string(each));
      for (int64_t begin = 0; begin < size; begin += each) sizes.push_back(std::min(each, size - begin));
    } else {
      sizes = given->as_integers();
    }
  }
  if (sizes.empty() || sizes.count() > most_iterations)
    model_.fail(node, "splits " + std::to_string(size) + " into " + std::to_string(sizes.size()) + " parts");
  Sequence parts;
  for (const int i : sizes.indices()) parts.push_back(new_name() + " part " + std::to_string(i));
  visit_({node.name,
          "Split",
          {node.inputs[0], add_constant(Constant::of_integers({sizes.count()}, sizes))},
          parts,
          {{"axis", int64_t{axis}}}});
  if (!keeps) {
    const std::string axes = add_constant(Constant::of_integers({1}, {axis}));
    for (std::string& part : parts) part = emit(node, "Squeeze", {part, axes});
  }
  sequences_[node.outputs[0]] = std::move(parts);
  return true;
}

}  // namespace ff::importing
