#include "search/import/convert.h"

#include <algorithm>
#include <utility>

#include "search/import/operator_table.h"

namespace ff::importing {

Value Conversion::value(const Node& node, size_t input, int batch_axis) {
  if (!node.has_input(input)) fail(node, "lacks its input " + std::to_string(input));
  if (const auto it = values.find(node.inputs[input]); it != values.end()) return it->second;
  const Constant* same = repeated(node, input);
  const auto known = model.shapes.find(node.inputs[input]);
  const Constant* own = model.constant(node.inputs[input]);
  if (own && own->type == ElementType::f32 && (without_samples_ || !own->computed_from.empty() || is_as_value(*own)))
    return without_samples(node, node.inputs[input]);
  const Shape shape = own ? own->shape : known == model.shapes.end() ? Shape{} : known->second;
  if (!same || same->type != ElementType::f32 || batch_axis >= shape.count() || shape[batch_axis] != builder.batch())
    fail(node, "its input " + std::to_string(input) + " is a constant, expected something that depends on the samples");
  const Value value = is_as_value(*same) && !own ? value_along(node, input, batch_axis)
                                                 : for_each_sample(node, *same, shape, batch_axis);
  if (!own) values[node.inputs[input]] = value;
  return value;
}

bool Conversion::is_as_value(const Constant& constant) const {
  if (as_values.empty()) return false;
  const std::set<std::string> names = model.origins(constant);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return as_values.count(name) > 0; });
}

// What an Expand node repeats for each sample, as a value with its samples on this axis.
Value Conversion::value_along(const Node& node, size_t input, int batch_axis) {
  for (const Node& other : model.nodes)
    if (other.op == "Expand" && other.outputs[0] == node.inputs[input]) {
      Value value = without_samples(node, other.inputs[0]);
      value.axes[batch_axis] = {0};
      return value;
    }
  fail(node, "lacks its input " + std::to_string(input));
}

bool Conversion::is_value_elsewhere(const std::string& name) const {
  if (model.constant(name)) return false;
  int64_t readers = 0;
  for (const Node& node : model.nodes) readers += std::count(node.inputs.begin(), node.inputs.end(), name);
  return readers > 1;
}

bool Conversion::is_computed_with(const Constant& initializer) {
  if (!computed_with_) {
    computed_with_.emplace();
    for (const Node& node : model.nodes)
      for (const std::string& input : node.inputs)
        if (const Constant* read = model.constant(input))
          computed_with_->insert(read->computed_from.begin(), read->computed_from.end());
  }
  return computed_with_->count(initializer.parameter) > 0;
}

Value Conversion::without_samples(const Node& node, const std::string& name) {
  if (const auto it = values.find(name); it != values.end()) return it->second;
  const auto folded = model.folded.find(name);
  const Constant& constant = *model.constant(name);
  const bool shared = is_as_value(constant);
  const bool computed = !constant.computed_from.empty() || has_repetition(constant) || constant.is_partly_trained() ||
                        (shared && folded != model.folded.end());
  if (computed && folded != model.folded.end() && converters().count(folded->second.op)) {
    const bool before = std::exchange(without_samples_, true);
    converters().at(folded->second.op)(*this, folded->second);
    without_samples_ = before;
    return values.at(name);
  }
  if (computed) fail(node, "reads what is computed from initializers in a way that is not understood");
  Shape shape = constant.shape;
  shape.insert(shape.begin(), builder.batch());
  Value value = for_each_sample(node, constant, shape, 0);
  value.axes.erase(value.axes.begin());
  if (shared) values[name] = value;
  return value;
}

std::string Conversion::ones(const Node& node) {
  if (!ones_.empty()) return ones_;
  const auto add_one = [&](const std::string& type, const std::string& input, const Json& attributes) {
    return builder.add_one({builder.unique_name("ones"), type, {input}, attributes, "", node.text()}).tensor;
  };
  for (const bool floats : {true, false})
    for (const ModelInput& input : model.inputs) {
      const auto it = values.find(input.name);
      if (it == values.end() || (it->second.type == DataType::f32) != floats) continue;
      Axis others;
      for (int atom = 1; atom < it->second.atoms.count(); ++atom) others.push_back(atom);
      std::string first = arranged(node, it->second, {{0}, others}).tensor;
      if (builder.shape(first)[1] > 1) first = add_one("slice", first, {{"axis", 1}, {"begin", 0}, {"end", 1}});
      if (floats) return ones_ = add_one("affine", first, {{"factor", 0}, {"offset", 1}});
      const int64_t rows = largest_table();
      const std::string ones = add_one("embedding", first, {{"vocabulary", rows}, {"channels", 1}, {"trained", false}});
      builder.set_parameter(ones + ".weight",
                            {Constant::of_floats({rows, 1}, Vector<float>(static_cast<size_t>(rows), 1.0f)), false});
      return ones_ = add_one("flatten", ones, Json::object());
    }
  fail(node, "needs an input of the model");
}

int64_t Conversion::largest_table() const {
  int64_t rows = 0;
  for (const Node& node : model.nodes)
    if (node.op == "Gather")
      if (const Constant* table = constant(node, 0); table && table->shape.size() == 2)
        rows = std::max(rows, table->shape[0]);
  return rows > 0 ? rows : 1 << 16;
}

Value Conversion::as_floats(const Node& node, const Value& integers, bool condition) {
  if (integers.type == DataType::f32) return integers;
  const int64_t rows = condition ? 2 : largest_table();
  Vector<float> numbers;
  for (int64_t row = 0; row < rows; ++row) numbers.push_back(static_cast<float>(row));
  Axis others;
  for (int atom = 1; atom < integers.atoms.count(); ++atom) others.push_back(atom);
  Value result = others.empty() ? arranged(node, integers, {{0}}) : arranged(node, integers, {{0}, others});
  result.tensor = add_with_parameters(node, "embedding", {result.tensor},
                                      {{"vocabulary", rows}, {"channels", 1}, {"trained", false}},
                                      {{"weight", Constant::of_floats({rows, 1}, std::move(numbers)), false}})
                      .tensor;
  result.physical = builder.shape(result.tensor);
  result.type = DataType::f32;
  return result;
}

Value Conversion::repeated_for_each_sample(const Node& node, const Constant& once, const Shape& shape, int batch_axis) {
  if (has_repetition(once)) fail(node, "reads one number of an initializer in several places");
  Shape small = once.shape;
  small.insert(small.begin() + batch_axis, shape[batch_axis]);
  Value x = for_each_sample(node, once, small, batch_axis);
  for (const int axis : shape.indices()) {
    if (small[axis] == shape[axis]) continue;
    Axis before, behind;  // of the axes before this one, and of those after it
    for (const int other : shape.indices())
      for (const int atom : x.axes[other])
        if (atom != 0) (other < axis ? before : behind).push_back(atom);
    Value joined = arranged(node, x, {{0}, before, behind});
    const int first = 1 + before.count();
    joined.tensor =
        add(node, "concat", Vector<std::string>(static_cast<size_t>(shape[axis]), joined.tensor), {{"axis", 2}})[0]
            .tensor;
    joined.physical = builder.shape(joined.tensor);
    joined.atoms.insert(joined.atoms.begin() + first, shape[axis]);
    for (Axis& other : joined.axes)
      for (int& atom : other) atom += atom >= first ? 1 : 0;
    joined.axes[axis] = {first};
    x = joined;
  }
  return x;
}

Value Conversion::for_each_sample(const Node& node, const Constant& constant, const Shape& shape, int batch_axis) {
  // What lies along the samples must be the same for all of them.
  Constant one = constant;
  const int missing = shape.count() - constant.shape.count();
  int64_t inner = 1;
  for (int axis = batch_axis + 1; axis < shape.count(); ++axis) inner *= shape[axis];
  const int own = batch_axis - missing;
  if (own >= 0 && constant.shape[own] > 1) {
    const int64_t size = constant.shape[own];
    Vector<float> values;
    Progressions numbers;
    for (int64_t i = 0; i < constant.elements(); ++i) {
      const int64_t sample = i / inner % size;
      if (constant.at(i) != constant.at(i - sample * inner) ||
          constant.origin.at(i) != constant.origin.at(i - sample * inner))
        fail(node, "reads a constant that differs among the samples, which is not understood");
      if (sample > 0) continue;
      values.push_back((*constant.floats)[i]);
      numbers.add(constant.origin.at(i));
    }
    one.floats = Floats(std::move(values));
    one.origin = Origin::of(std::move(numbers));
  }
  Shape rest = shape;
  rest.erase(rest.begin() + batch_axis);
  const int64_t elements = volume(rest);
  if (one.floats.size() != elements)
    fail(node, "reads a constant of shape " + to_string(constant.shape) + " as " + to_string(shape) +
                   ", which is not understood");
  one.shape = {1, elements};
  const bool trained = !one.is_fixed();
  if (trained && has_repetition(one)) {
    one.shape = rest;
    return repeated_for_each_sample(node, without_repetition(one), shape, batch_axis);
  }
  Json attributes = {{"equation", "bz,zn->bn"}, {"sizes", {{"n", elements}}}};
  if (!trained) attributes["trained"] = false;
  Value result = add_with_parameters(node, "einsum", {ones(node)}, attributes, {{"weight", one, trained}});
  result.atoms = {shape[batch_axis]};
  result.axes.clear();
  for (const int axis : shape.indices()) {
    result.axes.emplace_back();
    if (axis == batch_axis) result.axes.back() = {0};
    else if (shape[axis] > 1) {
      result.axes.back() = {result.atoms.count()};
      result.atoms.push_back(shape[axis]);
    }
  }
  return result;
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
  // Axes of size 1 have no atoms.
  for (int atom = value.atoms.count() - 1; atom > 0; --atom) {
    if (value.atoms[atom] != 1) continue;
    value.atoms.erase(value.atoms.begin() + atom);
    for (Axis& axis : value.axes) {
      std::erase(axis, atom);
      for (int& other : axis) other -= other > atom ? 1 : 0;
    }
  }
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
    if (known != builder.parameters().end() && !known->second.constant.is_same_as(constant))
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
  if (origin.known() && !origin.numbers->has_none()) return;
  const std::string constants = text_of_constants(parameter.constant);
  fail(node, "the " + parameter.name + " of " + type + " is always trained, but here it is " +
                 (origin.known() ? "constant in part" : "a constant or left out") +
                 (constants.empty() ? "" : " (" + constants + ")"));
}

// Operators for which an operand that is computed from initializers is a value as any other.
bool Conversion::reads_values(const std::string& op) {
  static const std::set<std::string> all = {"Add", "Sub", "Mul", "Identity", "Concat", "Expand", "MatMul"};
  return all.count(op) > 0;
}

// As PyTorch calls the two parameters of a weight.
bool Conversion::is_weight_normalization(const std::set<std::string>& initializers) {
  const auto some = [&](const std::string& end) {
    return std::any_of(initializers.begin(), initializers.end(),
                       [&](const std::string& name) { return name.ends_with(end); });
  };
  return (some("_g") && some("_v")) || (some(".original0") && some(".original1"));
}

void Conversion::convert(const Node& node) {
  trained_.clear();
  const auto names = [](const std::set<std::string>& all) {
    std::string text;
    for (const std::string& name : all) text += (text.empty() ? "\"" : ", \"") + name + "\"";
    return text;
  };
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (const Constant* read = repeated(node, i); read && !read->computed_from.empty() && !reads_values(node.op))
      fail(node, "reads what is computed from " + names(read->computed_from) +
                     ", so that another function than the model's would be trained; " +
                     (is_weight_normalization(read->computed_from)
                          ? "torch.nn.utils.remove_weight_norm before the export makes plain weights of them"
                          : "--frozen makes constants of them"));
  converters().at(node.op)(*this, node);
  if (node.op == "Expand") return;  // who reads it trains it
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Constant* read = repeated(node, i);
    for (const std::string& name : read ? model.origins(*read) : std::set<std::string>{})
      if (!trained_.count(name) && !as_values.count(name))
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
  static const std::map<std::string, Converter> table = operator_table<Converter>({
      {"Conv", convert_conv},
      {"MaxPool AveragePool", convert_pool},
      {"GlobalAveragePool", convert_global_average_pool},
      {"BatchNormalization", convert_batch_normalization},
      {"LRN", convert_lrn},
      {"Pad", convert_pad},
      {"Identity", convert_same},
      {"Cast", convert_cast},
      {"Dropout", convert_dropout},
      {"Relu Sigmoid Tanh Gelu Silu Elu Softplus Mish Log Exp Sin Neg HardSigmoid HardSwish "
       "LeakyRelu",
       convert_unary},
      {"Selu", convert_selu},
      {"Abs", convert_abs},
      {"PRelu", convert_prelu},
      {"Pow", convert_pow},
      {"Square", convert_square},
      {"Clip", convert_clip},
      {"Add Sub Mul Div", convert_binary},
      {"Where", convert_where},
      {"Linear", convert_linear},
      {"Gemm", convert_gemm},
      {"MatMul", convert_matmul},
      {"Einsum", convert_einsum},
      {"FixedProduct", convert_fixed_product},
      {"Softmax LogSoftmax", convert_softmax},
      {"LayerNormalization RMSNormalization", convert_normalization},
      {"ReduceMean", convert_reduce_mean},
      {"Reshape Flatten Squeeze Unsqueeze", convert_reshape},
      {"Transpose", convert_transpose},
      {"Concat", convert_concat},
      {"Slice", convert_slice},
      {"Split", convert_split},
      {"Gather", convert_gather},
      {"Expand", convert_expand},
      {"LSTM", convert_lstm},
      {"MeanLoss", convert_mean_loss},
      {"CrossEntropyLoss", convert_cross_entropy_loss},
      {"OneHot", convert_one_hot},
  });
  return table;
}

}  // namespace ff::importing
