// Operators of ONNX that are written in terms of others before they are converted: a GRU as products and gates step by
// step, a transposed convolution as a convolution of spread elements, an instance normalization as a layer
// normalization. One function an operator, in the list lowerings() (lowering.cpp), which docs/onnx.md repeats as a
// table. Shapes are known, and what is trained stays so: weights are cut and transposed by nodes that are folded, which
// follow each number to the initializer that it is from.
#pragma once

#include <map>
#include <string>

#include "search/import/analysis.h"

namespace ff::importing {

// The nodes that take the place of one.
class Lowering {
 public:
  Lowering(Model& model, const Node& node) : model(model), node(node) {}

  Model& model;
  const Node node;
  Vector<Node> nodes;

  using Attributes = std::map<std::string, Attribute>;

  // Adds a node, and returns the name of its first output. What can be folded becomes a constant.
  std::string emit(const std::string& op, const Vector<std::string>& inputs, Attributes attributes = {});
  Vector<std::string> emit_all(const std::string& op, const Vector<std::string>& inputs, Attributes attributes,
                               int outputs);
  // The node's own output is this value.
  void give(size_t output, const std::string& value);

  std::string input(size_t i) const { return node.has_input(i) ? node.inputs[i] : ""; }
  Shape shape(const std::string& value) const;
  const Constant* constant(const std::string& value) const { return model.constant(value); }
  std::string add_constant(const Constant& constant);
  std::string number(double value) { return add_constant(Constant::scalar(static_cast<float>(value))); }

  // Nodes that are wanted often.
  std::string reshape(const std::string& x, const Shape& shape);
  std::string transpose(const std::string& x, const Vector<int64_t>& order);
  std::string slice(const std::string& x, int axis, int64_t begin, int64_t end);
  // Every `step`th element of an axis, `count` of them.
  std::string every(const std::string& x, int axis, int64_t begin, int64_t step, int64_t count);
  std::string concat(const Vector<std::string>& parts, int axis);
  // Zeros before and after each axis.
  std::string pad(const std::string& x, const Vector<int64_t>& before, const Vector<int64_t>& behind);
  // Elements of an axis by their numbers.
  std::string take(const std::string& x, int axis, const Vector<int64_t>& indices);
  // The largest of values of one shape: the maximum of a pool. (a + relu(b - a) would lose the digits of b where a is
  // far from it, as padding is.)
  std::string largest(const Vector<std::string>& values);
  // The product of a constant matrix [out, in] with an axis.
  std::string product(const std::string& x, int axis, const Constant& matrix);

  [[noreturn]] void fail(const std::string& message) const { model.fail(node, message); }

 private:
  int count_ = 0;
};

// Writes the nodes into lowering.nodes and gives the outputs; false: the node stays.
using LoweringRule = bool (*)(Lowering&);
const std::map<std::string, LoweringRule>& lowerings();

// Lowers all nodes, and those that take their places.
void lower(Model& model);

// Of each family, for the list.
bool lower_conv(Lowering&);
bool lower_conv_transpose(Lowering&);
bool lower_pool(Lowering&);
bool lower_global_pool(Lowering&);
bool lower_batch_normalization(Lowering&);
bool lower_instance_normalization(Lowering&);
bool lower_group_normalization(Lowering&);
bool lower_layer_normalization(Lowering&);
bool lower_resize(Lowering&);
bool lower_pad(Lowering&);
bool lower_depth_to_space(Lowering&);
bool lower_space_to_depth(Lowering&);

bool lower_lstm(Lowering&);
bool lower_gru(Lowering&);
bool lower_rnn(Lowering&);

bool lower_attention(Lowering&);
bool lower_rotary_embedding(Lowering&);
bool lower_is_nan(Lowering&);

bool lower_tile(Lowering&);
bool lower_expand(Lowering&);
bool lower_concat(Lowering&);
bool lower_slice(Lowering&);
bool lower_gather(Lowering&);
bool lower_cast(Lowering&);
bool lower_reduction(Lowering&);
bool lower_function(Lowering&);
bool lower_broadcast(Lowering&);
bool lower_division(Lowering&);
bool lower_condition(Lowering&);
bool lower_variadic(Lowering&);
bool lower_where(Lowering&);
bool lower_matmul(Lowering&);
bool lower_einsum(Lowering&);
bool lower_gemm(Lowering&);
bool lower_softmax(Lowering&);
bool lower_gather_elements(Lowering&);
bool lower_cumulative_sum(Lowering&);
bool lower_triangle(Lowering&);
bool lower_label_loss(Lowering&);

}  // namespace ff::importing
