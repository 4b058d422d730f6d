// The list of operator types, in the order of docs/operators.md, from which declarations and tables come. A line is
// OPERATOR(type, name): the type as graph files say it, and after what its functions are called; types may share them.
//   make_NAME            in common/operators: what the operator means
//   make_NAME_kernel     in common/kernels/cpu and in common/kernels/cuda: what a device computes
//   make_NAME_reference  in tests/unit/common/kernels/reference: the double-precision loops that judge the kernels
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#define FF_OPERATORS(OPERATOR)                                         \
  OPERATOR(conv2d, conv2d)                                             \
  OPERATOR(conv1d, conv1d)                                             \
  OPERATOR(pool2d, pool2d)                                             \
  OPERATOR(pool1d, pool1d)                                             \
  OPERATOR(linear, linear)                                             \
  OPERATOR(relu, elementwise)                                          \
  OPERATOR(tanh, elementwise)                                          \
  OPERATOR(sigmoid, elementwise)                                       \
  OPERATOR(gelu, elementwise)                                          \
  OPERATOR(silu, elementwise)                                          \
  OPERATOR(elu, elementwise)                                           \
  OPERATOR(softplus, elementwise)                                      \
  OPERATOR(mish, elementwise)                                          \
  OPERATOR(log, elementwise)                                           \
  OPERATOR(exp, elementwise)                                           \
  OPERATOR(sin, elementwise)                                           \
  OPERATOR(pow, elementwise)                                           \
  OPERATOR(add, elementwise)                                           \
  OPERATOR(sub, elementwise)                                           \
  OPERATOR(mul, elementwise)                                           \
  OPERATOR(identity, elementwise)                                      \
  OPERATOR(affine, activation)                                         \
  OPERATOR(clip, activation)                                           \
  OPERATOR(leaky_relu, activation)                                     \
  OPERATOR(hard_sigmoid, activation)                                   \
  OPERATOR(hard_swish, activation)                                     \
  OPERATOR(broadcast_add, broadcast)                                   \
  OPERATOR(broadcast_mul, broadcast)                                   \
  OPERATOR(dropout, dropout)                                           \
  OPERATOR(local_response_normalization, local_response_normalization) \
  OPERATOR(batch_norm, batch_norm)                                     \
  OPERATOR(layer_norm, layer_norm)                                     \
  OPERATOR(rms_norm, rms_norm)                                         \
  OPERATOR(embedding, embedding)                                       \
  OPERATOR(position_embedding, position_embedding)                     \
  OPERATOR(prefix, prefix)                                             \
  OPERATOR(relative_bias, relative_bias)                               \
  OPERATOR(lstm, lstm)                                                 \
  OPERATOR(attention, attention)                                       \
  OPERATOR(multi_head_attention, multi_head_attention)                 \
  OPERATOR(matmul, matmul)                                             \
  OPERATOR(einsum, einsum)                                             \
  OPERATOR(mean, mean)                                                 \
  OPERATOR(concat, concat)                                             \
  OPERATOR(stack, stack)                                               \
  OPERATOR(slice, slice)                                               \
  OPERATOR(split, slice)                                               \
  OPERATOR(pad, pad)                                                   \
  OPERATOR(transpose, transpose)                                       \
  OPERATOR(reshape, reshape)                                           \
  OPERATOR(flatten, flatten)                                           \
  OPERATOR(softmax, softmax)                                           \
  OPERATOR(softmax_cross_entropy, softmax_cross_entropy)               \
  OPERATOR(mean_loss, mean_loss)                                       \
  OPERATOR(top_k_gating, top_k_gating)                                 \
  OPERATOR(load_balancing_loss, load_balancing_loss)                   \
  OPERATOR(dispatch, dispatch)                                         \
  OPERATOR(expert_linear, expert_linear)                               \
  OPERATOR(combine, combine)

namespace ff {

class OperatorDefinition;
struct OperatorRequest;

#define FF_DECLARE(type, name) std::unique_ptr<OperatorDefinition> make_##name(const OperatorRequest& request);
FF_OPERATORS(FF_DECLARE)
#undef FF_DECLARE

// A row of a table that FF_OPERATORS fills: a type and its function.
template <class Function>
struct OperatorFunction {
  std::string_view type;
  Function* function;
};

// The type's function, or null.
template <class Function, size_t types>
Function* function_of(std::string_view type, const OperatorFunction<Function> (&table)[types]) {
  for (const OperatorFunction<Function>& row : table)
    if (row.type == type) return row.function;
  return nullptr;
}

}  // namespace ff
