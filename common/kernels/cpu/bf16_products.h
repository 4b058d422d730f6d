// Products of bf16 matrices without conversion, by oneDNN, on processors that have them (AVX512_BF16, AMX). Products
// are added up in f32. For operators that are products: linear, matmul, einsum.
#pragma once

#include <memory>
#include <unordered_map>

#include "common/kernels/backend.h"
#include "common/kernels/bf16_kernels.h"
#include "common/kernels/cpu/onednn.h"

namespace ff::cpu {

bool has_bf16_products();

// As Bf16Kernels::make_bf16_kernel (common/kernels/bf16_kernels.h).
std::unique_ptr<Kernel> make_bf16_kernel(const Context& context, const KernelRequest& request, void* scratch);

// result [m, n] (+)= scale left [m, k] right [k, n], plus bias [n] and then relu where asked for; `batch` times.
// Operands and bias are bf16.
struct Bf16Matrix {
  int64_t row_stride = 1;
  bool transposed = false;  // as it lies
  int64_t batch_step = 0;
  bool is_f32 = false;  // results alone
};
struct Bf16ProductShape {
  int64_t batch = 1, m = 1, n = 1, k = 1;
  Bf16Matrix left, right, result;
  bool add = false, bias = false, relu = false;
  float scale = 1;
};

class Bf16Product {
 public:
  Bf16Product() = default;
  Bf16Product(const Context& context, const Bf16ProductShape& shape);
  // oneDNN has a kernel for these instructions, instead of plain loops.
  bool is_fast() const { return fast_; }
  void run(const Context& context, const void* left, const void* right, const void* bias, void* result,
           Scratch scratch);

 private:
  dnnl::primitive primitive_;
  std::unordered_map<int, dnnl::memory> memories_;
  dnnl::memory own_scratchpad_;  // only where the shared one has no room
  int64_t scratchpad_bytes_ = 0;
  bool bias_ = false, fast_ = false;
};

}  // namespace ff::cpu
