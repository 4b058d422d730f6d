// Element by element: functions, and sums and products with broadcasting.
#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "search/import/convert.h"
#include "search/import/notes.h"

namespace ff::importing {
namespace {

// A constant operand, as a factor or a summand of a tensor of ours: which axes of the tensor it has, and its values in
// the tensor's order.
struct Spread {
  Value
      value;  // the other operand, moved so that each axis of its tensor is one that the constant has all or nothing of
  Vector<int> axes;
  Constant constant;
};

// Axes of a tensor: neighbouring atoms that a second operand all has or all lacks. The batch stays alone.
Vector<Axis> blocks_of(const Value& value, const Vector<bool>& has) {
  Vector<Axis> blocks{{0}};
  for (int atom = 1; atom < value.atoms.count(); ++atom) {
    if (atom > 1 && has[atom] == has[atom - 1]) blocks.back().push_back(atom);
    else blocks.push_back({atom});
  }
  return blocks;
}

// Does the tensor's shape already separate these blocks? Then it stays as it is, and each of its axes is a block.
Vector<Axis> kept_or(const Value& value, const Vector<bool>& has, Vector<Axis> blocks) {
  Vector<Axis> axes;
  int atom = 0;
  for (const int64_t size : value.physical) {
    axes.emplace_back();
    for (int64_t have = 1; have < size || (axes.size() == 1 && atom == 0);) {
      if (atom == value.atoms.count() || size % (have * value.atoms[atom]) != 0) return blocks;
      if (!axes.back().empty() && has[atom] != has[atom - 1]) return blocks;
      have *= value.atoms[atom];
      axes.back().push_back(atom++);
    }
  }
  return atom == value.atoms.count() ? axes : blocks;
}

// More blocks than a tensor has axes: what the second operand has, and what it lacks, each together.
Vector<Axis> at_most_four(const Value& value, const Vector<bool>& has, const Vector<Axis>& blocks) {
  constexpr int most = 4;
  if (blocks.count() <= most) return blocks;
  Vector<Axis> few{{0}, {}, {}};
  for (const Axis& axis : value.axes)
    for (const int atom : axis)
      if (atom > 0) few[has[atom] ? 1 : 2].push_back(atom);
  std::erase(few, Axis{});
  return few;
}

Spread spread(Conversion& c, const Node& node, const Value& x, const Constant& constant) {
  Value value = x;
  while (value.axes.size() < constant.shape.size()) value.axes.insert(value.axes.begin(), Axis{});
  const Shape shape = value.shape();
  const int missing = shape.count() - constant.shape.count();
  // As ONNX orders the axes that the constant has, it has the atoms of these.
  Axis order;
  Vector<bool> has(value.atoms.size(), false);
  for (const int axis : value.axes.indices()) {
    if (axis < missing || constant.shape[axis - missing] == 1) continue;
    if (constant.shape[axis - missing] != shape[axis])
      c.fail(node, "repeats a tensor of shape " + to_string(shape) + " along a constant of shape " +
                       to_string(constant.shape) + ", which is not understood");
    for (const int atom : value.axes[axis]) {
      order.push_back(atom);
      has[atom] = true;
    }
  }
  if (order.empty() || has[0])
    c.fail(node, "combines shape " + to_string(shape) + " with a constant of shape " + to_string(constant.shape) +
                     ", which differs among samples");
  const Vector<Axis> blocks = at_most_four(value, has, kept_or(value, has, blocks_of(value, has)));
  Spread result{c.arranged(node, value, blocks), {}, constant};
  for (const int block : blocks.indices())
    if (!blocks[block].empty() && has[blocks[block][0]]) result.axes.push_back(block);
  // The constant's values in the order of atoms in the tensor.
  Shape factors;
  for (const int atom : order) factors.push_back(value.atoms[atom]);
  result.constant.shape = factors;
  Vector<int> sorted, place(value.atoms.size(), 0);
  int next = 0;
  for (const Axis& block : blocks)
    for (const int atom : block) place[atom] = next++;
  for (const int i : order.indices()) sorted.push_back(i);
  std::sort(sorted.begin(), sorted.end(), [&](int a, int b) { return place[order[a]] < place[order[b]]; });
  if (!std::is_sorted(sorted.begin(), sorted.end())) result.constant = transposed(result.constant, sorted);
  result.constant.shape.clear();
  for (const int axis : result.axes) result.constant.shape.push_back(value.size(blocks[axis]));
  return result;
}

// Rows of a table [rows, heads] by the distance of two positions, as relative_bias has them: its attributes, or
// nothing. `rows`: for each distance from -(queries - 1) on.
std::optional<Json> relative_buckets(const Vector<int64_t>& rows, int64_t queries, int64_t buckets) {
  const int last = rows.count() - 1, zero = static_cast<int>(queries - 1);
  Json attributes = {{"buckets", buckets}, {"boundaries", Json::array()}};
  Json& boundaries = attributes["boundaries"];
  // Of distances first, first + step, ...: the row grows, from `row` on, at each boundary.
  const auto grows = [&](int first, int end, int step, int64_t row, int64_t distance) {
    boundaries = Json::array();
    for (int at = first; at != end; at += step, ++distance) {
      if (rows[at] < row) return false;
      for (; row < rows[at]; ++row) boundaries.push_back(distance);
    }
    return true;
  };
  const bool past = std::all_of(rows.begin() + zero, rows.end(), [](int64_t row) { return row == 0; });
  if (past && grows(zero, -1, -1, 0, 0)) {
    attributes["directions"] = "past";
    return attributes;
  }
  bool both = buckets % 2 == 0 && rows[zero] == 0;
  for (int at = zero + 1; both && at <= last; ++at)
    both = zero - (at - zero) < 0 || rows[at] == rows[zero - (at - zero)] + buckets / 2;
  for (int at = 0; both && at <= zero; ++at) both = rows[at] < buckets / 2;
  if (both && last == 2 * zero && grows(zero, -1, -1, 0, 0)) return attributes;
  if (!grows(0, last + 1, 1, 0, -(queries - 1))) return std::nullopt;
  attributes["directions"] = "signed";
  return attributes;
}

// A trained summand of scores [batch, heads, queries, keys] that has a row of a table for each distance key - query.
std::optional<Value> with_relative_bias(Conversion& c, const Node& node, const Value& x, const Constant& constant) {
  const Constant* table = c.model.constant(constant.parameter);
  const auto initializer = std::find_if(c.model.initializers.begin(), c.model.initializers.end(),
                                        [&](const Initializer& each) { return each.name == constant.parameter; });
  if (!table || table->shape.size() != 2 || initializer == c.model.initializers.end()) return std::nullopt;
  const Spread spreading = spread(c, node, x, constant);
  const Shape& shape = spreading.constant.shape;
  if (spreading.value.physical.size() != 4 || spreading.axes != Vector<int>{1, 2, 3} || shape[0] != table->shape[1])
    return std::nullopt;
  const auto [heads, queries, keys] = std::tuple(shape[0], shape[1], shape[2]);
  Vector<int64_t> rows(queries + keys - 1, -1);
  for (int64_t i = 0; i < heads * queries * keys; ++i) {
    const int64_t number = spreading.constant.origin.at(i) - initializer->first, key = i % keys,
                  query = i / keys % queries, head = i / (keys * queries);
    int64_t& row = rows[key - query + queries - 1];
    if (number < 0 || number % heads != head || (row >= 0 && row != number / heads)) return std::nullopt;
    row = number / heads;
  }
  const auto attributes = relative_buckets(rows, queries, table->shape[0]);
  if (!attributes) return std::nullopt;
  Value result = spreading.value;
  result.tensor =
      c.add_with_parameters(node, "relative_bias", {result.tensor}, *attributes, {{"weight", *table}}).tensor;
  return result;
}

Value of_two(Conversion& c, const Node& node, const std::string& type, const Value& a, const Value& b);

// x * constant or x + constant, by a parameter where the constant is trained, and a fixed one otherwise.
// `name`: of the constant where it may be trained.
Value with_constant(Conversion& c, const Node& node, bool product, const Value& x, const Constant& constant,
                    const std::string& name = "") {
  const bool trained = !constant.is_fixed();
  if (constant.is_scalar() && !trained) {
    if (constant.number() == (product ? 1 : 0)) return x;
    return c.add_elementwise(node, "affine", x, {{product ? "factor" : "offset", constant.number()}});
  }
  const auto whole = c.model.shapes.find(node.outputs[0]);
  if (!product && is_zero(constant) && whole != c.model.shapes.end() && whole->second == x.shape()) return x;
  // A parameter is trained as a whole: what is constant in part is joined of both. What others compute with is one
  // value.
  if (trained && !name.empty() && (constant.is_partly_trained() || c.is_computed_with(constant)))
    return of_two(c, node, product ? "mul" : "add", x, c.without_samples(node, name));
  // One row of a table for all positions is one row.
  const Constant once = without_repetition(constant);
  if (once.is_scalar()) return of_two(c, node, product ? "mul" : "add", x, c.without_samples(node, name));
  if (trained && !product && has_repetition(once))
    if (auto biased = with_relative_bias(c, node, x, once)) return *biased;
  if (trained && has_repetition(once))
    return of_two(c, node, product ? "mul" : "add", x, c.without_samples(node, name));
  const Spread spreading = spread(c, node, x, once);
  Value result = spreading.value;
  if (!product && trained && result.physical.size() == 3 && spreading.axes == Vector<int>{1, 2}) {
    result.tensor = c.add_with_parameters(node, "position_embedding", {result.tensor}, Json::object(),
                                          {{"weight", spreading.constant}})
                        .tensor;
    return result;
  }
  Json attributes = {{"axes", spreading.axes}};
  if (!trained) attributes["trained"] = false;
  result.tensor = c.add_with_parameters(node, product ? "broadcast_mul" : "broadcast_add", {result.tensor}, attributes,
                                        {{"weight", spreading.constant, trained}})
                      .tensor;
  return result;
}

bool has_size_one_where_other_has_not(const Shape& small, const Shape& large) {
  for (const int axis : small.indices())
    if (small[axis] == 1 && large[axis] != 1) return true;
  return false;
}

// Two values of the graph, of which the first one has all axes.
struct Operands {
  Value a, b;
  Vector<int> partner;   // by atom of a: that of b; -1: b is the same along it
  bool swapped = false;  // b is the node's first input
};

bool has_samples(const Value& value) {
  const Axis order = value.in_order();
  return std::find(order.begin(), order.end(), 0) != order.end();
}

Operands in_order(Conversion& c, const Node& node, Value a, Value b) {
  while (a.axes.size() < b.axes.size()) a.axes.insert(a.axes.begin(), Axis{});
  while (b.axes.size() < a.axes.size()) b.axes.insert(b.axes.begin(), Axis{});
  bool swapped = has_size_one_where_other_has_not(a.shape(), b.shape());
  if (swapped) std::swap(a, b);
  // What is the same for all samples lies along the other one's samples.
  const bool none = !has_samples(a) && !has_samples(b);
  const bool one = !none && !(has_samples(a) && has_samples(b));
  if (one && !has_samples(a)) {
    std::swap(a, b);
    swapped = !swapped;
  }
  for (const int axis : a.axes.indices())
    if (one && std::find(a.axes[axis].begin(), a.axes[axis].end(), 0) != a.axes[axis].end() && !b.axes[axis].empty())
      c.fail(node, "combines samples with what differs along them, which is not understood");
  for (const int axis : a.axes.indices())
    if ((!b.axes[axis].empty() || a.axes[axis].empty()) && !refine(a, axis, b, axis))
      c.fail(node, "combines tensors whose axes of shape " + to_string(a.shape()) + " are made up differently");
  Vector<int> partner(a.atoms.size(), -1);
  for (const int axis : a.axes.indices())
    for (const int i : b.axes[axis].indices()) partner[a.axes[axis][i]] = b.axes[axis][i];
  if (none || one) partner[0] = 0;
  return {std::move(a), std::move(b), std::move(partner), swapped};
}

// The second one's axes as the first one's lie.
Vector<Axis> partners(const Operands& operands, const Vector<Axis>& lying) {
  Vector<Axis> axes;
  for (const Axis& axis : lying) {
    axes.emplace_back();
    for (const int atom : axis) axes.back().push_back(operands.partner[atom]);
  }
  return axes;
}

Value of_one_shape(Conversion& c, const Node& node, const std::string& type, const Operands& operands) {
  const Value& a = operands.a;
  const Vector<Axis> lying = kept_or(a, Vector<bool>(a.atoms.size(), true), {});
  Axis rest;
  for (int atom = 1; atom < a.atoms.count(); ++atom) rest.push_back(atom);
  const Vector<Axis> flat{{0}, rest};
  const Value first = lying.empty() ? c.arranged(node, a, flat) : a;
  const Value second = c.arranged(node, operands.b, partners(operands, lying.empty() ? flat : lying));
  Value result = first;
  result.tensor = c.add(node, type,
                        operands.swapped ? Vector<std::string>{second.tensor, first.tensor}
                                         : Vector<std::string>{first.tensor, second.tensor})[0]
                      .tensor;
  return result;
}

Value of_different_shapes(Conversion& c, const Node& node, const std::string& type, const Operands& operands) {
  if (operands.partner[0] < 0) c.fail(node, "combines samples with what is the same for all of them");
  Vector<bool> has;
  for (const int other : operands.partner) has.push_back(other >= 0);
  const Vector<Axis> blocks = at_most_four(operands.a, has, kept_or(operands.a, has, blocks_of(operands.a, has)));
  Value large = c.arranged(node, operands.a, blocks);
  Vector<Axis> common;
  Vector<int> axes;
  for (const int block : blocks.indices()) {
    if (blocks[block].empty() || !has[blocks[block][0]]) continue;
    axes.push_back(block);
    common.push_back(blocks[block]);
  }
  Value small = c.arranged(node, operands.b, partners(operands, common));
  if (type == "sub") {  // large - small, or small - large
    Value& negative = operands.swapped ? large : small;
    negative = c.add_elementwise(node, "affine", negative, {{"factor", -1}});
  }
  Value result = large;
  result.tensor =
      c.add(node, type == "mul" ? "broadcast_mul" : "broadcast_add", {large.tensor, small.tensor}, {{"axes", axes}})[0]
          .tensor;
  return result;
}

// Of different shapes: only for sums, differences and products.
Value of_two(Conversion& c, const Node& node, const std::string& type, const Value& a, const Value& b) {
  const Operands operands = in_order(c, node, a, b);
  const Vector<int>& partner = operands.partner;
  const bool whole = std::none_of(partner.begin(), partner.end(), [](int atom) { return atom < 0; });
  return whole ? of_one_shape(c, node, type, operands) : of_different_shapes(c, node, type, operands);
}

// Is what the node writes read by softmax alone, and some element of each of its rows kept? Then a very low number that
// is added to an element does what it does in its place.
bool is_mask_of_softmax(const Conversion& c, const Node& node, const Constant& condition, bool kept) {
  const int rank = c.model.shapes.at(node.outputs[0]).count();
  for (const std::string& output : c.model.outputs)
    if (output == node.outputs[0]) return false;
  for (const Node& reader : c.model.nodes)
    for (const std::string& input : reader.inputs)
      if (input == node.outputs[0] &&
          (reader.op != "Softmax" || c.model.axis(reader, c.model.integer(reader, "axis", c.model.opset < 13 ? 1 : -1),
                                                  static_cast<size_t>(rank)) +
                                             1 !=
                                         rank))
        return false;
  const int64_t columns = condition.shape.empty() ? 1 : condition.shape.back();
  for (int64_t row = 0; row < condition.elements(); row += columns) {
    bool some = false;
    for (int64_t column = 0; column < columns; ++column) some = some || (condition.at(row + column) != 0) == kept;
    if (!some) return false;
  }
  return true;
}

}  // namespace

void convert_same(Conversion& c, const Node& node) { c.set(node, 0, c.value(node, 0)); }

// To another width of floats: all are 32 bits here. Integers (tokens) stay integers.
void convert_cast(Conversion& c, const Node& node) {
  const Value x = c.value(node, 0);
  const auto type = type_of_cast(c.model.integer(node, "to", 1));
  const auto from = c.model.types.find(node.inputs[0]);
  const ElementType before = from == c.model.types.end() ? ElementType::f32 : from->second;
  if (!type || (before == ElementType::f32 && *type != ElementType::f32))
    c.fail(node, "makes numbers of another type of what depends on the samples, which is not understood");
  if (before == ElementType::integer && *type == ElementType::boolean)
    c.fail(node, "makes conditions of integers, which is not understood");
  // Conditions are numbers here, 0 and 1, whatever they are cast to.
  c.set(node, 0, *type == ElementType::f32 ? c.as_floats(node, x, before == ElementType::boolean) : x);
}

// In training as the node says; where the model was exported for inference, nothing.
void convert_dropout(Conversion& c, const Node& node) {
  const Value x = c.value(node, 0);
  const double rate = c.model.number_or_input(node, "ratio", 1, 0.5);
  c.set(node, 0, drops(c.model, node) ? c.add_elementwise(node, "dropout", x, {{"rate", rate}}) : x);
}

void convert_unary(Conversion& c, const Node& node) {
  const auto number = [&](const char* name, double otherwise) { return c.model.number(node, name, otherwise); };
  Json attributes = Json::object();
  std::string type;
  if (node.op == "Relu") type = "relu";
  if (node.op == "Sigmoid") type = "sigmoid";
  if (node.op == "Tanh") type = "tanh";
  if (node.op == "Silu") type = "silu";
  if (node.op == "Gelu") {
    type = "gelu";
    if (c.model.text(node, "approximate", "none") == "tanh") attributes = {{"approximate", "tanh"}};
  }
  if (node.op == "Neg") {
    type = "affine";
    attributes = {{"factor", -1}};
  }
  if (node.op == "HardSigmoid") {
    type = "hard_sigmoid";
    attributes = {{"slope", number("alpha", 0.2)}, {"offset", number("beta", 0.5)}};
  }
  if (node.op == "HardSwish") type = "hard_swish";
  if (node.op == "Softplus") type = "softplus";
  if (node.op == "Mish") type = "mish";
  if (node.op == "Log") type = "log";
  if (node.op == "Exp") type = "exp";
  if (node.op == "Sin") type = "sin";
  if (node.op == "Elu") {
    type = "elu";
    attributes = {{"alpha", number("alpha", 1)}};
  }
  if (node.op == "LeakyRelu") {
    type = "leaky_relu";
    attributes = {{"slope", number("alpha", 0.01)}};
  }
  c.set(node, 0, c.add_elementwise(node, type, c.value(node, 0), attributes));
}

// A number times elu.
void convert_selu(Conversion& c, const Node& node) {
  const double alpha = c.model.number(node, "alpha", 1.67326319217681884765625),
               gamma = c.model.number(node, "gamma", 1.05070102214813232421875);
  const Value elu = c.add_elementwise(node, "elu", c.value(node, 0), {{"alpha", alpha}});
  c.set(node, 0, c.add_elementwise(node, "affine", elu, {{"factor", gamma}}));
}

void convert_square(Conversion& c, const Node& node) {
  Value x = c.value(node, 0);
  x.tensor = c.add(node, "mul", {x.tensor, x.tensor})[0].tensor;
  c.set(node, 0, x);
}

// relu(x) + relu(-x), whose slope at 0 is 0, as PyTorch has it.
void convert_abs(Conversion& c, const Node& node) {
  Value x = c.value(node, 0);
  const Value below = c.add_elementwise(node, "relu", c.add_elementwise(node, "affine", x, {{"factor", -1}}));
  x.tensor = c.add(node, "add", {c.add_elementwise(node, "relu", x).tensor, below.tensor})[0].tensor;
  c.set(node, 0, x);
}

// x above 0, trained slopes times x below: relu(x) - slopes * relu(-x).
void convert_prelu(Conversion& c, const Node& node) {
  Value x = c.value(node, 0);
  const Constant& slopes = c.required_constant(node, 1, "the slopes");
  const Value below = c.add_elementwise(node, "relu", c.add_elementwise(node, "affine", x, {{"factor", -1}}));
  const Value scaled = with_constant(c, node, true, below, slopes, node.inputs[1]);
  const Value above = c.add_elementwise(node, "relu", x);
  c.set(node, 0, of_two(c, node, "sub", above, scaled));
}

// By a small whole number: products, which numbers below zero have too.
void convert_pow(Conversion& c, const Node& node) {
  const Constant* exponent = c.constant(node, 1);
  constexpr int most = 8;
  if (!exponent || !exponent->is_scalar() || !exponent->is_fixed())
    c.fail(node, "has an exponent that is not one constant number, which is not understood");
  const Value x = c.value(node, 0);
  if (exponent->at(0) != std::round(exponent->at(0)) || exponent->at(0) < 1 || exponent->at(0) > most)
    return c.set(node, 0, c.add_elementwise(node, "pow", x, {{"exponent", exponent->number()}}));
  Value power = x;
  for (int i = 1; i < static_cast<int>(exponent->at(0)); ++i)
    power.tensor = c.add(node, "mul", {power.tensor, x.tensor})[0].tensor;
  c.set(node, 0, power);
}

void convert_clip(Conversion& c, const Node& node) {
  constexpr double all = 3.4e38;  // ONNX: all floats
  const double least = c.model.number_or_input(node, "min", 1, -all),
               most = c.model.number_or_input(node, "max", 2, all);
  if (!(least < most)) c.fail(node, "clips to a range without numbers");
  const Value x = c.value(node, 0);
  if (least == 0 && most >= all) return c.set(node, 0, c.add_elementwise(node, "relu", x));
  c.set(node, 0, c.add_elementwise(node, "clip", x, {{"least", least}, {"most", most}}));
}

void convert_binary(Conversion& c, const Node& node) {
  const bool product = node.op == "Mul" || node.op == "Div";
  // Of initializers alone, those that are trained are values.
  const auto operand = [&](size_t input) {
    const Constant* constant = c.repeated(node, input);
    const bool value = constant && (c.is_value_elsewhere(node.inputs[input]) || !constant->computed_from.empty() ||
                                    c.is_as_value(*constant) || (c.is_without_samples() && !constant->is_fixed()));
    return value ? nullptr : constant;
  };
  const Constant *first = operand(0), *second = operand(1);
  if (node.inputs.size() < 2 || (first && second)) c.fail(node, "has no two operands");
  if (!first && !second) {
    if (node.op == "Div") c.fail(node, "divides by what is no constant, which is not understood");
    return c.set(node, 0,
                 of_two(c, node,
                        node.op == "Add"   ? "add"
                        : node.op == "Sub" ? "sub"
                                           : "mul",
                        c.value(node, 0), c.value(node, 1)));
  }
  Constant constant = first ? *first : *second;
  Value x = c.value(node, first ? 1 : 0);
  const bool reversed = node.op == "Sub" || node.op == "Div";
  if (first && reversed) {
    if (node.op == "Div") c.fail(node, "divides by what is no constant, which is not understood");
    x = c.add_elementwise(node, "affine", x, {{"factor", -1}});
  }
  if (!first && reversed) {  // x - c and x / c
    if (!constant.is_fixed() && node.op == "Sub")
      return c.set(node, 0, of_two(c, node, "sub", x, c.without_samples(node, node.inputs[1])));
    if (!constant.is_fixed())
      c.fail(node, "subtracts or divides by the initializer \"" + constant.parameter + "\", which is not understood");
    Vector<float> values;
    for (int64_t i = 0; i < constant.elements(); ++i)
      values.push_back(static_cast<float>(node.op == "Sub" ? -constant.at(i) : 1 / constant.at(i)));
    constant = Constant::of_floats(constant.shape, std::move(values));
  }
  if (constant.type != ElementType::f32) {
    if (x.type != DataType::f32) c.fail(node, "computes with integers that depend on the samples");
    Vector<float> values;
    for (int64_t i = 0; i < constant.elements(); ++i) values.push_back(static_cast<float>(constant.at(i)));
    constant = Constant::of_floats(constant.shape, std::move(values));
  }
  c.set(node, 0, with_constant(c, node, product, x, constant, node.inputs[first ? 0 : 1]));
}

// A mask: x where the constant condition holds, a fixed number elsewhere (or the other way round). x times 0 or 1 plus
// the number or 0; in front of a softmax, where the number is very low, the sum alone does.
void convert_where(Conversion& c, const Node& node) {
  const Constant& condition = c.required_constant(node, 0, "the condition");
  const int chosen = c.constant(node, 1) ? 2 : 1;
  const Constant& fill = c.required_constant(node, chosen == 1 ? 2u : 1u, "one of the values");
  Value x = c.value(node, static_cast<size_t>(chosen));
  if (!fill.is_scalar()) c.fail(node, "fills by a constant of shape " + to_string(fill.shape));
  Vector<float> factors, summands;
  const bool sum_alone = fill.at(0) <= -1e4 && is_mask_of_softmax(c, node, condition, chosen == 1);
  for (int64_t i = 0; i < condition.elements(); ++i) {
    const bool keeps = (condition.at(i) != 0) == (chosen == 1);
    factors.push_back(keeps ? 1 : 0);
    summands.push_back(keeps ? 0 : static_cast<float>(fill.at(0)));
  }
  if (!sum_alone) x = with_constant(c, node, true, x, Constant::of_floats(condition.shape, std::move(factors)));
  if (fill.at(0) != 0) x = with_constant(c, node, false, x, Constant::of_floats(condition.shape, std::move(summands)));
  c.set(node, 0, x);
}

}  // namespace ff::importing
