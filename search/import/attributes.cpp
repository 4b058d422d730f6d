#include "search/import/attributes.h"

#include <optional>
#include <sstream>

#include "search/import/operator_table.h"

namespace ff::importing {
namespace {

// Of operators, the attributes that are read or change nothing here: "seed", "storage_order" of indices that are
// refused, "consumed_inputs" of the first operator sets. Operators of sequences and of control flow are checked where
// they are resolved.
const std::map<std::string, const char*>& known_attributes() {
  static const auto table = operator_table<const char*>({
      {"Conv", "auto_pad dilations group kernel_shape pads strides"},
      {"ConvTranspose", "auto_pad dilations group kernel_shape output_padding output_shape pads strides"},
      {"MaxPool", "auto_pad ceil_mode dilations kernel_shape pads storage_order strides"},
      {"AveragePool", "auto_pad ceil_mode count_include_pad dilations kernel_shape pads strides"},
      {"BatchNormalization", "consumed_inputs epsilon is_test momentum spatial training_mode"},
      {"InstanceNormalization", "consumed_inputs epsilon"},
      {"GroupNormalization", "epsilon num_groups stash_type"},
      {"LayerNormalization RMSNormalization", "axis epsilon stash_type"},
      {"LRN", "alpha beta bias size"},
      {"Pad", "mode paddings pads value"},
      {"Gemm", "alpha beta broadcast transA transB"},
      {"Einsum", "equation"},
      {"Concat Gather GatherElements OneHot Softmax LogSoftmax Flatten", "axis"},
      {"Transpose", "perm"},
      {"Reshape", "allowzero consumed_inputs shape"},
      {"Squeeze Unsqueeze", "axes"},
      {"Slice", "axes ends starts"},
      {"Split", "axis num_outputs split"},
      {"LSTM",
       "activation_alpha activation_beta activations clip direction hidden_size input_forget layout output_sequence"},
      {"GRU",
       "activation_alpha activation_beta activations clip direction hidden_size layout linear_before_reset "
       "output_sequence"},
      {"RNN", "activation_alpha activation_beta activations clip direction hidden_size layout output_sequence"},
      {"Resize Upsample",
       "antialias axes coordinate_transformation_mode cubic_coeff_a exclude_outside extrapolation_value "
       "keep_aspect_ratio_policy mode nearest_mode scales"},
      {"DepthToSpace", "blocksize mode"},
      {"SpaceToDepth", "blocksize"},
      {"Dropout", "consumed_inputs is_test ratio seed"},
      {"Attention",
       "is_causal kv_num_heads left_window_size q_num_heads qk_matmul_output_mode right_window_size scale softcap "
       "softmax_precision"},
      {"RotaryEmbedding", "interleaved num_heads rotary_embedding_dim"},
      {"SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss", "ignore_index reduction"},
      {"ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum "
       "ReduceLogSumExp",
       "axes keepdims noop_with_empty_axes"},
      {"Add Sub Mul Div Pow Equal Less Greater And Or Xor", "axis broadcast consumed_inputs"},
      {"Mod", "fmod"},
      {"Relu Sigmoid Tanh Exp Log Neg Abs Sqrt Reciprocal Floor Ceil Max Min Sum Mean", "consumed_inputs"},
      {"Expand Tile MatMul Where PRelu Softplus Softsign Mish HardSwish Sin Cos Erf Sign Not Round IsNaN Identity "
       "GlobalAveragePool GlobalMaxPool Range Size LessOrEqual GreaterOrEqual",
       ""},
      {"Gelu", "approximate"},
      {"Swish Celu", "alpha"},
      {"Elu LeakyRelu", "alpha consumed_inputs"},
      {"Selu", "alpha consumed_inputs gamma"},
      {"HardSigmoid", "alpha beta consumed_inputs"},
      {"Clip", "consumed_inputs max min"},
      {"CumSum", "exclusive reverse"},
      {"Trilu", "upper"},
      {"EyeLike", "dtype k"},
      {"ConstantOfShape", "value"},
      {"Shape", "end start"},
      {"Cast", "round_mode saturate to"},
      {"CastLike", "round_mode saturate"},
      {"ScatterND", "reduction"},
  });
  return table;
}

bool has_word(const char* words, const std::string& word) {
  std::istringstream stream(words);
  for (std::string each; stream >> each;)
    if (each == word) return true;
  return false;
}

// Before operator set 7 the second operand lay along the axes from `axis` on. Are these the last ones?
bool lies_along_last_axes(const Model& model, const Node& node) {
  const auto rank = [&](size_t input) -> std::optional<int64_t> {
    if (!node.has_input(input)) return std::nullopt;
    if (const Constant* constant = model.constant(node.inputs[input])) return constant->shape.count();
    const auto shape = model.shapes.find(node.inputs[input]);
    return shape == model.shapes.end() ? std::nullopt : std::optional<int64_t>(shape->second.count());
  };
  const auto first = rank(0), second = rank(1);
  const int64_t axis = model.integer(node, "axis", 0);
  return first && second && (axis < 0 ? axis + *first : axis) + *second == *first;
}

}  // namespace

void expect_known_attributes(const Model& model, const Node& node) {
  const auto known = known_attributes().find(node.op);
  if (known == known_attributes().end()) return;
  for (const auto& [name, value] : node.attributes)
    if (!has_word(known->second, name)) model.fail(node, "has the attribute " + name + ", which is not understood");
  if (node.attributes.count("broadcast") && node.attributes.count("axis") && !lies_along_last_axes(model, node))
    model.fail(node, "has the attribute axis of operator sets before 7, which is not understood");
  if (model.integer(node, "spatial", 1) != 1)
    model.fail(node, "has statistics of each position (spatial = 0), which are not understood");
}

}  // namespace ff::importing
