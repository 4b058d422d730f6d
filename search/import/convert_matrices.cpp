// Matrix products, and what works on rows: softmax, normalizations, means.
#include <algorithm>
#include <cmath>

#include "search/import/convert.h"

namespace ff::importing {
namespace {

// The value with the atoms of one axis, which lie together, replaced by a single one of another size, in another
// tensor.
Value with_replaced_axis(const Value& x, int axis, const Value& result) {
  Value replaced = x;
  replaced.tensor = result.tensor;
  replaced.physical = result.physical;
  const Axis old = x.axes[axis];
  const int64_t size = result.physical[x.physical.size() == 4 && old[0] == 1 ? 1 : result.physical.count() - 1];
  const int removed = old.count() - 1;
  replaced.atoms.erase(replaced.atoms.begin() + old[0] + 1, replaced.atoms.begin() + old[0] + 1 + removed);
  replaced.atoms[old[0]] = size;
  for (Axis& other : replaced.axes)
    for (int& atom : other)
      if (atom > old[0]) atom -= removed;
  replaced.axes[axis] = {old[0]};
  return replaced;
}

// Channels of a tensor [batch, channel, height, width] that is read as [batch, height, width, channel]?
bool are_channels_of_images(const Value& x, const Axis& axis) {
  if (x.physical.size() != 4 || x.atoms.size() != 4 || axis != Axis{1}) return false;
  return x.physical == x.atoms;
}

// x times weight [out, in] transposed, plus bias, over the last axis of x.
void linear(Conversion& c, const Node& node, const Value& x, const Constant& weight, const Constant* bias) {
  const int last = x.axes.count() - 1;
  Vector<Conversion::NamedConstant> parameters{{"weight", weight}};
  if (bias) parameters.push_back({"bias", *bias});
  Json attributes = Json::object();
  if (!bias) attributes["bias"] = false;
  if (are_channels_of_images(x, x.axes[last])) {
    parameters[0].constant.shape = {weight.shape[0], weight.shape[1], 1, 1};
    attributes["out_channels"] = weight.shape[0];
    attributes["kernel"] = 1;
    const Value image = c.add_with_parameters(node, "conv2d", {x.tensor}, attributes, parameters);
    return c.set(node, 0, with_replaced_axis(x, last, image));
  }
  attributes["out_features"] = weight.shape[0];
  if (x.axes[last].empty()) {  // one feature
    Axis others;
    for (int atom = 1; atom < x.atoms.count(); ++atom) others.push_back(atom);
    Value rows = c.arranged(node, x, others.empty() ? Vector<Axis>{{0}, {}} : Vector<Axis>{{0}, others, {}});
    rows.tensor = c.add_with_parameters(node, "linear", {rows.tensor}, attributes, parameters).tensor;
    rows.physical = c.builder.shape(rows.tensor);
    rows.axes[last] = {rows.atoms.count()};
    rows.atoms.push_back(weight.shape[0]);
    return c.set(node, 0, rows);
  }
  const Value rows = c.with_last(node, x, last);
  c.set(node, 0,
        with_replaced_axis(rows, last, c.add_with_parameters(node, "linear", {rows.tensor}, attributes, parameters)));
}

Constant as_vector(Conversion& c, const Node& node, const Constant& constant, int64_t size) {
  Constant vector = constant;
  if (vector.elements() != size)
    c.fail(node, "has a bias of shape " + to_string(constant.shape) + ", expected [" + std::to_string(size) + "]");
  vector.shape = {size};
  return vector;
}

// Batch axes of a product are those before the last two. Those of one size must be made up alike in both operands.
void refine_batch_axes(Conversion& c, const Node& node, Value& a, Value& b) {
  while (a.axes.size() < b.axes.size()) a.axes.insert(a.axes.begin(), Axis{});
  while (b.axes.size() < a.axes.size()) b.axes.insert(b.axes.begin(), Axis{});
  const Shape left = a.shape(), right = b.shape();
  for (int axis = 0; axis + 2 < a.axes.count(); ++axis)
    if (left[axis] != right[axis] || !refine(a, axis, b, axis))
      c.fail(node, "multiplies tensors of shapes " + to_string(left) + " and " + to_string(right) +
                       ", whose first axes are made up differently");
}

bool is_one_axis(const Value& x, size_t axes) { return x.axes.size() == axes && x.batch_axis() == 0; }

// Those in front of the last two, the samples first, also where heads come before them on a common axis.
std::pair<Axis, Axis> batch_atoms(Conversion& c, const Node& node, const Value& a, const Value& b) {
  Axis of_a, of_b;
  for (int axis = 0; axis + 2 < a.axes.count(); ++axis) {
    of_a.insert(of_a.end(), a.axes[axis].begin(), a.axes[axis].end());
    of_b.insert(of_b.end(), b.axes[axis].begin(), b.axes[axis].end());
  }
  const auto samples = std::find(of_a.begin(), of_a.end(), 0) - of_a.begin();
  if (samples == of_a.count() || of_b[samples] != 0) c.fail(node, "multiplies across samples, which is not understood");
  for (Axis* batch : {&of_a, &of_b}) {
    batch->erase(batch->begin() + samples);
    batch->insert(batch->begin(), 0);
  }
  return {of_a, of_b};
}

// An operand of an einsum: other batch axes, and two axes with a letter each.
struct EinsumOperand {
  Vector<std::pair<Axis, char>> blocks;  // as they lie
  EinsumOperand(const Axis& batch, const Axis& second, char second_letter, const Axis& third, char third_letter)
      : blocks{{Axis(batch.begin() + 1, batch.end()), 'h'}, {second, second_letter}, {third, third_letter}} {
    std::sort(blocks.begin(), blocks.end());
  }
  std::string letters() const {
    std::string text = "b";  // the sample
    for (const auto& [axis, letter] : blocks) text += letter;
    return text;
  }
  Vector<Axis> axes() const {
    Vector<Axis> axes{{0}};
    for (const auto& [axis, letter] : blocks) axes.push_back(axis);
    return axes;
  }
};

// [batch, others, rows, inner] and [batch, others, inner, columns], as an einsum of the operands as they lie.
Value product_by_einsum(Conversion& c, const Node& node, const Value& a, const Value& b) {
  const int rank = a.axes.count(), rows = rank - 2, columns = rank - 1;
  const auto [batch_a, batch_b] = batch_atoms(c, node, a, b);
  const EinsumOperand left(batch_a, a.axes[rows], 'l', a.axes[rank - 1], 'k'),
      right(batch_b, b.axes[rank - 2], 'k', b.axes[columns], 'm');
  const std::string first = c.arranged(node, a, left.axes()).tensor, second = c.arranged(node, b, right.axes()).tensor;
  Value result =
      c.add(node, "einsum", {first, second}, {{"equation", left.letters() + "," + right.letters() + "->bhlm"}})[0];
  // Its atoms: those of the batch axes, of the rows and of the columns.
  result.atoms.clear();
  result.axes.assign(static_cast<size_t>(rank), Axis{});
  Vector<int> place(a.atoms.size(), 0);
  for (const int atom : batch_a) {
    place[atom] = result.atoms.count();
    result.atoms.push_back(a.atoms[atom]);
  }
  for (int axis = 0; axis + 2 < rank; ++axis)
    for (const int atom : a.axes[axis]) result.axes[axis].push_back(place[atom]);
  const auto take = [&](const Value& from, int axis) {
    for (const int atom : from.axes[axis]) {
      result.axes[axis].push_back(result.atoms.count());
      result.atoms.push_back(from.atoms[atom]);
    }
  };
  take(a, rows);
  take(b, columns);
  return result;
}

}  // namespace

// What the pass linear_of_product makes of a product with a weight and a sum after it: input, weight [in, out], bias.
void convert_linear(Conversion& c, const Node& node) {
  const Constant weight = transposed(c.required_constant(node, 1, "the weight"), {1, 0});
  const Constant bias = as_vector(c, node, c.required_constant(node, 2, "the bias"), weight.shape[0]);
  linear(c, node, c.value(node, 0), weight, &bias);
}

void convert_gemm(Conversion& c, const Node& node) {
  if (c.model.integer(node, "transA", 0) != 0) c.fail(node, "transposes its first operand, the samples");
  Constant weight = c.required_constant(node, 1, "the weight");
  const Constant* bias = c.constant(node, 2);
  if (node.has_input(2) && !bias) c.fail(node, "adds what is no constant");
  if (c.model.number(node, "alpha", 1) != 1 || (bias && c.model.number(node, "beta", 1) != 1))
    c.fail(node, "has factors alpha and beta other than 1, which are not understood");
  if (c.model.integer(node, "transB", 0) == 0) weight = transposed(weight, {1, 0});
  if (!bias) return linear(c, node, c.value(node, 0), weight, nullptr);
  const Constant vector = as_vector(c, node, *bias, weight.shape[0]);
  linear(c, node, c.value(node, 0), weight, &vector);
}

namespace {

bool varies_by_sample(const Value& x) {
  const Axis order = x.in_order();
  return std::find(order.begin(), order.end(), 0) != order.end();
}

// What is the same for all samples lies along those of the other operand, where that has an axis of them.
void adopt_samples(Value& without, const Value& with) {
  const int axis = with.batch_axis();
  if (!varies_by_sample(without) && axis >= 0 && axis + 2 < with.axes.count() && without.axes[axis].empty())
    without.axes[axis] = {0};
}

// x times a matrix that is the same for all samples, whatever axes x has before its last one.
Value product_with_matrix(Conversion& c, const Node& node, const Value& x, const Value& matrix) {
  const int last = x.axes.count() - 1, rank = matrix.axes.count();
  const Value rows = c.with_last(node, x, last);
  Axis inside;
  for (int atom = 1; atom < rows.atoms.count() - rows.axes[last].count(); ++atom) inside.push_back(atom);
  const std::string left = c.arranged(node, rows, {{0}, inside, rows.axes[last]}).tensor;
  const std::string right = c.arranged(node, matrix, {{0}, matrix.axes[rank - 2], matrix.axes[rank - 1]}).tensor;
  Value result = rows;
  result.tensor = c.add(node, "matmul", {left, right})[0].tensor;
  result.physical = c.builder.shape(result.tensor);
  result.atoms.erase(result.atoms.end() - rows.axes[last].count(), result.atoms.end());
  result.axes[last].clear();
  for (const int atom : matrix.axes[rank - 1]) {
    result.axes[last].push_back(result.atoms.count());
    result.atoms.push_back(matrix.atoms[atom]);
  }
  return result;
}

}  // namespace

void convert_matmul(Conversion& c, const Node& node) {
  if (const Constant* weight = c.constant(node, 1); weight && weight->computed_from.empty()) {
    if (weight->shape.size() != 2) c.fail(node, "multiplies by a constant of shape " + to_string(weight->shape));
    return linear(c, node, c.value(node, 0), transposed(*weight, {1, 0}), nullptr);
  }
  Value a = c.value(node, 0), b = c.value(node, 1);
  if (a.axes.size() < 2 || b.axes.size() < 2) c.fail(node, "multiplies by a vector, which is not understood");
  if (b.axes.count() == 2 && !varies_by_sample(b) && varies_by_sample(a)) {
    if (!refine(a, a.axes.count() - 1, b, 0)) c.fail(node, "has a common axis that is made up differently");
    return c.set(node, 0, product_with_matrix(c, node, a, b));
  }
  while (a.axes.size() < b.axes.size()) a.axes.insert(a.axes.begin(), Axis{});
  while (b.axes.size() < a.axes.size()) b.axes.insert(b.axes.begin(), Axis{});
  adopt_samples(a, b);
  adopt_samples(b, a);
  refine_batch_axes(c, node, a, b);
  const int inner = a.axes.count() - 1, columns = inner, inner_of_b = inner - 1;
  if (!refine(a, inner, b, inner_of_b))
    c.fail(node, "multiplies tensors of shapes " + to_string(a.shape()) + " and " + to_string(b.shape()) +
                     ", whose common axis is made up differently");
  if (is_one_axis(a, 3) && is_one_axis(b, 3)) {
    // b may lie as [batch, columns, inner] as well as it is.
    const bool across =
        !b.axes[columns].empty() && !b.axes[inner_of_b].empty() && b.axes[columns][0] < b.axes[inner_of_b][0];
    a = c.arranged(node, a);
    b = across ? c.arranged(node, b, {{0}, b.axes[columns], b.axes[inner_of_b]}) : c.arranged(node, b);
    const Json attributes = across ? Json{{"transpose", true}} : Json::object();
    return c.set(node, 0, c.add(node, "matmul", {a.tensor, b.tensor}, attributes)[0]);
  }
  c.set(node, 0, product_by_einsum(c, node, a, b));
}

void convert_einsum(Conversion& c, const Node& node) {
  const Vector<std::string> letters = einsum_letters(c.model, node);
  if (letters.size() != 3 || c.constant(node, 0) || c.constant(node, 1))
    c.fail(node,
           "is not understood: of more than two operands, or of letters that one operand has twice or alone without "
           "the result");
  const Value a = c.arranged(node, c.value(node, 0)), b = c.arranged(node, c.value(node, 1));
  if (letters[0][0] != letters[1][0] || letters[2].empty() || letters[2][0] != letters[0][0])
    c.fail(node, "combines samples, which is not understood");
  const std::string equation = letters[0] + "," + letters[1] + "->" + letters[2];
  c.set(node, 0, c.add(node, "einsum", {a.tensor, b.tensor}, {{"equation", equation}})[0]);
}

Value product_along(Conversion& c, const Node& node, const Value& x, int axis, const Constant& matrix) {
  if (x.axes[axis].empty()) {  // the one element, times each number
    Axis others;
    for (int atom = 1; atom < x.atoms.count(); ++atom) others.push_back(atom);
    Value result = c.arranged(node, x, {{0}, others});
    Constant factors = matrix;
    factors.shape = {matrix.shape[0]};
    result.tensor =
        c.add_with_parameters(node, "einsum", {result.tensor},
                              {{"equation", "bl,o->blo"}, {"sizes", {{"o", matrix.shape[0]}}}, {"trained", false}},
                              {{"weight", factors, false}})
            .tensor;
    result.physical = c.builder.shape(result.tensor);
    result.axes[axis] = {result.atoms.count()};
    result.atoms.push_back(matrix.shape[0]);
    return result;
  }
  const Value rows = c.with_last(node, x, axis);
  const std::string letters = rows.physical.size() == 3 ? "bl" : "b";
  Value product = c.add_with_parameters(
      node, "einsum", {rows.tensor},
      {{"equation", letters + "i,oi->" + letters + "o"}, {"sizes", {{"o", matrix.shape[0]}}}, {"trained", false}},
      {{"weight", matrix, false}});
  Value result = rows;
  result.tensor = product.tensor;
  result.physical = product.physical;
  const Axis old = rows.axes[axis];
  result.atoms.erase(result.atoms.begin() + old[0], result.atoms.begin() + old[0] + old.count());
  result.axes[axis].clear();
  if (matrix.shape[0] > 1) {
    result.axes[axis] = {result.atoms.count()};
    result.atoms.push_back(matrix.shape[0]);
  }
  return result;
}

// A constant matrix [out, in] times an axis.
void convert_fixed_product(Conversion& c, const Node& node) {
  const Value x = c.value(node, 0);
  const int axis = c.model.axis(node, c.model.integer(node, "axis", -1), x.axes.size());
  c.set(node, 0, product_along(c, node, x, axis, c.required_constant(node, 1, "the matrix")));
}

void convert_softmax(Conversion& c, const Node& node) {
  const Value x = c.value(node, 0);
  // Before operator set 13, all axes from `axis` on; the default was 1.
  const bool old = c.model.opset < 13;
  const int axis = c.model.axis(node, c.model.integer(node, "axis", old ? 1 : -1), x.axes.size());
  if (old && axis != x.axes.count() - 1) c.fail(node, "works on several axes at once, which is not understood");
  if (x.axes[axis].empty()) c.fail(node, "works on an axis of size 1");
  if (node.op == "LogSoftmax")  // of a loss alone: the cross entropy of log(softmax(x)) is that of x
    c.fail(node, "is understood only as the last operator before a loss; ask for one with --loss cross-entropy");
  Value rows = c.with_last(node, x, axis);
  rows.tensor = c.add(node, "softmax", {rows.tensor})[0].tensor;
  c.set(node, 0, rows);
}

// LayerNormalization and RMSNormalization, over the last axis.
void convert_normalization(Conversion& c, const Node& node) {
  const Value x = c.value(node, 0);
  const int last = x.axes.count() - 1;
  if (c.model.axis(node, c.model.integer(node, "axis", -1), x.axes.size()) != last)
    c.fail(node, "normalizes over several axes, which is not understood");
  if (x.axes[last].empty()) c.fail(node, "normalizes over an axis of size 1");
  const int64_t features = x.size(x.axes[last]);
  const bool layer = node.op == "LayerNormalization";
  Vector<Conversion::NamedConstant> parameters;
  Json attributes = {{"epsilon", c.model.number(node, "epsilon", 1e-5)}};
  if (node.has_input(1))
    parameters.push_back({"weight", as_vector(c, node, c.required_constant(node, 1, "the scale"), features)});
  else attributes["affine"] = false;
  if (layer && node.has_input(1))
    parameters.push_back({"bias", as_vector(c, node, c.required_constant(node, 2, "the bias"), features)});
  const char* const type = layer ? "layer_norm" : "rms_norm";
  Value rows = are_channels_of_images(x, x.axes[last]) ? x : c.with_last(node, x, last);
  rows.tensor = c.add_with_parameters(node, type, {rows.tensor}, attributes, parameters).tensor;
  c.set(node, 0, rows);
}

// Over all positions of a sequence or an image.
void convert_reduce_mean(Conversion& c, const Node& node) {
  const Value x = c.value(node, 0);
  Vector<bool> over(x.axes.size(), false);
  const Vector<int64_t> axes = c.model.integers_or_input(node, "axes", 1, {});
  for (const int64_t axis : axes) over[c.model.axis(node, axis, x.axes.size())] = true;
  if (axes.empty()) over.assign(x.axes.size(), true);
  Axis positions, channels;
  for (const int axis : x.axes.indices())
    for (const int atom : x.axes[axis]) {
      if (atom == 0 && over[axis]) c.fail(node, "takes the mean over the samples, which is not understood");
      if (atom != 0) (over[axis] ? positions : channels).push_back(atom);
    }
  if (positions.empty())
    c.fail(node, "takes a mean of a tensor of shape " + to_string(x.shape()) + ", which is not understood");
  const bool image = x.physical.size() == 4 && x.physical == x.atoms && channels == Axis{1};
  std::sort(channels.begin(), channels.end());
  const Value lies = image ? x : c.arranged(node, x, {{0}, positions, channels});
  Value result = c.add(node, "mean", {lies.tensor})[0];
  // The atoms that are left, in their order.
  result.atoms = {x.atoms[0]};
  Vector<int> renumbered(x.atoms.size(), 0);
  for (const int atom : channels) {
    renumbered[atom] = result.atoms.count();
    result.atoms.push_back(x.atoms[atom]);
  }
  const bool keep = c.model.integer(node, "keepdims", 1) != 0;
  result.axes.clear();
  for (const int axis : x.axes.indices()) {
    if (over[axis] && !keep) continue;
    result.axes.emplace_back();
    if (!over[axis])
      for (const int atom : x.axes[axis]) result.axes.back().push_back(renumbered[atom]);
  }
  c.set(node, 0, result);
}

}  // namespace ff::importing
