// Functions, reductions, products and rearrangements that are written in terms of others.
#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "search/import/lowering.h"

namespace ff::importing {
namespace {

bool is_value(const Lowering& l, const std::string& name) { return !name.empty() && !l.constant(name); }

ElementType type_of(const Lowering& l, const std::string& name) {
  if (const Constant* constant = l.constant(name)) return constant->type;
  const auto it = l.model.types.find(name);
  return it == l.model.types.end() ? ElementType::f32 : it->second;
}

constexpr int64_t to_float = 1;  // TensorProto's number of f32

// Conditions and integers as numbers.
std::string as_floats(Lowering& l, const std::string& name) {
  if (type_of(l, name) == ElementType::f32) return name;
  const std::string result = l.emit("Cast", {name}, {{"to", to_float}});
  if (!l.constant(result)) l.model.types[result] = ElementType::f32;
  return result;
}

Vector<int> reduced_axes(Lowering& l) {
  const size_t rank = l.shape(l.input(0)).size();
  Vector<int> axes;
  for (const int64_t axis : l.model.integers_or_input(l.node, "axes", 1, {}))
    axes.push_back(l.model.axis(l.node, axis, rank));
  if (axes.empty() && l.model.integer(l.node, "noop_with_empty_axes", 0) == 0)
    for (size_t axis = 0; axis < rank; ++axis) axes.push_back(static_cast<int>(axis));
  std::sort(axes.begin(), axes.end());
  return axes;
}

Lowering::Attributes over(const Vector<int>& axes, bool keep = true) {
  return {{"axes", Vector<int64_t>(axes.begin(), axes.end())}, {"keepdims", int64_t{keep}}};
}

std::string sum_over(Lowering& l, const std::string& x, const Vector<int>& axes) {
  int64_t count = 1;
  for (const int axis : axes) count *= l.shape(x)[axis];
  const std::string mean = l.emit("ReduceMean", {x}, over(axes));
  return count == 1 ? mean : l.emit("Mul", {mean, l.number(static_cast<double>(count))});
}

// The largest along some axes, which stay with size 1: a pool that is as long as they are.
std::string largest_over(Lowering& l, const std::string& x, const Vector<int>& axes) {
  const Shape shape = l.shape(x);
  Vector<int64_t> order;
  Shape result = shape;
  int64_t positions = 1;
  for (const int axis : shape.indices())
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) order.push_back(axis);
  for (const int axis : axes) {
    order.push_back(axis);
    positions *= shape[axis];
    result[axis] = 1;
  }
  if (axes.empty() || axes[0] == 0) l.fail("works across the samples, which is not understood");
  if (positions == 1) return x;
  const std::string rows =
      l.reshape(l.transpose(x, order), {shape[0], volume(shape) / shape[0] / positions, positions});
  return l.reshape(l.emit("MaxPool", {rows},
                          {{"kernel_shape", Vector<int64_t>{positions}}, {"strides", Vector<int64_t>{positions}}}),
                   result);
}

// Of copies, `times[axis]` along each axis.
std::string repeated(Lowering& l, std::string x, const Vector<int64_t>& times) {
  for (const int axis : times.indices())
    if (times[axis] > 1) {
      if (axis == 0 && !l.constant(x)) l.fail("repeats the samples, which is not understood");
      x = l.concat(Vector<std::string>(static_cast<size_t>(times[axis]), x), axis);
    }
  return x;
}

std::string negated(Lowering& l, const std::string& x) { return l.emit("Neg", {x}); }

}  // namespace

// Conditions of numbers: what is not 0.
bool lower_cast(Lowering& l) {
  if (!is_value(l, l.input(0)) || type_of_cast(l.model.integer(l.node, "to", 1)) != ElementType::boolean ||
      type_of(l, l.input(0)) == ElementType::boolean)
    return false;
  const std::string zero = l.emit("Equal", {l.input(0), l.number(0)});
  l.model.types[zero] = ElementType::boolean;
  l.give(0, l.emit("Not", {zero}));
  return true;
}

bool lower_reduction(Lowering& l) {
  const Vector<int> axes = reduced_axes(l);
  const std::string x = as_floats(l, l.input(0)), &op = l.node.op;
  const Shape shape = l.shape(x), out = l.model.shapes.at(l.node.outputs[0]);
  const bool nothing = std::all_of(axes.begin(), axes.end(), [&](int axis) { return shape[axis] == 1; });
  std::string y;
  if (op == "ReduceMean") {
    if (!nothing) return false;
    y = x;
  } else if (axes.empty()) {  // noop_with_empty_axes
    y = x;
  } else if (op == "ReduceSum") {
    y = nothing ? x : sum_over(l, x, axes);
  } else if (op == "ReduceMax") {
    y = largest_over(l, x, axes);
  } else if (op == "ReduceMin") {
    y = negated(l, largest_over(l, negated(l, x), axes));
  } else if (op == "ReduceL1") {
    y = sum_over(l, l.emit("Abs", {x}), axes);
  } else if (op == "ReduceSumSquare") {
    y = sum_over(l, l.emit("Square", {x}), axes);
  } else if (op == "ReduceL2") {
    y = l.emit("Sqrt", {sum_over(l, l.emit("Square", {x}), axes)});
  } else if (op == "ReduceLogSum") {
    y = l.emit("Log", {sum_over(l, x, axes)});
  } else {  // ReduceLogSumExp: of the differences from the largest, so that exp does not overflow
    const std::string largest = largest_over(l, x, axes);
    y = l.emit("Add", {l.emit("Log", {sum_over(l, l.emit("Exp", {l.emit("Sub", {x, largest})}), axes)}), largest});
  }
  l.give(0, l.reshape(y, out));
  return true;
}

bool lower_function(Lowering& l) {
  const std::string x = l.input(0), &op = l.node.op;
  const auto power = [&](double exponent) { return l.emit("Pow", {x, l.number(exponent)}); };
  std::string y;
  if (op == "Reciprocal") y = power(-1);
  if (op == "Sqrt") y = power(0.5);
  if (op == "InverseSqrt") y = power(-0.5);
  if (op == "Cos") y = l.emit("Sin", {l.emit("Add", {x, l.number(std::acos(-1.0) / 2)})});
  if (op == "Swish")
    y = l.emit("Mul", {x, l.emit("Sigmoid", {l.emit("Mul", {x, l.number(l.model.number(l.node, "alpha", 1))})})});
  if (op == "LogSigmoid") {
    const bool complement = l.model.integer(l.node, "complement", 0) != 0;  // log(1 - sigmoid(x))
    y = l.emit("Neg", {l.emit("Softplus", {complement ? x : l.emit("Neg", {x})})});
  }
  if (op == "Softsign") {
    const std::string below = l.emit("Add", {l.emit("Abs", {x}), l.number(1)});
    y = l.emit("Mul", {x, l.emit("Pow", {below, l.number(-1)})});
  }
  if (op == "Celu") {
    const double alpha = l.model.number(l.node, "alpha", 1);
    const std::string elu = l.emit("Elu", {l.emit("Mul", {x, l.number(1 / alpha)})}, {{"alpha", 1.0}});
    y = l.emit("Mul", {elu, l.number(alpha)});
  }
  if (y.empty()) return false;
  l.give(0, y);
  return true;
}

namespace {

// A constant that is not trained without axes along which it is the same.
std::string shrunk(Lowering& l, std::string constant) {
  if (!l.constant(constant)->is_fixed() || l.constant(constant)->elements() > 1 << 24) return constant;
  for (int axis = 0; axis < l.shape(constant).count(); ++axis) {
    const Constant& known = *l.constant(constant);
    int64_t inner = 1;
    for (int behind = axis + 1; behind < known.shape.count(); ++behind) inner *= known.shape[behind];
    const int64_t size = known.shape[axis];
    bool same = size > 1;
    for (int64_t i = 0; same && i < known.elements(); ++i) same = known.at(i) == known.at(i - i / inner % size * inner);
    if (same) constant = l.slice(constant, axis, 0, 1);
  }
  return constant;
}

// Of a value and a constant: the value is repeated where the constant is larger.
bool combined_with_constant(Lowering& l) {
  // Of two constants, what is trained counts as a value.
  const auto is_trained = [&](size_t i) { return l.constant(l.input(i)) && !l.constant(l.input(i))->is_fixed(); };
  const bool values = is_value(l, l.input(0)) || is_value(l, l.input(1));
  if (!values && is_trained(0) == is_trained(1)) return false;
  const size_t place = (values ? is_value(l, l.input(0)) : is_trained(0)) ? 0 : 1;
  const std::string value = l.input(place), constant = l.input(1 - place);
  const Shape out = l.model.shapes.at(l.node.outputs[0]);
  Shape x = l.shape(value);
  x.insert(x.begin(), out.size() - x.size(), 1);
  const std::string small = shrunk(l, constant);
  if (x == out && small == constant) return false;
  Vector<int64_t> times;
  for (const int axis : out.indices()) times.push_back(out[axis] / x[axis]);
  if (small == constant && std::all_of(times.begin(), times.end(), [](int64_t each) { return each == 1; }))
    return false;
  Vector<std::string> operands{repeated(l, l.reshape(value, x), times), small};
  if (place == 1) std::swap(operands[0], operands[1]);
  l.give(0, l.emit(l.node.op, operands));
  return true;
}

}  // namespace

// Where each of two values is repeated along an axis of the other one, the first is repeated beforehand.
bool lower_broadcast(Lowering& l) {
  if (!is_value(l, l.input(0)) || !is_value(l, l.input(1))) return combined_with_constant(l);
  Shape a = l.shape(l.input(0)), b = l.shape(l.input(1));
  const Shape out = l.model.shapes.at(l.node.outputs[0]);
  if (out.size() < 2) return false;
  a.insert(a.begin(), out.size() - a.size(), 1);
  b.insert(b.begin(), out.size() - b.size(), 1);
  bool first = false, second = false;
  for (const int axis : out.indices()) {
    first = first || (a[axis] == 1 && b[axis] > 1);
    second = second || (b[axis] == 1 && a[axis] > 1);
  }
  if (!first || !second) return false;
  Vector<int64_t> times;
  for (const int axis : out.indices()) times.push_back(axis == 0 ? 1 : out[axis] / a[axis]);
  l.give(0, l.emit(l.node.op, {repeated(l, l.reshape(l.input(0), a), times), l.input(1)}));
  return true;
}

// By a value: times its inverse. What is computed from initializers counts as one.
bool lower_division(Lowering& l) {
  const Constant* divisor = l.constant(l.input(1));
  if (divisor && divisor->is_fixed()) return false;
  l.give(0, l.emit("Mul", {l.input(0), l.emit("Pow", {as_floats(l, l.input(1)), l.number(-1)})}));
  return true;
}

namespace {

std::string larger(Lowering& l, const std::string& a, const std::string& b) {
  if (l.constant(a)) return larger(l, b, a);
  const Constant* limit = l.constant(b);
  if (limit && limit->is_scalar() && limit->is_fixed()) return l.emit("Clip", {a, b});
  const Shape shape = l.shape(a);
  if (!limit && shape == l.shape(b) && !shape.empty()) return l.largest({a, b});
  return l.emit("Add", {a, l.emit("Relu", {l.emit("Sub", {b, a})})});
}

}  // namespace

bool lower_variadic(Lowering& l) {
  if (l.node.inputs.size() < 2) {
    l.give(0, l.input(0));
    return true;
  }
  const std::string& op = l.node.op;
  std::string y = op == "Min" ? negated(l, l.input(0)) : l.input(0);
  for (size_t i = 1; i < l.node.inputs.size(); ++i) {
    if (op == "Sum" || op == "Mean") y = l.emit("Add", {y, l.input(i)});
    else y = larger(l, y, op == "Min" ? negated(l, l.input(i)) : l.input(i));
  }
  if (op == "Mean") y = l.emit("Mul", {y, l.number(1 / static_cast<double>(l.node.inputs.size()))});
  l.give(0, op == "Min" ? negated(l, y) : y);
  return true;
}

namespace {

// 1 where the difference is above zero, and 0 elsewhere; of a condition no gradient is asked.
std::string step(Lowering& l, const std::string& difference) {
  return l.emit("Clip", {l.emit("Mul", {difference, l.number(1e30)}), l.number(0), l.number(1)});
}

std::string complement(Lowering& l, const std::string& condition) {
  return l.emit("Add", {negated(l, condition), l.number(1)});
}

}  // namespace

// Conditions that depend on the inputs are numbers, 0 and 1.
bool lower_condition(Lowering& l) {
  const std::string& op = l.node.op;
  const std::string a = as_floats(l, l.input(0));
  std::string y;
  if (op == "Not") {
    y = complement(l, a);
  } else {
    const std::string b = as_floats(l, l.input(1));
    if (op == "And") y = l.emit("Mul", {a, b});
    else if (op == "Or") y = l.emit("Sub", {l.emit("Add", {a, b}), l.emit("Mul", {a, b})});
    else if (op == "Greater") y = step(l, l.emit("Sub", {a, b}));
    else if (op == "Less") y = step(l, l.emit("Sub", {b, a}));
    else if (op == "GreaterOrEqual") y = complement(l, step(l, l.emit("Sub", {b, a})));
    else if (op == "LessOrEqual") y = complement(l, step(l, l.emit("Sub", {a, b})));
    else if (op == "Equal") y = complement(l, step(l, l.emit("Abs", {l.emit("Sub", {a, b})})));
    else if (op == "Xor") y = l.emit("Abs", {l.emit("Sub", {a, b})});
    else return false;
  }
  l.give(0, y);
  return true;
}

bool lower_where(Lowering& l) {
  const Constant *condition = l.constant(l.input(0)), *a = l.constant(l.input(1)), *b = l.constant(l.input(2));
  if (condition && ((a && a->is_scalar() && a->is_fixed()) || (b && b->is_scalar() && b->is_fixed()))) return false;
  const std::string chosen = as_floats(l, l.input(0)), other = complement(l, chosen);
  // A number that is not finite would make 0 times it no number.
  const auto bounded = [&](const std::string& name) {
    const Constant* constant = l.constant(name);
    if (!constant || !constant->floats || !constant->is_fixed()) return as_floats(l, name);
    Vector<float> values = *constant->floats;
    for (float& value : values) value = std::clamp(value, -1e30f, 1e30f);
    return l.add_constant(Constant::of_floats(constant->shape, std::move(values)));
  };
  l.give(0, l.emit("Add", {l.emit("Mul", {chosen, bounded(l.input(1))}), l.emit("Mul", {other, bounded(l.input(2))})}));
  return true;
}

// A triangle of a value: times zeros and ones.
bool lower_triangle(Lowering& l) {
  const Shape shape = l.shape(l.input(0));
  if (shape.size() < 2) return false;
  const Shape matrix(shape.end() - 2, shape.end());
  const std::string ones = l.add_constant(Constant::of_floats(matrix, Vector<float>(volume(matrix), 1.0f)));
  Vector<std::string> inputs = l.node.inputs;
  inputs[0] = ones;
  l.give(0, l.emit("Mul", {l.input(0), l.emit("Trilu", inputs, l.node.attributes)}));
  return true;
}

// Sums of all elements up to each: a product with zeros and ones.
bool lower_cumulative_sum(Lowering& l) {
  if (!is_value(l, l.input(0))) return false;
  if (const auto type = l.model.types.find(l.input(0)); type != l.model.types.end() && type->second != ElementType::f32)
    l.fail("adds up integers, which is not understood");
  const Shape shape = l.shape(l.input(0));
  const int axis = cumulative_axis(l.model, l.node, shape);
  const int64_t size = shape[axis];
  l.give(0, l.product(l.input(0), axis, Constant::of_floats({size, size}, cumulative_matrix(l.model, l.node, size))));
  return true;
}

namespace {

// By constant indices: elements of the axis, where they are the same for all rows; otherwise of the axis and of those
// along which the indices differ, taken as one, or row by row.
bool gather_by_constants(Lowering& l, const Constant& indices, int axis) {
  const Shape x = l.shape(l.input(0));
  Shape kept = indices.shape;
  const Vector<int64_t> numbers = indices.as_integers();
  Vector<int64_t> strides(kept.size(), 1);
  for (int other = kept.count() - 2; other >= 0; --other) strides[other] = strides[other + 1] * kept[other + 1];
  Vector<int64_t> order, behind;  // axes of the indices' rows: those that are alike, those that are not
  for (const int other : kept.indices()) {
    if (other != axis && kept[other] != x[other])
      l.fail("has indices of shape " + to_string(kept) + " for shape " + to_string(x));
    bool same = true;
    for (int64_t e = 0; same && e < indices.elements(); ++e)
      same = numbers[e] == numbers[e - e / strides[other] % kept[other] * strides[other]];
    if (other != axis) (same ? order : behind).push_back(other);
  }
  if (!behind.empty() && behind[0] == 0) l.fail("takes elements by indices that differ among the samples");
  int64_t rows = 1;
  for (const int64_t other : behind) rows *= kept[other];
  Shape result;
  for (const int64_t other : order) result.push_back(kept[other]);
  const int64_t size = x[axis], count = kept[axis], first = result.count();
  const Vector<int64_t> alike = result;
  Vector<int64_t> chosen;  // by row
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < count; ++i) {
      int64_t at = i * strides[axis], rest = row;
      for (int other = behind.count() - 1; other >= 0; rest /= kept[behind[other--]])
        at += rest % kept[behind[other]] * strides[behind[other]];
      const int64_t index = numbers[at] < 0 ? numbers[at] + size : numbers[at];
      if (index < 0 || index >= size) l.fail("chooses what is not there");
      chosen.push_back(index);
    }
  if (rows == 1) {
    const std::string list = l.add_constant(Constant::of_integers({count}, chosen));
    l.give(0, l.emit("Gather", {l.input(0), list}, {{"axis", int64_t{axis}}}));
    return true;
  }
  constexpr int64_t most_rows = 256;
  if (l.constant(l.input(0)) || rows > most_rows)
    l.fail("takes elements by " + std::to_string(rows) + " different rows of indices, which is not understood");
  for (const int64_t other : behind) result.push_back(kept[other]);
  order.insert(order.end(), behind.begin(), behind.end());
  order.push_back(axis);
  result.push_back(count);
  Shape flat = alike;
  flat.push_back(rows);
  flat.push_back(size);
  const std::string all = l.reshape(l.transpose(l.input(0), order), flat);
  Vector<std::string> parts;
  for (int64_t row = 0; row < rows; ++row)
    parts.push_back(l.take(l.slice(all, static_cast<int>(first), row, row + 1), static_cast<int>(first) + 1,
                           Vector<int64_t>(chosen.begin() + row * count, chosen.begin() + (row + 1) * count)));
  Vector<int64_t> back(order.size(), 0);
  for (const int i : order.indices()) back[order[i]] = i;
  l.give(0, l.transpose(l.reshape(l.concat(parts, static_cast<int>(first)), result), back));
  return true;
}

}  // namespace

// One element of each row by an index of the row: the sum of the row times zeros and a one.
bool lower_gather_elements(Lowering& l) {
  if (const Constant* indices = l.constant(l.input(1)); indices && l.shape(l.input(0)).size() == indices->shape.size())
    return gather_by_constants(l, *indices,
                               l.model.axis(l.node, l.model.integer(l.node, "axis", 0), l.shape(l.input(0)).size()));
  if (!is_value(l, l.input(0)) || !is_value(l, l.input(1))) return false;
  const Shape x = l.shape(l.input(0)), indices = l.shape(l.input(1));
  const int axis = l.model.axis(l.node, l.model.integer(l.node, "axis", 0), x.size());
  if (axis == 0) l.fail("takes elements of other samples, which is not understood");
  Shape one = x;
  one[axis] = indices[axis];
  constexpr int64_t most = 64;
  if (indices != one || indices[axis] > most)
    l.fail("takes elements by indices of shape " + to_string(indices) + " from " + to_string(x) +
           ", which is not understood");
  Vector<std::string> parts;
  for (int64_t i = 0; i < indices[axis]; ++i) {
    Shape rows = indices;
    rows.erase(rows.begin() + axis);
    const std::string chosen =
        l.emit("OneHot",
               {l.reshape(l.slice(l.input(1), axis, i, i + 1), rows),
                l.add_constant(Constant::of_integers({}, {x[axis]})), l.add_constant(Constant::of_floats({2}, {0, 1}))},
               {{"axis", int64_t{axis}}});
    parts.push_back(sum_over(l, l.emit("Mul", {l.input(0), chosen}), {axis}));
  }
  l.give(0, l.concat(parts, axis));
  return true;
}

bool lower_tile(Lowering& l) {
  const Shape from = l.shape(l.input(0)), to = l.model.shapes.at(l.node.outputs[0]);
  if (const Constant* constant = l.constant(l.input(0))) {  // repeated for each sample, as Expand does it
    bool expands = true;
    for (const int axis : from.indices()) expands = expands && (from[axis] == 1 || from[axis] == to[axis]);
    if (!expands || constant->is_fixed()) return false;
    Node expand{l.node.name,
                "Expand",
                {l.input(0), l.add_constant(Constant::of_integers({to.count()}, to))},
                {l.node.outputs[0]},
                {}};
    l.nodes.push_back(expand);
    return true;
  }
  Vector<int64_t> times;
  for (const int axis : from.indices()) times.push_back(to[axis] / from[axis]);
  l.give(0, repeated(l, l.input(0), times));
  return true;
}

// Along several axes: one after the other.
bool lower_expand(Lowering& l) {
  if (l.constant(l.input(0))) return false;
  Shape from = l.shape(l.input(0));
  const Shape to = l.model.shapes.at(l.node.outputs[0]);
  from.insert(from.begin(), to.size() - from.size(), 1);
  Vector<int64_t> times;
  int axes = 0;
  for (const int axis : to.indices()) {
    times.push_back(to[axis] / from[axis]);
    axes += times[axis] > 1 ? 1 : 0;
  }
  if (axes <= 1) return false;
  l.give(0, repeated(l, l.reshape(l.input(0), from), times));
  return true;
}

// repeat_interleave as PyTorch's exporter writes it: slices of one element along an axis, each repeated, and joined.
// That is one Expand (heads of queries that share keys and values).
bool lower_concat(Lowering& l) {
  const auto producers = l.model.producers();
  const std::function<const Node*(const std::string&, const char*)> writer = [&](const std::string& value,
                                                                                 const char* op) -> const Node* {
    const auto it = producers.find(value);
    if (it == producers.end()) return nullptr;
    if (it->second->op == "Identity") return writer(it->second->inputs[0], op);
    return it->second->op == op ? it->second : nullptr;
  };
  const Shape out = l.model.shapes.at(l.node.outputs[0]);
  const int axis = l.model.axis(l.node, l.model.integer(l.node, "axis", 1), out.size());
  const Node* split = nullptr;
  const int64_t count = l.node.inputs.count(), times = count > 1 ? l.shape(l.input(0))[axis] : 0;
  if (times < 2 || out[axis] != count * times) return false;
  for (const int i : l.node.inputs.indices()) {
    const Node* reshape = writer(l.node.inputs[i], "Reshape");
    const Node* expand = reshape ? writer(reshape->inputs[0], "Expand") : nullptr;
    const Node* unsqueeze = expand ? writer(expand->inputs[0], "Unsqueeze") : nullptr;
    const Node* source = unsqueeze ? writer(unsqueeze->inputs[0], "Split") : nullptr;
    if (!source || (split && source != split) || source->outputs.count() != count) return false;
    split = source;
    Shape part = l.shape(split->outputs[i]), apart = part, repeated = out;
    apart.insert(apart.begin() + axis + 1, 1);
    if (part[axis] != 1 || l.shape(unsqueeze->outputs[0]) != apart) return false;
    // Is it this output of the Split?
    std::string from = unsqueeze->inputs[0];
    while (producers.at(from)->op == "Identity") from = producers.at(from)->inputs[0];
    apart[axis + 1] = repeated[axis] = times;
    if (from != split->outputs[i] || l.shape(expand->outputs[0]) != apart || l.shape(l.node.inputs[i]) != repeated)
      return false;
  }
  Shape rows = l.shape(split->inputs[0]);
  if (l.constant(split->inputs[0]) || rows[axis] != count) return false;
  rows.insert(rows.begin() + axis + 1, 1);
  const std::string apart = l.reshape(split->inputs[0], rows);
  rows[axis + 1] = times;
  l.give(0, l.reshape(l.emit("Expand", {apart, l.add_constant(Constant::of_integers({rows.count()}, rows))}), out));
  return true;
}

// Every other element, and backwards.
bool lower_slice(Lowering& l) {
  const Shape x = l.shape(l.input(0));
  const Vector<SliceRange> ranges = slice_ranges(l.model, l.node, x);
  bool plain = true;
  for (const SliceRange& range : ranges) plain = plain && (range.step == 1 || range.count == 1);
  if (plain || l.constant(l.input(0))) return false;
  std::string y = l.input(0);
  for (const int axis : ranges.indices()) {
    const SliceRange& range = ranges[axis];
    if (range.step > 0 || range.count == 1) {
      y = l.every(y, axis, range.begin, std::max<int64_t>(1, range.step), range.count);
      continue;
    }
    Vector<int64_t> indices;
    for (int64_t i = 0; i < range.count; ++i) indices.push_back(range.begin + i * range.step);
    y = l.take(y, axis, indices);
  }
  l.give(0, y);
  return true;
}

namespace {

// Rows of a table by tokens to which each position adds a constant: a table of its own for each position.
bool lookup_with_offsets(Lowering& l) {
  const Node* sum = nullptr;
  for (const Node& other : l.model.nodes)
    if (other.op == "Add" && other.outputs[0] == l.input(1)) sum = &other;
  if (!sum) return false;
  const int constant_input = l.constant(sum->inputs[0]) ? 0 : 1;
  const Constant* offsets = l.constant(sum->inputs[static_cast<size_t>(constant_input)]);
  const std::string tokens = sum->inputs[static_cast<size_t>(1 - constant_input)];
  const Shape shape = l.shape(tokens), table = l.shape(l.input(0));
  if (!offsets || !offsets->integers || l.constant(tokens) || shape.size() != 2 || table.size() != 2 ||
      (offsets->elements() != shape[1] && !offsets->is_scalar()))
    return false;
  const Vector<int64_t> first = offsets->as_integers();
  Vector<std::string> parts;
  for (int64_t position = 0; position < shape[1]; ++position) {
    const int64_t begin = first[offsets->is_scalar() ? 0 : position];
    int64_t end = table[0];
    for (const int64_t other : first) end = other > begin ? std::min(end, other) : end;
    if (begin < 0 || begin >= end) l.fail("has an offset outside of its table");
    const std::string own = l.reshape(l.slice(tokens, 1, position, position + 1), {shape[0]});
    const std::string rows = l.emit("Gather", {l.slice(l.input(0), 0, begin, end), own});
    l.model.types[rows] = ElementType::f32;
    parts.push_back(l.reshape(rows, {shape[0], 1, table[1]}));
    l.model.types[parts.back()] = ElementType::f32;
  }
  l.give(0, l.concat(parts, 1));
  return true;
}

}  // namespace

// By constant indices that do not follow one another.
bool lower_gather(Lowering& l) {
  const Constant *table = l.constant(l.input(0)), *indices = l.constant(l.input(1));
  if (table && !indices) return lookup_with_offsets(l);
  if (table || !indices) return false;
  const Shape x = l.shape(l.input(0));
  const int axis = l.model.axis(l.node, l.model.integer(l.node, "axis", 0), x.size());
  Vector<int64_t> chosen;
  bool follow = indices->shape.size() <= 1;
  for (const int64_t index : indices->as_integers()) {
    chosen.push_back(index < 0 ? index + x[axis] : index);
    if (chosen.back() < 0 || chosen.back() >= x[axis]) l.fail("chooses what is not there");
    follow = follow && (chosen.size() == 1 || chosen[chosen.count() - 2] + 1 == chosen.back());
  }
  if (follow) return false;
  l.give(0, l.reshape(l.take(l.input(0), axis, chosen), l.model.shapes.at(l.node.outputs[0])));
  return true;
}

namespace {

// Matrices of one of two values that several of the other one have in common: keys of all heads. Samples are not
// repeated.
bool repeated_matrices(Lowering& l) {
  const Shape left = l.shape(l.input(0)), right = l.shape(l.input(1)), out = l.model.shapes.at(l.node.outputs[0]);
  if (left.size() < 2 || right.size() < 2) return false;
  const auto times = [&](const Shape& shape) {
    Vector<int64_t> result(out.size(), 1);
    const int missing = out.count() - shape.count();
    for (int axis = 0; axis + 2 < out.count(); ++axis)
      result[axis] = axis < missing ? out[axis] : out[axis] / shape[axis - missing];
    return result;
  };
  const Vector<int64_t> once(out.size(), 1);
  Vector<int64_t> first = times(left), second = times(right);
  if (l.constant(l.input(0))) first[0] = 1;  // the same for all samples
  if (l.constant(l.input(1))) second[0] = 1;
  if ((first == once && second == once) || first[0] != 1 || second[0] != 1) return false;
  const auto operand = [&](size_t i, Shape shape, const Vector<int64_t>& copies) {
    if (copies == once) return l.input(i);
    shape.insert(shape.begin(), out.size() - shape.size(), 1);
    return repeated(l, l.reshape(l.input(i), shape), copies);
  };
  const std::string a = operand(0, left, first), b = operand(1, right, second);
  l.give(0, l.emit("MatMul", {a, b}));
  return true;
}

// A value and constant matrices that differ along its axes before the last two (groups of channels, capsules): an
// Einsum, whose letters are the axes that are longer than one.
bool product_with_stack(Lowering& l) {
  const Shape left = l.shape(l.input(0)), right = l.shape(l.input(1)), out = l.model.shapes.at(l.node.outputs[0]);
  const int rank = std::max(left.count(), right.count());
  const auto letters_of = [&](const Shape& shape, bool first) {
    std::string letters;
    for (const int axis : shape.indices()) {
      const int place = axis + rank - shape.count();
      const char letter = place == rank - (first ? 1 : 2) ? 'k' : static_cast<char>('A' + place);
      letters += letter;
    }
    return letters;
  };
  std::string of_left = letters_of(left, true), of_right = letters_of(right, false), of_out;
  for (int place = 0; place < rank; ++place) of_out += static_cast<char>('A' + place);
  // Axes of size 1 have no letter.
  const auto without_ones = [&](const std::string& x, std::string& letters) {
    const Shape shape = l.shape(x);
    Shape kept;
    std::string rest;
    for (const int axis : shape.indices())
      if (const char letter = letters[static_cast<size_t>(axis)]; shape[axis] > 1 || letter == 'k' || letter == 'A') {
        kept.push_back(shape[axis]);
        rest += letter;
      }
    letters = rest;
    return l.reshape(x, kept);
  };
  const bool constant_first = l.constant(l.input(0)) != nullptr;
  std::string& of_constant = constant_first ? of_left : of_right;
  const Shape stack = constant_first ? left : right;
  const bool both = left.size() == right.size();  // have an axis of the samples
  if (both && stack[0] != 1) return false;        // a matrix of its own for each sample
  std::string a = without_ones(l.input(0), of_left), b = without_ones(l.input(1), of_right);
  if (both) {
    std::string& own = constant_first ? a : b;
    Shape shape = l.shape(own);
    shape.erase(shape.begin());
    own = l.reshape(own, shape);
    of_constant.erase(0, 1);
  }
  std::string result;
  for (const char letter : of_out)
    if (of_left.find(letter) != std::string::npos || of_right.find(letter) != std::string::npos) result += letter;
  l.give(0, l.reshape(l.emit("Einsum", {a, b}, {{"equation", of_left + "," + of_right + "->" + result}}), out));
  return true;
}

}  // namespace

// One operand is a constant matrix, on the left or not trained; or a vector; or constant matrices.
bool lower_matmul(Lowering& l) {
  // What is computed of initializers is a value.
  const auto constant = [&](size_t i) {
    const Constant* known = l.constant(l.input(i));
    return known && known->computed_from.empty() ? known : nullptr;
  };
  const Constant *a = constant(0), *b = constant(1);
  const Shape left = l.shape(l.input(0)), right = l.shape(l.input(1)), out = l.model.shapes.at(l.node.outputs[0]);
  const auto matrix = [&](const std::string& name) {
    const Shape shape = l.shape(name);
    return l.reshape(name, {shape[shape.count() - 2], shape.back()});
  };
  const auto is_matrix = [](const Shape& shape) {
    return shape.size() > 1 && volume(shape) == shape[shape.count() - 2] * shape.back();
  };
  if (right.size() == 1 && left.size() > 1) {
    l.give(0, l.reshape(l.emit("MatMul", {l.input(0), l.reshape(l.input(1), {right[0], 1})}), out));
    return true;
  }
  if (b && is_matrix(right) && (b->is_fixed() || right.size() > 2)) {
    const std::string own = matrix(l.input(1));
    if (!b->is_fixed()) l.give(0, l.reshape(l.emit("MatMul", {l.input(0), own}), out));
    else l.give(0, l.reshape(l.product(l.input(0), left.count() - 1, transposed(*l.constant(own), {1, 0})), out));
    return true;
  }
  if (!a && !b) return repeated_matrices(l);
  if (!a == !b || left.size() < 2 || right.size() < 2) return false;
  if ((a && !is_matrix(left)) || (b && !is_matrix(right))) return product_with_stack(l);
  if (!a) return false;
  const std::string own = matrix(l.input(0));
  const int rank = right.count();
  if (a->is_fixed()) {
    l.give(0, l.reshape(l.product(l.input(1), rank - 2, *l.constant(own)), out));
    return true;
  }
  Vector<int64_t> order;
  for (int axis = 0; axis < rank; ++axis) order.push_back(axis);
  std::swap(order[rank - 2], order[rank - 1]);
  const std::string rows = l.emit("MatMul", {l.transpose(l.input(1), order), l.transpose(own, {1, 0})});
  l.give(0, l.reshape(l.transpose(rows, order), out));
  return true;
}

namespace {

bool has_letter(const std::string& letters, char letter) { return letters.find(letter) != std::string::npos; }

bool are_distinct(const std::string& letters) {
  return std::set<char>(letters.begin(), letters.end()).size() == letters.size();
}

int64_t size_of_letters(const std::string& letters, const std::map<char, int64_t>& sizes) {
  int64_t size = 1;
  for (const char letter : letters) size *= sizes.at(letter);
  return size;
}

// The axes in another order.
std::string ordered(Lowering& l, const std::string& x, const std::string& from, const std::string& to) {
  Vector<int64_t> order;
  for (const char letter : to) order.push_back(static_cast<int64_t>(from.find(letter)));
  return l.transpose(x, order);
}

// With axes of size 1 for the letters that it lacks.
std::string spread(Lowering& l, const std::string& x, const std::string& letters, const std::string& to,
                   const std::map<char, int64_t>& sizes) {
  std::string own;
  Shape shape;
  for (const char letter : to) {
    shape.push_back(has_letter(letters, letter) ? sizes.at(letter) : 1);
    if (has_letter(letters, letter)) own += letter;
  }
  return l.reshape(ordered(l, x, letters, own), shape);
}

// An Einsum of one value: sums, and the axes in another order.
bool einsum_of_one(Lowering& l, const Vector<std::string>& letters) {
  if (!are_distinct(letters[0])) return false;
  Vector<int> summed;
  std::string left;
  for (size_t axis = 0; axis < letters[0].size(); ++axis) {
    if (has_letter(letters[1], letters[0][axis])) left += letters[0][axis];
    else summed.push_back(static_cast<int>(axis));
  }
  const std::string sum = summed.empty() ? l.input(0) : l.emit("ReduceSum", {l.input(0)}, over(summed, false));
  l.give(0, ordered(l, sum, left, letters[1]));
  return true;
}

// An Einsum of a value and a constant, by the letters of both. Those of both operands and of the result (experts that
// have a matrix each) are taken one by one, so that each matrix is a layer's weight.
bool einsum_by_constant(Lowering& l, const Vector<std::string>& letters) {
  const int value = l.constant(l.input(0)) ? 1 : 0;
  const std::string x = l.input(static_cast<size_t>(value)), w = l.input(static_cast<size_t>(1 - value));
  const std::string of_x = letters[value], of_w = letters[1 - value], out = letters[2];
  if (!are_distinct(of_x) || !are_distinct(of_w) || !are_distinct(out)) return false;
  std::map<char, int64_t> sizes;
  for (size_t i = 0; i < of_x.size(); ++i) sizes[of_x[i]] = l.shape(x)[i];
  for (size_t i = 0; i < of_w.size(); ++i) sizes[of_w[i]] = l.shape(w)[i];
  std::string rows, common, inner, columns;
  for (const char letter : of_x) {
    if (!has_letter(out, letter) && !has_letter(of_w, letter)) return false;
    (has_letter(of_w, letter) ? has_letter(out, letter) ? common : inner : rows) += letter;
  }
  for (const char letter : of_w) {
    if (has_letter(of_x, letter)) continue;
    if (!has_letter(out, letter)) return false;
    columns += letter;
  }
  if (inner.empty()) {  // each element by a number
    l.give(0, l.emit("Mul", {spread(l, x, of_x, out, sizes), spread(l, w, of_w, out, sizes)}));
    return true;
  }
  constexpr int64_t most = 256;
  if (rows.empty() || size_of_letters(common, sizes) > most) return false;
  if (!common.empty()) {
    const char letter = common[0];
    const auto at = [&](const std::string& operand, const std::string& own, int64_t i) {
      const int axis = static_cast<int>(own.find(letter));
      Shape shape = l.shape(operand);
      shape.erase(shape.begin() + axis);
      return l.reshape(l.slice(operand, axis, i, i + 1), shape);
    };
    const auto without = [&](std::string text) { return text.erase(text.find(letter), 1); };
    const std::string equation = without(of_x) + "," + without(of_w) + "->" + without(out);
    Vector<std::string> parts;
    for (int64_t i = 0; i < sizes.at(letter); ++i) {
      const std::string part = l.emit("Einsum", {at(x, of_x, i), at(w, of_w, i)}, {{"equation", equation}});
      parts.push_back(spread(l, part, without(out), out, sizes));
    }
    l.give(0, l.concat(parts, static_cast<int>(out.find(letter))));
    return true;
  }
  Shape left, result;
  for (const char letter : rows) left.push_back(sizes.at(letter));
  result = left;
  left.push_back(size_of_letters(inner, sizes));
  for (const char letter : columns) result.push_back(sizes.at(letter));
  const std::string matrix =
      l.reshape(ordered(l, w, of_w, inner + columns), {size_of_letters(inner, sizes), size_of_letters(columns, sizes)});
  const std::string product = l.emit("MatMul", {l.reshape(ordered(l, x, of_x, rows + inner), left), matrix});
  l.give(0, ordered(l, l.reshape(product, result), rows + columns, out));
  return true;
}

}  // namespace

// Of one operand, of a value and a constant, or of several: two of them first, which sums over the letters that neither
// another operand nor the result has.
bool lower_einsum(Lowering& l) {
  const Vector<std::string> letters = einsum_letters(l.model, l.node);
  if (letters.size() == 2) return einsum_of_one(l, letters);
  if (letters.size() > 3) {
    std::string others = letters.back(), both;
    for (int i = 2; i + 1 < letters.count(); ++i) others += letters[i];
    for (const char letter : letters[0] + letters[1])
      if (has_letter(others, letter) && !has_letter(both, letter)) both += letter;
    Vector<std::string> operands{
        l.emit("Einsum", {l.input(0), l.input(1)}, {{"equation", letters[0] + "," + letters[1] + "->" + both}})};
    std::string equation = both;
    for (int i = 2; i + 1 < letters.count(); ++i) {
      operands.push_back(l.input(static_cast<size_t>(i)));
      equation += "," + letters[i];
    }
    l.give(0, l.emit("Einsum", operands, {{"equation", equation + "->" + letters.back()}}));
    return true;
  }
  if (letters.size() != 3 || !l.constant(l.input(0)) == !l.constant(l.input(1))) return false;
  return einsum_by_constant(l, letters);
}

// Factors, weights that are not trained, sums with values.
bool lower_gemm(Lowering& l) {
  const double alpha = l.model.number(l.node, "alpha", 1), beta = l.model.number(l.node, "beta", 1);
  const Constant *weight = l.constant(l.input(1)), *bias = l.node.has_input(2) ? l.constant(l.input(2)) : nullptr;
  const bool plain = !l.node.has_input(2) || (bias && bias->is_parameter() && beta == 1 &&
                                              bias->elements() == l.model.shapes.at(l.node.outputs[0])[1]);
  if (l.model.integer(l.node, "transA", 0) != 0) return false;
  if (alpha == 1 && plain && weight && !weight->is_fixed()) return false;
  std::string right = l.input(1);
  if (l.model.integer(l.node, "transB", 0) != 0) right = l.transpose(right, {1, 0});
  std::string y = l.emit("MatMul", {l.input(0), right});
  if (alpha != 1) y = l.emit("Mul", {y, l.number(alpha)});
  if (l.node.has_input(2) && beta != 0) {
    std::string sum = l.input(2);
    if (beta != 1) sum = l.emit("Mul", {sum, l.number(beta)});
    y = l.emit("Add", {y, sum});
  }
  l.give(0, y);
  return true;
}

// Before operator set 13, all axes from `axis` on. A LogSoftmax that is not before a loss.
bool lower_softmax(Lowering& l) {
  const Shape x = l.shape(l.input(0));
  const bool old = l.model.opset < 13;
  const int axis = l.model.axis(l.node, l.model.integer(l.node, "axis", old ? 1 : -1), x.size());
  if (old && axis + 1 != x.count()) {
    Shape flat(x.begin(), x.begin() + axis);
    flat.push_back(volume(x) / std::max<int64_t>(1, volume(flat)));
    l.give(0, l.reshape(l.emit(l.node.op, {l.reshape(l.input(0), flat)}, {{"axis", int64_t{axis}}}), x));
    return true;
  }
  if (l.node.op == "Softmax") {
    if (x[axis] > 1) return false;
    l.give(0, l.emit("Add", {l.emit("Mul", {l.input(0), l.number(0)}), l.number(1)}));
    return true;
  }
  // The largest is subtracted first: it would take the digits of the logarithm.
  const std::string largest = largest_over(l, l.input(0), {axis});
  const std::string x_below = l.emit("Sub", {l.input(0), largest});
  const std::string sum = sum_over(l, l.emit("Exp", {x_below}), {axis});
  l.give(0, l.emit("Sub", {x_below, l.emit("Log", {sum})}));
  return true;
}

}  // namespace ff::importing
