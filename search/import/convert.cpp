#include "search/import/convert.h"

#include <algorithm>

namespace ff::importing {

Value Conversion::value(const Node& node, size_t input) const {
  if (!node.has_input(input)) fail(node, "lacks its input " + std::to_string(input));
  const auto it = values.find(node.inputs[input]);
  if (it == values.end())
    fail(node, "its input " + std::to_string(input) + " is a constant, expected something that depends on the samples");
  return it->second;
}

const Constant* Conversion::constant(const Node& node, size_t input) const {
  return node.has_input(input) ? model.constant(node.inputs[input]) : nullptr;
}

const Constant* Conversion::repeated(const Node& node, size_t input) const {
  const Constant* own = constant(node, input);
  if (own || !node.has_input(input) || values.count(node.inputs[input])) return own;
  for (const Node& other : model.nodes)
    if (other.op == "Expand" && other.outputs[0] == node.inputs[input]) return constant(other, 0);
  return nullptr;
}

const Constant& Conversion::required_constant(const Node& node, size_t input, const std::string& what) const {
  const Constant* found = constant(node, input);
  if (!found) fail(node, "its input " + std::to_string(input) + " (" + what + ") is not a constant");
  return *found;
}

void Conversion::set(const Node& node, size_t output, Value value) {
  if (!node.has_output(output)) return;
  const auto expected = model.shapes.find(node.outputs[output]);
  if (expected != model.shapes.end() && value.shape() != expected->second)
    fail(node, "would have shape " + to_string(value.shape()) + ", expected " + to_string(expected->second));
  values[node.outputs[output]] = std::move(value);
}

Value Conversion::arranged(const Node& node, const Value& value, const Vector<Axis>& physical) {
  Value result = value;
  result.tensor = builder.arrange(value, physical, name_of(node), node.text());
  result.physical = builder.shape(result.tensor);
  Vector<int> renumbered(value.atoms.size(), 0);
  result.atoms.clear();
  for (const Axis& axis : physical)
    for (const int atom : axis) {
      renumbered[atom] = result.atoms.count();
      result.atoms.push_back(value.atoms[atom]);
    }
  assert(result.atoms.size() == value.atoms.size());
  for (Axis& axis : result.axes)
    for (int& atom : axis) atom = renumbered[atom];
  return result;
}

Value Conversion::with_last(const Node& node, const Value& value, int axis) {
  const Axis& last = value.axes[axis];
  if (std::find(last.begin(), last.end(), 0) != last.end())
    fail(node, "works across the samples, which are on axis " + std::to_string(axis));
  Axis others;
  for (int atom = 1; atom < value.atoms.count(); ++atom)
    if (std::find(last.begin(), last.end(), atom) == last.end()) others.push_back(atom);
  if (others.empty()) return arranged(node, value, {{0}, last});
  return arranged(node, value, {{0}, others, last});
}

Vector<Value> Conversion::add(const Node& node, const std::string& type, const Vector<std::string>& inputs,
                              const Json& attributes) {
  return builder.add({builder.unique_name(name_of(node)), type, inputs, attributes, "", node.text()});
}

Value Conversion::add_elementwise(const Node& node, const std::string& type, const Value& input,
                                  const Json& attributes) {
  Value result = input;
  result.tensor = add(node, type, {input.tensor}, attributes)[0].tensor;
  return result;
}

namespace {

// "layer1.0.conv1" of "layer1.0.conv1.weight"; of "lstm.weight_ih_l0" it is "lstm.l0".
std::string module_of(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  if (dot == std::string::npos || dot == 0) return parameter;
  const std::string module = parameter.substr(0, dot), leaf = parameter.substr(dot + 1);
  for (const char* end : {"_weight", "_bias"})
    if (leaf.size() > std::string(end).size() && leaf.ends_with(end))
      return module + "." + leaf.substr(0, leaf.size() - std::string(end).size());
  if (leaf.rfind("weight", 0) != 0 && leaf.rfind("bias", 0) != 0 && leaf != "gamma" && leaf != "beta") return parameter;
  const size_t layer = leaf.rfind("_l");
  return layer == std::string::npos ? module : module + "." + leaf.substr(layer + 1);
}

}  // namespace

Value Conversion::add_with_parameters(const Node& node, const std::string& type, const Vector<std::string>& inputs,
                                      const Json& attributes, const Vector<NamedConstant>& parameters) {
  std::string group, module;
  for (const NamedConstant& parameter : parameters) {
    const Constant& constant = parameter.constant;
    if (!constant.origin.known() || !parameter.shared) continue;
    if (module.empty() && !constant.parameter.empty()) module = module_of(constant.parameter);
    const auto owner = owners_.find(constant.origin.at(0));
    if (owner == owners_.end() || owner->second.second != parameter.name) continue;
    const Constant& known = builder.parameters().at(owner->second.first + "." + parameter.name).constant;
    if (known.shape == constant.shape && known.has_origin_of(constant)) group = owner->second.first;
  }
  const std::string name = builder.unique_name(module.empty() ? name_of(node) : module);
  if (group.empty()) group = name;
  const Value result = builder.add_one({name, type, inputs, attributes, group, node.text()});
  const auto specs = builder.operators().back().parameters;
  for (const NamedConstant& parameter : parameters) {
    const auto spec = std::find_if(specs.begin(), specs.end(),
                                   [&](const ParameterSpec& known) { return known.name == parameter.name; });
    const Constant& constant = parameter.constant;
    if (spec == specs.end() || !constant.floats || constant.shape != spec->shape)
      fail(node, "has a " + parameter.name + " of shape " + to_string(constant.shape) +
                     (spec == specs.end() ? "" : ", expected " + to_string(spec->shape)));
    if (spec->trained) expect_trained(node, type, parameter);
    const std::string full = (spec->trained ? group : name) + "." + parameter.name;
    const auto known = builder.parameters().find(full);
    if (known != builder.parameters().end() &&
        !(known->second.constant.has_origin_of(constant) && *known->second.constant.floats == *constant.floats))
      fail(node, "shares a weight with \"" + group + "\", but has a " + parameter.name + " of its own");
    builder.set_parameter(full, {constant, spec->trained});
    for (const std::string& summand : parameter.summands) builder.summed[summand] = full;
    trained_.merge(model.origins(constant));
    trained_.insert(parameter.summands.begin(), parameter.summands.end());
    if (spec->trained) owners_.emplace(constant.origin.at(0), std::pair(group, parameter.name));
  }
  return result;
}

std::string Conversion::text_of_constants(const Constant& constant) const {
  std::string text;
  for (const Initializer& each : model.initializers)
    if (constant.frozen.count(each.name)) text += (text.empty() ? "" : ", ") + each.text() + ": " + each.reason;
  return text;
}

void Conversion::expect_trained(const Node& node, const std::string& type, const NamedConstant& parameter) const {
  const Origin& origin = parameter.constant.origin;
  bool all = origin.known();
  for (int64_t i = 0; all && origin.list && i < parameter.constant.elements(); ++i) all = origin.at(i) != Origin::none;
  if (all) return;
  const std::string constants = text_of_constants(parameter.constant);
  fail(node, "the " + parameter.name + " of " + type + " is always trained, but here it is " +
                 (origin.known() ? "constant in part" : "a constant or left out") +
                 (constants.empty() ? "" : " (" + constants + ")"));
}

void Conversion::convert(const Node& node) {
  trained_.clear();
  const auto names = [](const std::set<std::string>& all) {
    std::string text;
    for (const std::string& name : all) text += (text.empty() ? "\"" : ", \"") + name + "\"";
    return text;
  };
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (const Constant* read = repeated(node, i); read && !read->computed_from.empty())
      fail(node, "reads what is computed from " + names(read->computed_from) +
                     ", so that another function than the model's would be trained; --frozen makes constants of them");
  converters().at(node.op)(*this, node);
  if (node.op == "Expand") return;  // who reads it trains it
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Constant* read = repeated(node, i);
    for (const std::string& name : read ? model.origins(*read) : std::set<std::string>{})
      if (!trained_.count(name))
        fail(node, "reads \"" + name + "\" where it cannot be trained; --frozen makes a constant of it");
  }
}

// "/layer1/layer1.0/relu/Relu" -> "layer1.0.relu": a part that goes on from the one before replaces it, and the
// operator's own name is left out where the module says as much.
std::string Conversion::name_of(const Node& node) const {
  std::string type = node.op;
  std::transform(type.begin(), type.end(), type.begin(), [](unsigned char c) { return std::tolower(c); });
  if (node.name.find('/') == std::string::npos) return node.name.empty() ? type : node.name;
  std::string path, part;
  const auto append = [&] {
    if (part.empty()) return;
    if (path.empty() || part.rfind(path + ".", 0) == 0) path = part;
    else path += "." + part;
  };
  for (const char c : node.name) {
    if (c == '/') {
      append();
      part.clear();
    } else {
      part += c;
    }
  }
  const std::string module = path.substr(path.rfind('.') + 1);
  if (path.empty() || (module.find(type) == std::string::npos && type.find(module) == std::string::npos))
    return path.empty() ? type : path + "." + type;
  return path;
}

const std::map<std::string, Converter>& converters() {
  static const std::map<std::string, Converter> list = {
      {"Conv", convert_conv},
      {"MaxPool", convert_pool},
      {"AveragePool", convert_pool},
      {"GlobalAveragePool", convert_global_average_pool},
      {"BatchNormalization", convert_batch_normalization},
      {"LRN", convert_lrn},
      {"Pad", convert_pad},
      {"Identity", convert_same},
      {"Cast", convert_cast},
      {"Dropout", convert_dropout},
      {"Relu", convert_unary},
      {"Sigmoid", convert_unary},
      {"Tanh", convert_unary},
      {"Gelu", convert_unary},
      {"Silu", convert_unary},
      {"Elu", convert_unary},
      {"Selu", convert_selu},
      {"Softplus", convert_unary},
      {"Mish", convert_unary},
      {"Log", convert_unary},
      {"Neg", convert_unary},
      {"HardSigmoid", convert_unary},
      {"HardSwish", convert_unary},
      {"LeakyRelu", convert_unary},
      {"Abs", convert_abs},
      {"PRelu", convert_prelu},
      {"Pow", convert_pow},
      {"Square", convert_square},
      {"Clip", convert_clip},
      {"Add", convert_binary},
      {"Sub", convert_binary},
      {"Mul", convert_binary},
      {"Div", convert_binary},
      {"Where", convert_where},
      {"Linear", convert_linear},
      {"Gemm", convert_gemm},
      {"MatMul", convert_matmul},
      {"Einsum", convert_einsum},
      {"Softmax", convert_softmax},
      {"LogSoftmax", convert_softmax},
      {"LayerNormalization", convert_normalization},
      {"RMSNormalization", convert_normalization},
      {"ReduceMean", convert_reduce_mean},
      {"Reshape", convert_reshape},
      {"Flatten", convert_reshape},
      {"Squeeze", convert_reshape},
      {"Unsqueeze", convert_reshape},
      {"Transpose", convert_transpose},
      {"Concat", convert_concat},
      {"Slice", convert_slice},
      {"Split", convert_split},
      {"Gather", convert_gather},
      {"Expand", convert_expand},
      {"LSTM", convert_lstm},
  };
  return list;
}

}  // namespace ff::importing
