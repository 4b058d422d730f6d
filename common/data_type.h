// Types of elements, and the precision of a training run that follows from a plan (--precision).
//
//   precision   activations, their gradients   weights that kernels read        everything else
//   fp32        f32                            f32, the ones that are updated   f32
//   tf32        f32; GPUs round the operands   f32                              f32
//               of products to 10 bits
//   bf16        bf16                           bf16 copies of f32 masters       f32: master weights, gradients of
//                                                                               parameters, state of the optimizer,
//                                                                               statistics, losses
//
// Inputs of the graph keep the type that its file gives them. The type of each tensor is in Tensor::type (graph.h), and
// in the specs of the operators at its ends.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/block.h"

namespace ff {

enum class DataType : uint8_t { f32, i32, bf16 };
std::string_view to_string(DataType type);
constexpr int64_t size_of(DataType type) { return type == DataType::bf16 ? 2 : 4; }  // bytes
constexpr bool is_floating(DataType type) { return type != DataType::i32; }
constexpr int64_t bytes_of(DataType type, int64_t elements) { return elements * size_of(type); }
inline int64_t bytes_of(DataType type, const Block& block) { return bytes_of(type, block.volume()); }

// Of master weights, gradients of parameters, state of the optimizer, statistics, losses, and of what kernels keep from
// forward to backward: f32, whatever the precision.
constexpr int64_t element_bytes = 4;

enum class Precision : uint8_t { fp32, tf32, bf16 };
std::string_view to_string(Precision precision);
Precision precision_of(const std::string& name);  // throws InputError
// Of activations, their gradients, and the weights that kernels read.
constexpr DataType activation_type(Precision precision) {
  return precision == Precision::bf16 ? DataType::bf16 : DataType::f32;
}

}  // namespace ff
