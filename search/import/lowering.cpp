#include "search/import/lowering.h"

#include <algorithm>
#include <numeric>

#include "search/import/operator_table.h"

namespace ff::importing {

Shape Lowering::shape(const std::string& value) const {
  if (const Constant* known = model.constant(value)) return known->shape;
  const auto it = model.shapes.find(value);
  if (it == model.shapes.end()) fail("its shape cannot be found");
  return it->second;
}

std::string Lowering::add_constant(const Constant& constant) {
  const std::string name = "lowered " + std::to_string(model.constants.size());
  model.constants[name] = constant;
  return name;
}

Vector<std::string> Lowering::emit_all(const std::string& op, const Vector<std::string>& inputs, Attributes attributes,
                                       int outputs) {
  const std::string base = node.outputs[0] + "#" + std::to_string(count_++);
  Node added{node.name, op, inputs, {}, std::move(attributes)};
  for (int i = 0; i < outputs; ++i) added.outputs.push_back(i == 0 ? base : base + "." + std::to_string(i));
  if (const auto constants = fold(model, added)) {
    keep_folded(model, added, *constants);
    return added.outputs;
  }
  const auto shapes = infer_shapes(model, added);
  if (!shapes) fail("its shape cannot be found");
  ElementType type = ElementType::f32;
  for (const std::string& input : inputs)
    if (const auto it = model.types.find(input); it != model.types.end()) type = it->second;
  if (op == "OneHot") type = ElementType::f32;
  for (int i = 0; i < outputs; ++i) {
    model.shapes[added.outputs[i]] = (*shapes)[i];
    model.types[added.outputs[i]] = type;
  }
  nodes.push_back(added);
  return added.outputs;
}

std::string Lowering::emit(const std::string& op, const Vector<std::string>& inputs, Attributes attributes) {
  return emit_all(op, inputs, std::move(attributes), 1)[0];
}

void Lowering::give(size_t output, const std::string& value) {
  if (!node.has_output(output)) return;
  nodes.push_back({node.name, "Identity", {value}, {node.outputs[output]}, {}});
}

std::string Lowering::reshape(const std::string& x, const Shape& wanted) {
  if (shape(x) == wanted) return x;
  return emit("Reshape", {x, add_constant(Constant::of_integers({wanted.count()}, wanted))});
}

std::string Lowering::transpose(const std::string& x, const Vector<int64_t>& order) {
  return std::is_sorted(order.begin(), order.end()) ? x : emit("Transpose", {x}, {{"perm", order}});
}

std::string Lowering::slice(const std::string& x, int axis, int64_t begin, int64_t end) {
  if (begin == 0 && end == shape(x)[axis]) return x;
  const auto one = [&](int64_t value) { return add_constant(Constant::of_integers({1}, {value})); };
  return emit("Slice", {x, one(begin), one(end), one(axis)});
}

std::string Lowering::every(const std::string& x, int axis, int64_t begin, int64_t step, int64_t count) {
  if (step == 1 || count == 1) return slice(x, axis, begin, begin + count);
  const Shape before = shape(x);
  if (before[axis] % step == 0) {  // columns of a matrix
    Shape rows = before, result = before;
    rows[axis] = before[axis] / step;
    rows.insert(rows.begin() + axis + 1, step);
    result[axis] = count;
    const std::string column = slice(reshape(x, rows), axis + 1, begin % step, begin % step + 1);
    return reshape(slice(column, axis, begin / step, begin / step + count), result);
  }
  // As rows of `step` elements, of which one is taken; a last row that is not whole is filled up.
  std::string from = slice(x, axis, begin, std::min(before[axis], begin + step * count));
  const int64_t missing = step * count - shape(from)[axis];
  if (missing > 0) {
    Vector<int64_t> none(before.size(), 0), behind = none;
    behind[axis] = missing;
    from = pad(from, none, behind);
  }
  Shape rows = before, result = before;
  rows[axis] = count;
  rows.insert(rows.begin() + axis + 1, step);
  result[axis] = count;
  return reshape(slice(reshape(from, rows), axis + 1, 0, 1), result);
}

std::string Lowering::concat(const Vector<std::string>& parts, int axis) {
  return parts.size() == 1 ? parts[0] : emit("Concat", parts, {{"axis", int64_t{axis}}});
}

std::string Lowering::pad(const std::string& x, const Vector<int64_t>& before, const Vector<int64_t>& behind) {
  Vector<int64_t> pads = before;
  pads.insert(pads.end(), behind.begin(), behind.end());
  if (std::all_of(pads.begin(), pads.end(), [](int64_t size) { return size == 0; })) return x;
  return emit("Pad", {x, add_constant(Constant::of_integers({pads.count()}, pads))});
}

std::string Lowering::largest(const Vector<std::string>& values) {
  if (values.size() == 1) return values[0];
  const Shape result = shape(values[0]);
  const int64_t count = static_cast<int64_t>(values.size());
  Vector<std::string> rows;
  for (const std::string& value : values) rows.push_back(reshape(value, {result[0], volume(result) / result[0], 1}));
  const Attributes window = {{"kernel_shape", Vector<int64_t>{count}}, {"strides", Vector<int64_t>{count}}};
  return reshape(emit("MaxPool", {concat(rows, 2)}, window), result);
}

std::string Lowering::product(const std::string& x, int axis, const Constant& matrix) {
  return emit("FixedProduct", {x, add_constant(matrix)}, {{"axis", int64_t{axis}}});
}

std::string Lowering::take(const std::string& x, int axis, const Vector<int64_t>& indices) {
  Vector<std::pair<int64_t, int64_t>> runs;
  for (const int64_t index : indices) {
    if (!runs.empty() && runs.back().second == index) ++runs.back().second;
    else runs.emplace_back(index, index + 1);
  }
  constexpr size_t most_slices = 16;  // more are a product with a matrix of zeros and ones
  const auto type = model.types.find(x);
  if (runs.size() <= most_slices || (type != model.types.end() && type->second != ElementType::f32)) {
    Vector<std::string> parts;
    for (const auto& [begin, end] : runs) parts.push_back(slice(x, axis, begin, end));
    return concat(parts, axis);
  }
  const int64_t size = shape(x)[axis];
  Vector<float> values(indices.size() * static_cast<size_t>(size), 0.0f);
  for (const int i : indices.indices()) values[i * size + indices[i]] = 1;
  return product(x, axis, Constant::of_floats({indices.count(), size}, std::move(values)));
}

const std::map<std::string, LoweringRule>& lowerings() {
  static const std::map<std::string, LoweringRule> table = operator_table<LoweringRule>({
      {"Conv", lower_conv},
      {"ConvTranspose", lower_conv_transpose},
      {"MaxPool AveragePool", lower_pool},
      {"GlobalAveragePool GlobalMaxPool", lower_global_pool},
      {"BatchNormalization", lower_batch_normalization},
      {"InstanceNormalization", lower_instance_normalization},
      {"GroupNormalization", lower_group_normalization},
      {"LayerNormalization RMSNormalization", lower_layer_normalization},
      {"Resize Upsample", lower_resize},
      {"Pad", lower_pad},
      {"DepthToSpace", lower_depth_to_space},
      {"SpaceToDepth", lower_space_to_depth},
      {"LSTM", lower_lstm},
      {"GRU", lower_gru},
      {"RNN", lower_rnn},
      {"Attention", lower_attention},
      {"RotaryEmbedding", lower_rotary_embedding},
      {"IsNaN", lower_is_nan},
      {"Tile", lower_tile},
      {"Expand", lower_expand},
      {"Concat", lower_concat},
      {"Slice", lower_slice},
      {"Gather", lower_gather},
      {"ReduceSum ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum "
       "ReduceLogSumExp ReduceMean",
       lower_reduction},
      {"Cast", lower_cast},
      {"Reciprocal Sqrt InverseSqrt Cos Celu Softsign Swish LogSigmoid", lower_function},
      {"Add Sub Mul", lower_broadcast},
      {"Div", lower_division},
      {"Not And Or Xor Equal Less LessOrEqual Greater GreaterOrEqual", lower_condition},
      {"Max Min Sum Mean", lower_variadic},
      {"Where", lower_where},
      {"MatMul", lower_matmul},
      {"Einsum", lower_einsum},
      {"Gemm", lower_gemm},
      {"Softmax LogSoftmax", lower_softmax},
      {"GatherElements", lower_gather_elements},
      {"CumSum", lower_cumulative_sum},
      {"Trilu", lower_triangle},
      {"SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss", lower_label_loss},
  });
  return table;
}

namespace {

void lower_node(Model& model, const Node& node, Vector<Node>& result, int depth) {
  const auto rule = lowerings().find(node.op);
  constexpr int most = 12;  // a rule may use an operator that another rule lowers
  if (rule != lowerings().end() && depth < most && !node.outputs.empty() && model.shapes.count(node.outputs[0])) {
    Lowering lowering(model, node);
    if (rule->second(lowering)) {
      for (const Node& each : lowering.nodes) lower_node(model, each, result, depth + 1);
      return;
    }
  }
  result.push_back(node);
}

}  // namespace

void lower(Model& model) {
  // What is computed from initializers alone is converted where it is read as a value.
  for (const auto& [output, node] : std::map<std::string, Node>(model.folded)) {
    const auto rule = lowerings().find(node.op);
    Lowering lowering(model, node);
    if (node.outputs.size() != 1 || rule == lowerings().end() || !rule->second(lowering) || lowering.nodes.size() != 1)
      continue;
    model.folded[output] = lowering.nodes[0];
  }
  Vector<Node> result;
  for (const Node& node : Vector<Node>(model.nodes)) lower_node(model, node, result, 0);
  model.nodes = std::move(result);
  remove_dead_nodes(model);
}

}  // namespace ff::importing
