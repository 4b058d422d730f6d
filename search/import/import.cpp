#include "search/import/import.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "common/errors.h"
#include "common/graph.h"
#include "common/safetensors.h"
#include "search/import/control_flow.h"
#include "search/import/convert.h"
#include "search/import/graph_passes.h"
#include "search/import/losses.h"
#include "search/import/notes.h"
#include "search/import/passes.h"
#include "search/import/pytorch_table.h"

namespace ff {

using namespace importing;

namespace {

// All operators without a converter at once, each with their number and first place. Those that are computed while
// folding are not at fault where what they need comes from others that are not understood.
void expect_known(const Model& model) {
  const auto has_unknown_input = [&](const Node& node) {
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](const std::string& input) {
      return !input.empty() && !model.constant(input) && !model.shapes.count(input);
    });
  };
  std::map<std::string, std::pair<int, std::string>> unknown;
  for (const Node& node : model.nodes) {
    const bool computed = can_be_folded(node.op) || is_of_sequences(node.op) || lowerings().count(node.op) > 0;
    if (converters().count(node.op) || (computed && has_unknown_input(node))) continue;
    auto& [count, first] = unknown.emplace(node.op, std::pair(0, node.text())).first->second;
    ++count;
  }
  if (unknown.empty()) return;
  std::string text = "has operators that are not understood:";
  for (const auto& [op, found] : unknown)
    text += "\n  " + op + ": " + std::to_string(found.first) + ", the first is " + found.second;
  model.fail(text);
}

void add_inputs(const Model& model, Conversion& conversion) {
  std::set<std::string> used(model.outputs.begin(), model.outputs.end());
  for (const Node& node : model.nodes) used.insert(node.inputs.begin(), node.inputs.end());
  for (const ModelInput& input : model.inputs) {
    if (!used.count(input.name)) continue;
    const Shape& shape = model.shapes.at(input.name);
    Vector<int> order{input.sample_axis};  // ours: the sample first
    for (const int axis : shape.indices())
      if (axis != input.sample_axis) order.push_back(axis);
    Shape ours;
    Vector<int> back(order.size(), 0);
    for (const int i : order.indices()) {
      ours.push_back(shape[order[i]]);
      back[order[i]] = i;
    }
    if (ours.size() > static_cast<size_t>(Block::max_rank))
      model.fail("the input \"" + input.name + "\" has " + std::to_string(ours.size()) + " axes");
    const DataType type = input.type == ElementType::f32 ? DataType::f32 : DataType::i32;
    const std::string name = conversion.builder.unique_name(input.name);
    conversion.builder.add_input(name, ours, type);
    Value value = Value::plain(name, ours, type);
    // Operators read up to four axes.
    const Node place{"input " + input.name, "input", {}, {input.name}};
    if (ours.size() > 4) {
      Vector<Axis> physical{value.axes[0], value.axes[1], value.axes[2], {}};
      for (size_t axis = 3; axis < ours.size(); ++axis)
        physical[3].insert(physical[3].end(), value.axes[axis].begin(), value.axes[axis].end());
      value = conversion.arranged(place, value, physical);
    }
    if (input.type == ElementType::boolean) value = conversion.as_floats(place, value, true);
    value.transpose(back);
    conversion.values[input.name] = value;
  }
}

// With sizes known, everything that is known computed, and patterns recognised.
Model prepared(const Model& model, const ImportOptions& options) {
  Model result = model;
  freeze_initializers(result);
  bind_inputs(result, options.batch, options.sizes);
  remove_dead_nodes(result);
  infer_shapes_and_fold(result);
  remove_dead_nodes(result);
  run_passes(result);
  if (options.cross_entropy) skip_log_softmax(result);
  else find_losses(result);
  return result;
}

// The same once it is decided which initializers are trained.
Model decided(Model model, const ImportOptions& options) {
  number_initializers(model, options.choices);
  Model result = prepared(model, options);
  if (decide_initializers(model, result, options.choices)) result = prepared(model, options);
  result.initializers = std::move(model.initializers);
  expect_no_hidden_ties(result);
  return result;
}

// The whole graph. `as_values`: initializers that are values for all who read them.
std::unique_ptr<Conversion> converted(const Model& model, const ImportOptions& options,
                                      const std::set<std::string>& as_values) {
  auto conversion = std::make_unique<Conversion>(model, options.batch);
  conversion->as_values = as_values;
  add_inputs(model, *conversion);
  for (const Node& node : model.nodes) {
    if (!model.shapes.count(node.outputs[0]) || !converters().count(node.op))
      model.fail(node, "its shape cannot be found");
    conversion->convert(node);
  }
  for (const std::string& output : model.outputs)
    if (const auto it = conversion->values.find(output); it != conversion->values.end() && !options.cross_entropy)
      conversion->builder.outputs.push_back(it->second.tensor);
  if (options.cross_entropy) add_losses(model, *conversion, options.loss_weights);
  run_graph_passes(conversion->builder);
  return conversion;
}

// The same, where an initializer that would be trained apart in two places is a value for both.
std::unique_ptr<Conversion> converted(const Model& model, const ImportOptions& options) {
  auto conversion = converted(model, options, {});
  const auto first = trained_apart(model, conversion->builder);
  std::set<std::string> as_values;
  for (auto apart = first; apart; apart = trained_apart(model, conversion->builder)) {
    if (!as_values.insert(apart->initializer).second) model.fail(first->message);
    try {
      conversion = converted(model, options, as_values);
    } catch (const InputError&) {  // not as values either
      model.fail(first->message);
    }
  }
  return conversion;
}

}  // namespace

ImportedModel import_model(Model read, const ImportOptions& options) {
  ImportedModel result;
  result.nodes = static_cast<int64_t>(read.nodes.size());
  Model model = decided(std::move(read), options);
  result.notes = notes_on(model, options.cross_entropy);
  lower(model);
  expect_known(model);
  const auto conversion = converted(model, options);
  const Builder& builder = conversion->builder;
  settle_initializers(model, builder);
  result.initializers = model.initializers;
  const std::string name = std::filesystem::path(model.file).stem().string();
  result.graph = builder.graph(name);
  result.operators = static_cast<int64_t>(builder.operators().size());
  if (result.operators == 0) model.fail("has nothing that is computed from the samples");
  for (const auto& [full, parameter] : builder.parameters()) {
    if (parameter.trained) result.parameters += parameter.constant.elements();
    result.weights.emplace_back(full, parameter.constant);
  }
  const auto& operators = builder.operators();
  result.has_loss =
      std::any_of(operators.begin(), operators.end(), [](const Builder::Operator& op) { return op.is_loss(); });
  // What the reader of graphs would refuse is found here.
  if (result.has_loss) {
    const Graph graph = parse_graph(JsonPlace(std::make_shared<const Json>(result.graph), model.file + " as a graph"));
    result.parameters = graph.parameter_count();
  }
  result.metadata = {{"graph", name}, {"pytorch", pytorch_table(model, builder).dump()}};
  return result;
}

void write_weights(const std::string& path, const ImportedModel& model) {
  Vector<NamedTensor> tensors;
  for (const auto& [name, constant] : model.weights)
    tensors.push_back({name, constant.shape, [floats = constant.floats] { return floats.once(); }});
  write_safetensors(path, model.metadata, tensors);
}

}  // namespace ff
