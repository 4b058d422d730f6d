// LSTM, unrolled into steps that share their parameters.
#include <algorithm>

#include "search/import/convert.h"

namespace ff::importing {
namespace {

// Gates come as input, output, forget, cell; ours are input, forget, cell, output, as PyTorch's.
constexpr int gates[] = {0, 2, 3, 1};

// One direction's [4 hidden, columns] of a constant [directions, 4 hidden, columns], as ours [4, hidden, columns].
Constant of_direction(const Constant& all, int64_t direction, int64_t hidden, int64_t columns) {
  Vector<float> values;
  values.reserve(static_cast<size_t>(4 * hidden * columns));
  for (const int gate : gates)
    for (int64_t i = 0; i < hidden * columns; ++i)
      values.push_back((*all.floats)[(direction * 4 + gate) * hidden * columns + i]);
  Constant result = Constant::of_floats({4, hidden, columns}, std::move(values));
  result.parameter = all.parameter;
  if (!all.origin.known()) return result;
  Progressions numbers;
  for (const int gate : gates)
    numbers.add(*all.origin.numbers, (direction * 4 + gate) * hidden * columns, hidden * columns);
  result.origin = Origin::of(std::move(numbers));
  return result;
}

// ONNX has two biases, [directions, 8 hidden], which are added up; ours is one: the first that is trained, with the
// other as a summand, also if that one is constant. Constants have no origins; their names sort by direction in
// PyTorch (bias_hh_l0, bias_hh_l0_reverse).
Conversion::NamedConstant sum_of_biases(const Model& model, const Constant* all, int64_t direction, int64_t hidden) {
  Vector<float> values(4 * hidden, 0);
  Progressions numbers[2];
  if (all)
    for (int64_t gate = 0; gate < 4; ++gate)
      for (int64_t i = 0; i < hidden; ++i) {
        const int64_t at = (direction * 8 + gates[gate]) * hidden + i;
        values[gate * hidden + i] = (*all->floats)[at] + (*all->floats)[at + 4 * hidden];
        for (const int bias : {0, 1}) numbers[bias].add(all->origin.at(at + 4 * bias * hidden));
      }
  Conversion::NamedConstant result{"bias", Constant::of_floats({4, hidden}, std::move(values))};
  Constant other = result.constant;
  result.constant.origin = Origin::of(std::move(numbers[0]));
  other.origin = Origin::of(std::move(numbers[1]));
  if (!result.constant.origin.known()) std::swap(result.constant.origin, other.origin);
  result.summands = model.origins(other);
  if (all && result.constant.origin.known() && !other.origin.known() && std::ssize(all->frozen) == all->shape[0])
    result.summands.insert(*std::next(all->frozen.begin(), direction));
  return result;
}

struct Layer {
  Value x;  // [batch, length, channels]
  int64_t length, hidden, directions;
  Constant weight, recurrent;
  const Constant* bias;
  std::string initial_h{}, initial_c{};  // [batch, directions * hidden]; "": zeros
};

// An initial state [directions, batch, hidden] as [batch, directions * hidden].
std::string initial_state(Conversion& c, const Node& node, size_t input) {
  if (!node.has_input(input)) return "";
  if (const Constant* constant = c.constant(node, input)) {
    bool zero = constant->is_fixed();
    for (int64_t i = 0; zero && i < constant->elements(); ++i) zero = constant->at(i) == 0;
    if (zero) return "";
  }
  const Value state = c.value(node, input, 1);
  Axis others = state.axes[0];
  others.insert(others.end(), state.axes[2].begin(), state.axes[2].end());
  return c.arranged(node, state, {{0}, others}).tensor;
}

struct Unrolled {
  Vector<std::string> states;  // h [batch, hidden], by position
  std::string last_h, last_c;
};

Unrolled unroll(Conversion& c, const Node& node, const Layer& layer, const Vector<std::string>& steps,
                int64_t direction, bool backwards) {
  const Vector<Conversion::NamedConstant> parameters{
      {"weight", of_direction(layer.weight, direction, layer.hidden, layer.weight.shape[2])},
      {"recurrent", of_direction(layer.recurrent, direction, layer.hidden, layer.hidden)},
      sum_of_biases(c.model, layer.bias, direction, layer.hidden)};
  Unrolled result;
  result.states.resize(layer.length);
  std::string group;
  // Of this direction. Where only one of the two is given, the other is zeros.
  const auto state = [&](const std::string& all) {
    const std::string& given = all.empty() ? (layer.initial_h.empty() ? layer.initial_c : layer.initial_h) : all;
    std::string own = given;
    if (layer.directions > 1)
      own = c.add(node, "slice", {given},
                  {{"axis", 1}, {"begin", direction * layer.hidden}, {"end", (direction + 1) * layer.hidden}})[0]
                .tensor;
    return all.empty() ? c.add(node, "affine", {own}, {{"factor", 0}})[0].tensor : own;
  };
  for (int64_t t = 0; t < layer.length; ++t) {
    const int64_t at = backwards ? layer.length - 1 - t : t;
    Vector<std::string> inputs{steps[at]};
    if (t > 0) inputs.insert(inputs.end(), {result.last_h, result.last_c});
    else if (!layer.initial_h.empty() || !layer.initial_c.empty())
      inputs.insert(inputs.end(), {state(layer.initial_h), state(layer.initial_c)});
    if (t == 0) {
      const Value first = c.add_with_parameters(node, "lstm", inputs, {{"hidden", layer.hidden}}, parameters);
      group = c.builder.operators().back().group;
      result.last_h = first.tensor;
    } else {
      result.last_h = c.builder
                          .add_one({c.builder.unique_name(group + ".t" + std::to_string(at)),
                                    "lstm",
                                    inputs,
                                    {{"hidden", layer.hidden}},
                                    group,
                                    node.text()})
                          .tensor;
    }
    const auto& op = c.builder.operators().back();
    result.last_c = op.outputs[1];
    result.states[at] = result.last_h;
  }
  return result;
}

Layer layer_of(Conversion& c, const Node& node) {
  const Constant &weight = c.required_constant(node, 1, "the weights"),
                 &recurrent = c.required_constant(node, 2, "the recurrent weights");
  const Constant* bias = c.constant(node, 3);
  if (node.has_input(3) && !bias) c.fail(node, "has biases that are no constants");
  const Value x = c.value(node, 0);
  if (c.model.integer(node, "layout", 0) != 0) c.fail(node, "has layout 1, which is not understood");
  const int64_t directions = weight.shape[0], hidden = recurrent.shape[2];
  const Shape shape = x.shape();
  if (directions < 1 || directions > 2 || weight.shape != Shape{directions, 4 * hidden, shape[2]} ||
      recurrent.shape != Shape{directions, 4 * hidden, hidden} || !weight.floats || !recurrent.floats ||
      (bias && (bias->shape != Shape{directions, 8 * hidden} || !bias->floats)))
    c.fail(node, "has weights of shapes " + to_string(weight.shape) + " and " + to_string(recurrent.shape) +
                     " for an input of shape " + to_string(shape));
  const std::string activations = c.model.text(node, "activations", "");
  if (!activations.empty() && activations != "Sigmoid,Tanh,Tanh" &&
      activations != "Sigmoid,Tanh,Tanh,Sigmoid,Tanh,Tanh")
    c.fail(node, "has the activations " + activations + ", expected Sigmoid, Tanh, Tanh");
  if (node.attributes.count("clip") || c.model.integer(node, "input_forget", 0) != 0)
    c.fail(node, "has an attribute clip or input_forget, which is not understood");
  if (node.has_input(7)) c.fail(node, "has peepholes, which are not understood");
  if (node.has_input(4)) {
    const Constant& lengths = c.required_constant(node, 4, "the sequences' lengths");
    for (int64_t i = 0; i < lengths.elements(); ++i)
      if (lengths.as_integers()[i] != shape[0]) c.fail(node, "has sequences of different lengths");
  }
  if (x.axes[1] != Axis{0}) c.fail(node, "has no samples on its second axis");
  return {c.arranged(node, x, {x.axes[1], x.axes[0], x.axes[2]}),
          shape[0],
          hidden,
          directions,
          weight,
          recurrent,
          bias,
          initial_state(c, node, 5),
          initial_state(c, node, 6)};
}

// Each position of the sequence as [batch, channels].
Vector<std::string> steps_of(Conversion& c, const Node& node, const Layer& layer) {
  const auto flat = [&](const std::string& tensor, const std::string& suffix) {
    const std::string name = c.builder.unique_name(c.name_of(node) + ".x" + suffix);
    return c.builder.add_one({name, "flatten", {tensor}, Json::object(), "", node.text()}).tensor;
  };
  if (layer.length == 1) return {flat(layer.x.tensor, "")};
  Vector<std::string> steps;
  for (const Value& part :
       c.add(node, "split", {layer.x.tensor}, {{"axis", 1}, {"sizes", Vector<int64_t>(layer.length, int64_t{1})}}))
    steps.push_back(flat(part.tensor, ".t" + std::to_string(steps.size())));
  return steps;
}

Axis hidden_axis(const Layer& layer, int atom) { return layer.hidden > 1 ? Axis{atom} : Axis{}; }

// [batch, length, directions, hidden] as ONNX's [length, directions, batch, hidden].
Value all_states(Conversion& c, const Node& node, const Layer& layer, const Vector<Unrolled>& unrolled) {
  Vector<std::string> stacked;
  for (const Unrolled& one : unrolled) stacked.push_back(c.add(node, "stack", one.states)[0].tensor);
  const std::string joined = stacked.size() == 1 ? stacked[0] : c.add(node, "concat", stacked, {{"axis", 2}})[0].tensor;
  Value all = Value::plain(joined, c.builder.shape(joined));
  all.atoms = {all.atoms[0]};
  for (const int64_t size : {layer.length, layer.directions, layer.hidden})
    if (size > 1) all.atoms.push_back(size);
  const int length_atoms = layer.length > 1 ? 1 : 0, directions_atoms = layer.directions > 1 ? 1 : 0;
  all.axes = {length_atoms ? Axis{1} : Axis{},
              directions_atoms ? Axis{1 + length_atoms} : Axis{},
              {0},
              hidden_axis(layer, 1 + length_atoms + directions_atoms)};
  return all;
}

}  // namespace

void convert_lstm(Conversion& c, const Node& node) {
  const Layer layer = layer_of(c, node);
  const std::string direction = c.model.text(node, "direction", "forward");
  const Vector<std::string> steps = steps_of(c, node, layer);
  Vector<Unrolled> unrolled{unroll(c, node, layer, steps, 0, direction == "reverse")};
  if (layer.directions == 2) unrolled.push_back(unroll(c, node, layer, steps, 1, true));
  if (node.has_output(0)) c.set(node, 0, all_states(c, node, layer, unrolled));
  for (const size_t output : {1u, 2u}) {
    if (!node.has_output(output)) continue;
    Vector<std::string> last;
    for (const Unrolled& one : unrolled) last.push_back(output == 1 ? one.last_h : one.last_c);
    const std::string tensor = last.size() == 1 ? last[0] : c.add(node, "stack", last)[0].tensor;
    Value state = Value::plain(tensor, c.builder.shape(tensor));
    state.axes =
        last.size() == 1 ? Vector<Axis>{{}, {0}, hidden_axis(layer, 1)} : Vector<Axis>{{1}, {0}, hidden_axis(layer, 2)};
    c.set(node, output, state);
  }
}

}  // namespace ff::importing
