// Computes constants from constants.
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>

#include "common/errors.h"
#include "search/import/analysis.h"
#include "search/import/notes.h"
#include "search/import/rearranging.h"

namespace ff::importing {
namespace {

// What is computed has at most so many elements: masks and tables of positions are smaller, and a file of a few bytes
// can ask for any size.
constexpr int64_t most_computed = int64_t{1} << 26;

using Constants = Vector<const Constant*>;

void expect_size(const Model& model, const Node& node, const Shape& shape) {
  double elements = 1;
  for (const int64_t size : shape) elements *= static_cast<double>(size);
  if (elements > static_cast<double>(most_computed))
    model.fail(node, "computes a constant of shape " + to_string(shape) + ", which is too large");
}

// Element by element, with broadcasting; integers stay integers.
Constant binary(const Model& model, const Node& node, const Constants& inputs,
                const std::function<double(double, double)>& of_floats,
                const std::function<int64_t(int64_t, int64_t)>& of_integers, std::optional<ElementType> type = {}) {
  Vector<Shape> shapes;
  for (const Constant* input : inputs) shapes.push_back(input->shape);
  const Shape shape = broadcast(model, node, shapes);
  expect_size(model, node, shape);
  const int64_t elements = volume(shape);
  Constant result = expanded(*inputs[0], shape);
  for (size_t i = 1; i < inputs.size(); ++i) {
    const Constant other = expanded(*inputs[i], shape);
    if (type || (result.integers && other.integers)) {
      Vector<int64_t> values(elements);
      for (int64_t e = 0; e < elements; ++e)
        values[e] = result.integers && other.integers ? of_integers((*result.integers)[e], (*other.integers)[e])
                                                      : static_cast<int64_t>(of_floats(result.at(e), other.at(e)));
      result = Constant::of_integers(shape, std::move(values), type.value_or(result.type));
    } else {
      Vector<float> values(elements);
      for (int64_t e = 0; e < elements; ++e) values[e] = static_cast<float>(of_floats(result.at(e), other.at(e)));
      result = Constant::of_floats(shape, std::move(values));
    }
  }
  return result;
}

Constant unary(const Constant& input, double (*function)(double)) {
  if (input.integers) {
    Vector<int64_t> values;
    for (const int64_t value : *input.integers)
      values.push_back(static_cast<int64_t>(function(static_cast<double>(value))));
    return Constant::of_integers(input.shape, std::move(values), input.type);
  }
  Vector<float> values;
  for (const float value : *input.floats) values.push_back(static_cast<float>(function(value)));
  return Constant::of_floats(input.shape, std::move(values));
}

// Integers wrap around instead of overflowing.
int64_t wrapped(uint64_t value) { return static_cast<int64_t>(value); }
uint64_t bits(int64_t value) { return static_cast<uint64_t>(value); }

std::optional<Constant> fold_binary(const Model& model, const Node& node, const Constants& in) {
  const auto compute = [&](auto floats, auto integers, std::optional<ElementType> type = {}) {
    return binary(model, node, in, floats, integers, type);
  };
  constexpr ElementType boolean = ElementType::boolean;
  const std::string& op = node.op;
  if (op == "Add") return compute(std::plus<>(), [](int64_t a, int64_t b) { return wrapped(bits(a) + bits(b)); });
  if (op == "Sub") return compute(std::minus<>(), [](int64_t a, int64_t b) { return wrapped(bits(a) - bits(b)); });
  if (op == "Mul") return compute(std::multiplies<>(), [](int64_t a, int64_t b) { return wrapped(bits(a) * bits(b)); });
  if (op == "Div")
    return compute(std::divides<>(), [&](int64_t a, int64_t b) {
      if (b == 0) model.fail(node, "divides a constant by zero");
      return b == -1 ? wrapped(-bits(a)) : a / b;
    });
  if (op == "Mod")
    return compute([](double a, double b) { return std::fmod(a, b); },
                   [&](int64_t a, int64_t b) {
                     if (b == 0) model.fail(node, "divides a constant by zero");
                     const int64_t rest = b == -1 ? 0 : a % b;
                     const bool as_in_c = model.integer(node, "fmod", 0) != 0;  // with the sign of a, else of b
                     return rest != 0 && (rest < 0) != (b < 0) && !as_in_c ? rest + b : rest;
                   });
  if (op == "Pow") {
    const auto power = [](double a, double b) { return std::pow(a, b); };
    return compute(power, [&](int64_t a, int64_t b) {
      const double value = std::pow(static_cast<double>(a), static_cast<double>(b));
      return std::abs(value) < 0x1p62 ? static_cast<int64_t>(value) : 0;
    });
  }
  const auto larger = [](auto a, auto b) { return a > b ? a : b; };
  const auto smaller = [](auto a, auto b) { return a < b ? a : b; };
  if (op == "Max") return compute(larger, larger);
  if (op == "Min") return compute(smaller, smaller);
  if (op == "Equal") return compute(std::equal_to<>(), std::equal_to<>(), boolean);
  if (op == "Less") return compute(std::less<>(), std::less<>(), boolean);
  if (op == "LessOrEqual") return compute(std::less_equal<>(), std::less_equal<>(), boolean);
  if (op == "Greater") return compute(std::greater<>(), std::greater<>(), boolean);
  if (op == "GreaterOrEqual") return compute(std::greater_equal<>(), std::greater_equal<>(), boolean);
  if (op == "And") return compute(std::logical_and<>(), std::logical_and<>(), boolean);
  if (op == "Or") return compute(std::logical_or<>(), std::logical_or<>(), boolean);
  return std::nullopt;
}

std::optional<Constant> fold_unary(const Node& node, const Constant& input) {
  static const std::map<std::string, double (*)(double)> functions = {
      {"Neg", [](double x) { return -x; }},
      {"Abs", [](double x) { return std::abs(x); }},
      {"Sqrt", [](double x) { return std::sqrt(x); }},
      {"Exp", [](double x) { return std::exp(x); }},
      {"Log", [](double x) { return std::log(x); }},
      {"Sin", [](double x) { return std::sin(x); }},
      {"Cos", [](double x) { return std::cos(x); }},
      {"Reciprocal", [](double x) { return 1 / x; }},
      {"Floor", [](double x) { return std::floor(x); }},
      {"Ceil", [](double x) { return std::ceil(x); }},
      {"Not", [](double x) { return x == 0 ? 1.0 : 0.0; }},
      {"Relu", [](double x) { return std::max(0.0, x); }},
      {"Sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"Tanh", [](double x) { return std::tanh(x); }},
      {"Softplus", [](double x) { return std::max(0.0, x) + std::log1p(std::exp(-std::abs(x))); }},
      {"Erf", [](double x) { return std::erf(x); }},
      {"Sign", [](double x) { return x > 0   ? 1.0
                                     : x < 0 ? -1.0
                                             : 0.0; }},
      {"Round", [](double x) { return std::nearbyint(x); }},
  };
  const auto it = functions.find(node.op);
  if (it == functions.end()) return std::nullopt;
  return unary(input, it->second);
}

Constant cast(const Model& model, const Node& node, const Constant& input) {
  const auto type = type_of_cast(model.integer(node, "to", 1));
  if (!type) model.fail(node, "casts to a type that is not understood");
  if (*type == input.type) return input;
  if (*type == ElementType::f32) {
    Vector<float> values;
    for (const int64_t value : *input.integers) values.push_back(static_cast<float>(value));
    return Constant::of_floats(input.shape, std::move(values));
  }
  Vector<int64_t> values = input.as_integers();
  if (*type == ElementType::boolean)
    for (int64_t e = 0; e < input.elements(); ++e) values[e] = input.at(e) != 0;
  return Constant::of_integers(input.shape, std::move(values), *type);
}

Constant gather(const Model& model, const Node& node, const Constant& data, const Constant& indices) {
  const int axis = model.axis(node, model.integer(node, "axis", 0), data.shape.size());
  Shape shape(data.shape.begin(), data.shape.begin() + axis);
  shape.insert(shape.end(), indices.shape.begin(), indices.shape.end());
  shape.insert(shape.end(), data.shape.begin() + axis + 1, data.shape.end());
  expect_size(model, node, shape);
  const Vector<int64_t> chosen = indices.as_integers(), strides = strides_of(data.shape);
  const int64_t size = data.shape[axis], inner = strides[axis];
  const int64_t outer = data.elements() > 0 ? data.elements() / size / inner : 0;
  if (data.elements() == 0 && volume(shape) > 0)
    model.fail(node, "asks for elements of a constant of shape " + to_string(data.shape));
  Gathered gathered({&data});
  for (int64_t o = 0; o < outer; ++o)
    for (const int i : chosen.indices()) {
      const int64_t index = chosen[i] < 0 ? chosen[i] + size : chosen[i];
      if (index < 0 || index >= size)
        model.fail(node, "asks for element " + std::to_string(chosen[i]) + " of " + std::to_string(size));
      gathered.add(data, (o * size + index) * inner, inner);
    }
  Constant result = std::move(gathered).constant(shape);
  result.looked_up = result.looked_up || (data.origin.known() && axis == 0 && data.shape.size() == 2);
  return result;
}

Constant gathered_elements(const Model& model, const Node& node, const Constant& data, const Constant& indices) {
  const int axis = model.axis(node, model.integer(node, "axis", 0), data.shape.size());
  const Vector<int64_t> chosen = indices.as_integers(), strides = strides_of(data.shape),
                        own = strides_of(indices.shape);
  Gathered gathered({&data});
  for (int64_t e = 0; e < indices.elements(); ++e) {
    int64_t at = 0;
    for (const int other : data.shape.indices()) {
      const int64_t size = data.shape[other];
      int64_t index = other == axis ? chosen[e] : e / own[other] % indices.shape[other];
      if (index < 0) index += size;
      if (index < 0 || index >= size)
        model.fail(node, "asks for element " + std::to_string(index) + " of " + std::to_string(size));
      at += index * strides[other];
    }
    gathered.add(data, at);
  }
  Constant result = std::move(gathered).constant(indices.shape);
  result.looked_up = result.looked_up || (data.origin.known() && axis == 0 && data.shape.size() == 2);
  return result;
}

Constant concatenated(const Model& model, const Node& node, const Constants& inputs) {
  const int axis = model.axis(node, model.integer(node, "axis", 0), inputs[0]->shape.size());
  Shape shape = inputs[0]->shape;
  shape[axis] = 0;
  for (const Constant* input : inputs) {
    Shape expected = inputs[0]->shape;
    if (input->shape.size() == shape.size()) expected[axis] = input->shape[axis];
    if (input->shape != expected || input->type != inputs[0]->type)
      model.fail(node, "joins shapes " + to_string(inputs[0]->shape) + " and " + to_string(input->shape));
    shape[axis] += input->shape[axis];
  }
  expect_size(model, node, shape);
  int64_t outer = 1;
  for (int a = 0; a < axis; ++a) outer *= shape[a];
  Gathered joined(inputs);
  for (int64_t o = 0; o < outer; ++o)
    for (const Constant* input : inputs) {
      const int64_t run = input->elements() / outer;
      joined.add(*input, o * run, run);
    }
  return std::move(joined).constant(shape);
}

Constant sliced(const Model& model, const Node& node, const Constant& input) {
  const Vector<SliceRange> ranges = slice_ranges(model, node, input.shape);
  Vector<int64_t> strides = strides_of(input.shape);
  Shape shape;
  int64_t offset = 0;
  bool steps_of_one = true;
  for (const int axis : ranges.indices()) {
    shape.push_back(ranges[axis].count);
    offset += ranges[axis].begin * strides[axis];
    strides[axis] *= ranges[axis].step;
    steps_of_one = steps_of_one && ranges[axis].step == 1;
  }
  if (shape == input.shape && steps_of_one) return input;
  return box_of(input, shape, strides, offset);
}

Constant range(const Model& model, const Node& node, const Constants& in) {
  for (const Constant* input : in)
    if (!input->is_scalar()) model.fail(node, "has an input that is not one number");
  const double begin = in[0]->at(0), end = in[1]->at(0), step = in[2]->at(0);
  const double count = step == 0 ? INFINITY : std::max(0.0, std::ceil((end - begin) / step));
  if (!(count <= static_cast<double>(most_computed))) model.fail(node, "has too many elements");
  const int64_t elements = static_cast<int64_t>(count);
  if (in[0]->integers) {
    if (!in[2]->integers) model.fail(node, "has inputs of different types");
    Vector<int64_t> values(elements);
    // Modulo 2^64, as from the least number in steps of 2^62.
    const uint64_t first = static_cast<uint64_t>((*in[0]->integers)[0]),
                   by = static_cast<uint64_t>((*in[2]->integers)[0]);
    for (int64_t e = 0; e < elements; ++e) values[e] = static_cast<int64_t>(first + static_cast<uint64_t>(e) * by);
    return Constant::of_integers({elements}, std::move(values));
  }
  Vector<float> values(elements);
  for (int64_t e = 0; e < elements; ++e) values[e] = static_cast<float>(begin + static_cast<double>(e) * step);
  return Constant::of_floats({elements}, std::move(values));
}

Constant constant_of_shape(const Model& model, const Node& node, const Constant& asked) {
  const Shape shape = asked.as_integers();
  for (const int64_t size : shape)
    if (size < 0) model.fail(node, "asks for shape " + to_string(shape));
  expect_size(model, node, shape);
  Constant value = Constant::of_floats({1}, {0});
  if (const auto it = node.attributes.find("value"); it != node.attributes.end())
    if (const Constant* given = std::get_if<Constant>(&it->second); given && given->is_scalar())
      value = with_shape(*given, {1});
  return expanded(value, shape);
}

Constant where(const Model& model, const Node& node, const Constants& in) {
  const Shape shape = broadcast(model, node, {in[0]->shape, in[1]->shape, in[2]->shape});
  expect_size(model, node, shape);
  const Constant condition = expanded(*in[0], shape), yes = expanded(*in[1], shape), no = expanded(*in[2], shape);
  if (yes.type != no.type) model.fail(node, "chooses among values of different types");
  const int64_t elements = volume(shape);
  Gathered chosen({&yes, &no});
  for (int64_t e = 0; e < elements; ++e) chosen.add(condition.at(e) != 0 ? yes : no, e);
  return std::move(chosen).constant(shape);
}

Constant triangle(const Model& model, const Node& node, const Constant& input, int64_t diagonal) {
  const int rank = input.shape.count();
  if (rank < 2) model.fail(node, "has an input of fewer than two axes");
  const bool upper = model.integer(node, "upper", 1) != 0;
  const int64_t columns = input.shape[rank - 1], rows = input.shape[rank - 2];
  const auto kept = [&](int64_t e) {
    const double across = static_cast<double>(e % columns - e / columns % rows), limit = static_cast<double>(diagonal);
    return upper ? across >= limit : across <= limit;
  };
  Gathered triangle({&input});
  for (int64_t e = 0; e < input.elements(); ++e)
    if (kept(e)) triangle.add(input, e);
    else triangle.add_zero();
  return std::move(triangle).constant(input.shape);
}

// EyeLike: ones on a diagonal of a matrix of this shape.
Constant diagonal(const Model& model, const Node& node, const Shape& shape, ElementType of_input) {
  if (shape.size() != 2) model.fail(node, "makes a diagonal of shape " + to_string(shape) + ", expected a matrix");
  expect_size(model, node, shape);
  const auto type =
      node.attributes.count("dtype") ? type_of_cast(model.integer(node, "dtype", 1)) : std::optional(of_input);
  if (!type) model.fail(node, "makes numbers of a type that is not understood");
  const int64_t above = model.integer(node, "k", 0);
  Vector<int64_t> values(static_cast<size_t>(volume(shape)), int64_t{0});
  for (int64_t row = 0; row < shape[0]; ++row)
    if (row + above >= 0 && row + above < shape[1]) values[row * shape[1] + row + above] = 1;
  if (*type == ElementType::f32) return Constant::of_floats(shape, Vector<float>(values.begin(), values.end()));
  return Constant::of_integers(shape, std::move(values), *type);
}

Constant running_sums(const Model& model, const Node& node, const Constant& input) {
  const int64_t size = input.shape.empty() ? 0 : input.shape[cumulative_axis(model, node, input.shape)];
  int64_t stride = 1;
  for (int axis = cumulative_axis(model, node, input.shape) + 1; axis < input.shape.count(); ++axis)
    stride *= input.shape[axis];
  const Vector<float> matrix = cumulative_matrix(model, node, size);
  Vector<double> sums(static_cast<size_t>(input.elements()), 0.0);
  for (int64_t e = 0; e < input.elements(); ++e) {
    const int64_t place = e / stride % size, first = e - place * stride;
    for (int64_t other = 0; other < size; ++other)
      if (matrix[place * size + other] != 0) sums[e] += input.at(first + other * stride);
  }
  if (!input.integers) return Constant::of_floats(input.shape, Vector<float>(sums.begin(), sums.end()));
  return Constant::of_integers(input.shape, Vector<int64_t>(sums.begin(), sums.end()));
}

Constant reduced(const Model& model, const Node& node, const Constant& input, const Shape& shape) {
  if (input.elements() == 0) model.fail(node, "reduces a constant of shape " + to_string(input.shape));
  Vector<bool> over(input.shape.size(), false);
  const Vector<int64_t> axes = model.integers_or_input(node, "axes", 1, {});
  for (const int64_t axis : axes) over[model.axis(node, axis, over.size())] = true;
  if (axes.empty()) over.assign(over.size(), model.integer(node, "noop_with_empty_axes", 0) == 0);
  Shape kept;
  for (const int axis : input.shape.indices()) kept.push_back(over[axis] ? 1 : input.shape[axis]);
  Vector<double> values(volume(kept), 0.0);
  Vector<bool> begun(values.size(), false);
  for (int64_t e = 0; e < input.elements(); ++e) {
    int64_t rest = e, place = 0, stride = 1;
    for (int axis = kept.count() - 1; axis >= 0; --axis) {
      if (!over[axis]) {
        place += rest % input.shape[axis] * stride;
        stride *= kept[axis];
      }
      rest /= input.shape[axis];
    }
    double& value = values[place];
    if (node.op == "ReduceL2") value += input.at(e) * input.at(e);
    else if (!begun[place]) value = input.at(e);
    else if (node.op == "ReduceProd") value *= input.at(e);
    else if (node.op == "ReduceMax") value = std::max(value, input.at(e));
    else if (node.op == "ReduceMin") value = std::min(value, input.at(e));
    else value += input.at(e);
    begun[place] = true;
  }
  if (node.op == "ReduceL2")
    for (double& value : values) value = std::sqrt(value);
  if (node.op == "ReduceMean")
    for (double& value : values) value *= static_cast<double>(values.size()) / static_cast<double>(input.elements());
  if (!input.integers) return Constant::of_floats(shape, Vector<float>(values.begin(), values.end()));
  Vector<int64_t> integers;
  for (const double value : values) integers.push_back(std::abs(value) < 0x1p62 ? static_cast<int64_t>(value) : 0);
  return Constant::of_integers(shape, std::move(integers));
}

// Softmax, or a LayerNormalization with its scale and bias, over the last axis.
std::optional<Constant> of_rows(const Model& model, const Node& node, const Constants& in) {
  const Constant& x = *in[0];
  const bool softmax = node.op == "Softmax";
  const int rank = x.shape.count();
  if (rank == 0 || x.elements() == 0 || !x.floats ||
      model.axis(node, model.integer(node, "axis", softmax && model.opset < 13 ? 1 : -1), x.shape.size()) + 1 != rank)
    return std::nullopt;
  const int64_t size = x.shape.back();
  for (const int i : {1, 2})
    if (in.count() > i && in[i] && in[i]->elements() != size) return std::nullopt;
  Vector<float> values(x.elements());
  for (int64_t row = 0; row < x.elements(); row += size) {
    double largest = x.at(row), sum = 0, squares = 0;
    for (int64_t i = 0; i < size; ++i) largest = std::max(largest, x.at(row + i));
    for (int64_t i = 0; i < size; ++i) sum += softmax ? std::exp(x.at(row + i) - largest) : x.at(row + i);
    const double mean = sum / static_cast<double>(size);
    for (int64_t i = 0; i < size; ++i) squares += (x.at(row + i) - mean) * (x.at(row + i) - mean);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(size) + model.number(node, "epsilon", 1e-5));
    for (int64_t i = 0; i < size; ++i) {
      double value = softmax ? std::exp(x.at(row + i) - largest) / sum : (x.at(row + i) - mean) * scale;
      if (in.count() > 1 && in[1]) value *= in[1]->at(i);
      if (in.count() > 2 && in[2]) value += in[2]->at(i);
      values[row + i] = static_cast<float>(value);
    }
  }
  return Constant::of_floats(x.shape, std::move(values));
}

Constant clipped(const Model& model, const Node& node, const Constant& input) {
  constexpr double all = 3.4e38;
  const double least = model.number_or_input(node, "min", 1, -all), most = model.number_or_input(node, "max", 2, all);
  if (input.integers) {
    Vector<int64_t> values;
    for (const int64_t value : *input.integers) {
      const double limited = std::min(std::max(static_cast<double>(value), least), most);
      values.push_back(limited == static_cast<double>(value) ? value : static_cast<int64_t>(limited));
    }
    return Constant::of_integers(input.shape, std::move(values), input.type);
  }
  Vector<float> values;
  for (const float value : *input.floats)
    values.push_back(static_cast<float>(std::min(std::max(static_cast<double>(value), least), most)));
  return Constant::of_floats(input.shape, std::move(values));
}

// Rows of `updates` written over elements or blocks of the first input.
Constant scattered(const Model& model, const Node& node, const Constants& in) {
  const Constant &data = *in[0], &indices = *in[1], &updates = *in[2];
  const int depth = indices.shape.empty() ? 0 : static_cast<int>(indices.shape.back());
  if (depth < 1 || depth > data.shape.count() || !data.is_fixed() || !updates.is_fixed() ||
      model.text(node, "reduction", "none") != "none" || updates.type != data.type)
    model.fail(node, "writes over a constant in a way that is not understood");
  const Vector<int64_t> strides = strides_of(data.shape), places = indices.as_integers();
  const int64_t block = strides[depth - 1], rows = indices.elements() / depth;
  if (updates.elements() != rows * block)
    model.fail(node, "writes shape " + to_string(updates.shape) + " over " + to_string(data.shape));
  Vector<float> floats = data.floats ? *data.floats : Vector<float>{};
  Vector<int64_t> integers = data.integers ? *data.integers : Vector<int64_t>{};
  for (int64_t row = 0; row < rows; ++row) {
    int64_t place = 0;
    for (int axis = 0; axis < depth; ++axis) {
      const int64_t index = places[row * depth + axis], size = data.shape[axis], at = index < 0 ? index + size : index;
      if (at < 0 || at >= size)
        model.fail(node, "writes to element " + std::to_string(index) + " of " + std::to_string(size));
      place += at * strides[axis];
    }
    for (int64_t e = 0; e < block; ++e) {
      if (data.floats) floats[place + e] = (*updates.floats)[row * block + e];
      else integers[place + e] = (*updates.integers)[row * block + e];
    }
  }
  return data.floats ? Constant::of_floats(data.shape, std::move(floats))
                     : Constant::of_integers(data.shape, std::move(integers), data.type);
}

// Rows times columns of two tensors of rank up to 3: tables of positions.
Constant product(const Model& model, const Node& node, const Constant& a, const Constant& b, const Shape& shape) {
  expect_size(model, node, shape);
  const int64_t inner = a.shape.back(), columns = b.shape.back(), rows = a.elements() / std::max<int64_t>(1, inner);
  const bool one_matrix = b.elements() == inner * columns;
  const int64_t rows_each = one_matrix ? rows : a.shape[a.shape.count() - 2];
  if (!a.floats || !b.floats || a.shape.count() < 2 || b.shape.count() < 2 || inner == 0 ||
      (!one_matrix && rows / std::max<int64_t>(1, rows_each) * inner * columns != b.elements()) ||
      rows * columns != volume(shape) || (rows * columns) > most_computed / inner)
    model.fail(node, "multiplies constants of shapes " + to_string(a.shape) + " and " + to_string(b.shape));
  Vector<float> values;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t matrix = row / rows_each * inner * columns;
      double sum = 0;
      for (int64_t k = 0; k < inner; ++k) sum += a.at(row * inner + k) * b.at(matrix + k * columns + column);
      values.push_back(static_cast<float>(sum));
    }
  return Constant::of_floats(shape, std::move(values));
}

// A product of small constants by its letters: the angles of rotary positions.
Constant einsum(const Model& model, const Node& node, const Constants& in, const Shape& shape) {
  const Vector<std::string> letters = einsum_letters(model, node);
  std::map<char, int64_t> sizes;
  std::string all = letters.back();  // letters of the output first
  for (const int i : in.indices())
    for (const int axis : in[i]->shape.indices()) {
      const char letter = letters[i][static_cast<size_t>(axis)];
      sizes[letter] = in[i]->shape[axis];
      if (all.find(letter) == std::string::npos) all += letter;
    }
  Shape space;
  for (const char letter : all) space.push_back(sizes[letter]);
  expect_size(model, node, space);
  Vector<float> values(volume(shape), 0);
  const int64_t summed = volume(space) / std::max<int64_t>(1, volume(shape));
  Vector<Vector<int64_t>> strides;
  for (const int i : in.indices()) {
    const Vector<int64_t> own = strides_of(in[i]->shape);
    strides.emplace_back(all.size(), int64_t{0});
    for (const int axis : own.indices()) strides.back()[all.find(letters[i][static_cast<size_t>(axis)])] += own[axis];
  }
  for (int64_t point = 0; point < volume(space); ++point) {
    Vector<int64_t> at(in.size(), 0);
    int64_t rest = point;
    for (int letter = space.count() - 1; letter >= 0; --letter) {
      for (const int i : in.indices()) at[i] += rest % space[letter] * strides[i][letter];
      rest /= space[letter];
    }
    double product = 1;
    for (const int i : in.indices()) product *= in[i]->at(at[i]);
    values[point / summed] += static_cast<float>(product);
  }
  return Constant::of_floats(shape, std::move(values));
}

std::optional<Constant> constant_node(const Node& node) {
  for (const auto& [name, value] : node.attributes) {
    if (const Constant* tensor = std::get_if<Constant>(&value)) return *tensor;
    if (const int64_t* integer = std::get_if<int64_t>(&value)) return Constant::of_integers({}, {*integer});
    if (const double* number = std::get_if<double>(&value)) return Constant::scalar(static_cast<float>(*number));
    if (const auto* integers = std::get_if<Vector<int64_t>>(&value))
      return Constant::of_integers({static_cast<int64_t>(integers->size())}, *integers);
    if (const auto* numbers = std::get_if<Vector<double>>(&value))
      return Constant::of_floats({static_cast<int64_t>(numbers->size())},
                                 Vector<float>(numbers->begin(), numbers->end()));
  }
  return std::nullopt;
}

// Does the first axis alone differ, which has size 1 and becomes the batch?
bool repeats_samples(const Model& model, const Shape& from, const Shape& to) {
  const auto input = model.inputs.empty() ? model.shapes.end() : model.shapes.find(model.inputs[0].name);
  const int64_t batch = input == model.shapes.end() ? 0 : input->second[model.inputs[0].sample_axis];
  return from != to && from.size() == to.size() && from.size() > 1 && from[0] == 1 && to[0] == batch &&
         std::equal(from.begin() + 1, from.end(), to.begin() + 1);
}

Constant tiled(const Constant& source, const Shape& shape) {
  const Vector<int64_t> strides = strides_of(source.shape);
  Gathered gathered({&source});
  for (int64_t e = 0; e < volume(shape); ++e) {
    int64_t rest = e, from = 0;
    for (int axis = shape.count() - 1; axis >= 0; rest /= shape[axis--])
      from += rest % shape[axis] % source.shape[axis] * strides[axis];
    gathered.add(source, from);
  }
  return std::move(gathered).constant(shape);
}

Vector<Constant> split_constant(const Model& model, const Node& node, const Constant& input) {
  const int axis = model.axis(node, model.integer(node, "axis", 0), input.shape.size());
  const Vector<int64_t> strides = strides_of(input.shape);
  Vector<Constant> parts;
  int64_t begin = 0;
  for (const int64_t size : split_sizes(model, node, input.shape[axis])) {
    Shape shape = input.shape;
    shape[axis] = size;
    parts.push_back(box_of(input, shape, strides, begin * strides[axis]));
    begin += size;
  }
  return parts;
}

}  // namespace

std::optional<ElementType> type_of_cast(int64_t to) {
  switch (to) {  // TensorProto's numbers
    case 1:
    case 10:
    case 11:
    case 16: return ElementType::f32;
    case 9: return ElementType::boolean;
    case 2:
    case 3:
    case 4:
    case 5:
    case 6:
    case 7:
    case 12: return ElementType::integer;
    default: return std::nullopt;
  }
}

int cumulative_axis(const Model& model, const Node& node, const Shape& input) {
  const Vector<int64_t> axis = model.integers_or_input(node, "axis", 1, {});
  if (axis.size() != 1) model.fail(node, "has " + std::to_string(axis.size()) + " axes, expected one");
  return model.axis(node, axis[0], input.size());
}

Vector<float> cumulative_matrix(const Model& model, const Node& node, int64_t size) {
  const bool exclusive = model.integer(node, "exclusive", 0) != 0, reverse = model.integer(node, "reverse", 0) != 0;
  expect_size(model, node, {size, size});
  Vector<float> matrix(static_cast<size_t>(size * size), 0.0f);
  for (int64_t out = 0; out < size; ++out)
    for (int64_t in = 0; in < size; ++in) {
      const int64_t before = reverse ? in - out : out - in;
      matrix[out * size + in] = before > 0 || (before == 0 && !exclusive) ? 1.0f : 0.0f;
    }
  return matrix;
}

bool can_be_folded(const std::string& op) {
  static const std::set<std::string> all = {"Constant",
                                            "Shape",
                                            "Size",
                                            "Identity",
                                            "Cast",
                                            "Neg",
                                            "Abs",
                                            "Sqrt",
                                            "Exp",
                                            "Log",
                                            "Sin",
                                            "Cos",
                                            "Floor",
                                            "Ceil",
                                            "Not",
                                            "Reciprocal",
                                            "Add",
                                            "Sub",
                                            "Mul",
                                            "Div",
                                            "Mod",
                                            "Pow",
                                            "Max",
                                            "Min",
                                            "Equal",
                                            "Less",
                                            "LessOrEqual",
                                            "Greater",
                                            "And",
                                            "Or",
                                            "Gather",
                                            "Concat",
                                            "Slice",
                                            "Split",
                                            "Range",
                                            "ConstantOfShape",
                                            "Where",
                                            "Trilu",
                                            "Reshape",
                                            "Squeeze",
                                            "Expand",
                                            "Unsqueeze",
                                            "Flatten",
                                            "Transpose",
                                            "Tile",
                                            "MatMul",
                                            "Einsum",
                                            "Square",
                                            "Dropout",
                                            "ReduceProd",
                                            "ReduceSum",
                                            "ReduceMax",
                                            "ReduceMin",
                                            "GreaterOrEqual",
                                            "InverseSqrt",
                                            "Relu",
                                            "Sigmoid",
                                            "Tanh",
                                            "Softplus",
                                            "Erf",
                                            "Sign",
                                            "Round",
                                            "Clip",
                                            "ReduceMean",
                                            "ScatterND",
                                            "EyeLike",
                                            "CumSum",
                                            "ReduceL2",
                                            "GatherElements",
                                            "Softmax",
                                            "LayerNormalization"};
  return all.count(op) > 0;
}

bool is_zero(const Constant& constant) {
  return constant.is_fixed() && constant.floats &&
         std::all_of(constant.floats->begin(), constant.floats->end(), [](float value) { return value == 0; });
}

namespace {

// For Shape, Size and EyeLike, the input's shape alone must be known.
std::optional<Constant> of_shape(const Model& model, const Node& node) {
  const Constant* input = model.constant(node.inputs[0]);
  const auto it = model.shapes.find(node.inputs[0]);
  if (!input && it == model.shapes.end()) return std::nullopt;
  const Shape& shape = input ? input->shape : it->second;
  if (node.op == "Size") return Constant::of_integers({}, {volume(shape)});
  if (node.op == "EyeLike") {
    const auto type = model.types.find(node.inputs[0]);
    const ElementType of_value = type == model.types.end() ? ElementType::f32 : type->second;
    return diagonal(model, node, shape, input ? input->type : of_value);
  }
  const int64_t rank = shape.count();
  const auto clamp = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const int64_t begin = clamp(model.integer(node, "start", 0)), end = clamp(model.integer(node, "end", rank));
  const Vector<int64_t> sizes(shape.begin() + begin, shape.begin() + std::max(begin, end));
  return Constant::of_integers({sizes.count()}, sizes);
}

// Of operators whose result is known once its shape is.
std::optional<Constant> in_known_shape(const Model& model, const Node& node, const Constants& in) {
  const std::string& op = node.op;
  static const std::set<std::string> all = {"Reshape", "Unsqueeze", "Squeeze",   "Flatten", "Expand",
                                            "Tile",    "MatMul",    "Transpose", "Einsum"};
  if (!all.count(op)) return std::nullopt;
  const auto shapes = infer_shapes(model, node);
  if (!shapes) return std::nullopt;
  const Shape& shape = (*shapes)[0];
  if (op == "MatMul") return product(model, node, *in[0], *in[1], shape);
  if (op == "Einsum") return einsum(model, node, in, shape);
  if (op == "Transpose") {
    Vector<int> axes;
    Vector<int64_t> otherwise;
    for (int axis = shape.count() - 1; axis >= 0; --axis) otherwise.push_back(axis);
    for (const int64_t axis : model.integers(node, "perm", otherwise)) axes.push_back(static_cast<int>(axis));
    return transposed(*in[0], axes);
  }
  if (op == "Expand" || op == "Tile") {
    // An initializer that is repeated for each sample stays one (a class token).
    if (!in[0]->is_fixed() && repeats_samples(model, in[0]->shape, shape)) return std::nullopt;
    expect_size(model, node, shape);
    return op == "Tile" ? tiled(*in[0], shape) : expanded(*in[0], shape);
  }
  return with_shape(*in[0], shape);
}

std::optional<Vector<Constant>> compute(const Model& model, const Node& node) {
  const std::string& op = node.op;
  const auto one = [](Constant constant) { return Vector<Constant>{std::move(constant)}; };
  const auto one_or_none = [&](std::optional<Constant> constant) {
    return constant ? std::optional(one(std::move(*constant))) : std::nullopt;
  };
  if (op == "Constant") return one_or_none(constant_node(node));
  if ((op == "Shape" || op == "Size" || op == "EyeLike") && node.has_input(0))
    return one_or_none(of_shape(model, node));
  Constants in;
  for (const std::string& name : node.inputs) {
    in.push_back(name.empty() ? nullptr : model.constant(name));
    if (!name.empty() && !in.back()) return std::nullopt;
  }
  if (in.empty() || !in[0]) return std::nullopt;
  // What newer operator sets say as further inputs, and a few have required ones.
  const auto has = [&](size_t count) { return in.size() >= count && std::count(in.begin(), in.end(), nullptr) == 0; };
  if (op == "Dropout" && drops(model, node)) return std::nullopt;  // parts of the parameters themselves
  if (op == "Identity" || op == "Dropout") return one(*in[0]);
  if (op == "Cast") return one(cast(model, node, *in[0]));
  if (auto result = fold_unary(node, *in[0])) return one(std::move(*result));
  if (in.size() >= 2 && has(2))
    if (auto result = fold_binary(model, node, in)) return one(std::move(*result));
  if (op == "Gather" && has(2)) return one(gather(model, node, *in[0], *in[1]));
  if (op == "GatherElements" && has(2) && in[0]->shape.size() == in[1]->shape.size())
    return one(gathered_elements(model, node, *in[0], *in[1]));
  if (op == "Concat" && has(1)) return one(concatenated(model, node, in));
  if (op == "Slice") return one(sliced(model, node, *in[0]));
  if (op == "Split") return split_constant(model, node, *in[0]);
  if (op == "Range" && has(3)) return one(range(model, node, in));
  if (op == "ConstantOfShape") return one(constant_of_shape(model, node, *in[0]));
  if (op == "Where" && has(3)) return one(where(model, node, in));
  if (op == "Trilu")
    return one(triangle(model, node, *in[0], static_cast<int64_t>(model.number_or_input(node, "k", 1, 0))));
  if (op == "CumSum" && has(2)) return one(running_sums(model, node, *in[0]));
  if (op == "ReduceProd" || op == "ReduceSum" || op == "ReduceMax" || op == "ReduceMin" || op == "ReduceMean" ||
      op == "ReduceL2") {
    const auto shapes = infer_shapes(model, node);
    if (shapes) return one(reduced(model, node, *in[0], (*shapes)[0]));
  }
  if (op == "Softmax" || op == "LayerNormalization") return one_or_none(of_rows(model, node, in));
  if (op == "Clip") return one(clipped(model, node, *in[0]));
  if (op == "ScatterND" && has(3)) return one(scattered(model, node, in));
  return one_or_none(in_known_shape(model, node, in));
}

// Products with zeros are zeros, whatever is trained: the states in which RWKV begins.
std::optional<Constant> product_with_zeros(const Model& model, const Node& node) {
  if (node.op != "Mul" || !node.has_input(1)) return std::nullopt;
  const Constant *first = model.constant(node.inputs[0]), *second = model.constant(node.inputs[1]);
  if (!first || !second || !first->floats || !second->floats) return std::nullopt;
  if (!is_zero(*first)) std::swap(first, second);
  const bool finite =
      std::all_of(second->floats->begin(), second->floats->end(), [](float value) { return std::isfinite(value); });
  if (!is_zero(*first) || second->is_fixed() || !finite) return std::nullopt;
  const Shape shape = broadcast(model, node, {first->shape, second->shape});
  expect_size(model, node, shape);
  return Constant::of_floats(shape, Vector<float>(static_cast<size_t>(volume(shape)), 0.0f));
}

// What a sum with zeros is: an initializer stays one. T5 adds a mask that hides nothing to its relative positions.
std::optional<Constant> sum_with_zeros(const Model& model, const Node& node) {
  if ((node.op != "Add" && node.op != "Sub") || !node.has_input(1)) return std::nullopt;
  const Constant *first = model.constant(node.inputs[0]), *second = model.constant(node.inputs[1]);
  if (!first || !second || !first->floats || !second->floats) return std::nullopt;
  const bool swapped = node.op == "Add" && is_zero(*first);
  if (swapped) std::swap(first, second);
  if (first->is_fixed() || !is_zero(*second)) return std::nullopt;
  const Shape shape = broadcast(model, node, {first->shape, second->shape});
  expect_size(model, node, shape);
  return expanded(*first, shape);
}

}  // namespace

std::optional<Vector<Constant>> fold(const Model& model, const Node& node) {
  if (auto sum = sum_with_zeros(model, node)) return Vector<Constant>{std::move(*sum)};
  if (auto zeros = product_with_zeros(model, node)) return Vector<Constant>{std::move(*zeros)};
  auto results = compute(model, node);
  if (!results) return results;
  static const std::set<std::string> rearranging = {
      "Identity",  "Cast",    "Dropout", "Gather", "Concat", "Slice", "GatherElements", "Split", "Reshape",
      "Unsqueeze", "Squeeze", "Flatten", "Expand", "Tile",   "Where", "Transpose",      "Trilu"};
  static const std::set<std::string> without_gradient = {"Floor", "Ceil", "Range", "ConstantOfShape"};
  std::set<std::string> computed_from, frozen;
  for (const std::string& input : node.inputs) {
    const Constant* constant = model.constant(input);
    if (!constant || without_gradient.count(node.op)) continue;
    computed_from.insert(constant->computed_from.begin(), constant->computed_from.end());
    frozen.insert(constant->frozen.begin(), constant->frozen.end());
    if (!rearranging.count(node.op)) computed_from.merge(model.origins(*constant));
  }
  // No gradient flows back through integers and conditions.
  for (Constant& result : *results)
    if (result.type == ElementType::f32) {
      result.computed_from = computed_from;
      result.frozen = frozen;
    }
  return results;
}

}  // namespace ff::importing
