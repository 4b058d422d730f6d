// The kernel factories of the CPU backend, and what several kernels share.
#pragma once

#include "common/kernels/backend.h"
#include "common/kernels/cpu/onednn.h"
#include "common/operators/operator_list.h"

// Own loops are compiled for several instruction sets; the one that fits the machine is chosen when the program starts.
// x86-64-v4 is AVX-512 with the multiplication of 64-bit lanes (DQ) and with shorter vectors for remainders (VL). Under
// the address and thread sanitizers the choice would come before the sanitizer is there.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__  // as GCC says it
#endif
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__
#endif
#endif
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FF_VECTORIZED __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define FF_VECTORIZED
#endif

namespace ff::cpu {

#define FF_DECLARE(type, name) std::unique_ptr<Kernel> make_##name##_kernel(const Context&, const KernelRequest&);
FF_OPERATORS(FF_DECLARE)
#undef FF_DECLARE

// c [m, n] = alpha op(a) op(b) + beta c, row-major with strides, by oneDNN's sgemm; 'T' transposes an operand.
void multiply_matrices(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k, const float* a,
                       int64_t a_stride, const float* b, int64_t b_stride, float beta, float* c, int64_t c_stride,
                       float alpha = 1);

// Softmax over the rows of [rows, classes], from DNNL_ARG_SRC to DNNL_ARG_DST; one may be the other.
Primitive make_softmax(const Context& context, int64_t rows, int64_t classes);
// Its input's gradient from its output and the output's gradient; the two gradients may be one buffer.
void softmax_gradient(const float* output, const float* gradient, int64_t rows, int64_t classes, float* result);

// input [rows, in] times weight [out, in]^T, plus bias [out] if it has one, then relu if asked for -> [rows, out].
Primitive make_linear(const Context& context, int64_t rows, int64_t in, int64_t out, bool has_bias, bool relu);
void run_linear(const Context& context, Primitive& linear, const float* input, const float* weight, const float* bias,
                float* output);

// tanh of [rows, columns], from DNNL_ARG_SRC to DNNL_ARG_DST; one may be the other.
Primitive make_tanh(const Context& context, int64_t rows, int64_t columns);

// Loops that several kernels share.
// gate > 0 ? source : 0
void mask_by_positive(const float* gate, const float* source, float* destination, int64_t elements);
// [rows, columns] -> [columns]
void sum_rows(const float* matrix, int64_t rows, int64_t columns, float* sums, bool add = false);
// destination += source
void add_to(const float* source, float* destination, int64_t elements);
void add(const float* a, const float* b, float* destination, int64_t elements);
void multiply(const float* a, const float* b, float* destination, int64_t elements);

// Where a library's kernel can only overwrite: it writes to target(), and finish() adds that to the gradient if it was
// to be added to.
class GradientScratch {
 public:
  float* target(float* gradient, bool accumulate, int64_t elements) {
    if (!accumulate) return gradient;
    values_.resize(elements);
    return values_.data();
  }
  void finish(float* gradient, bool accumulate) const {
    if (accumulate) add_to(values_.data(), gradient, static_cast<int64_t>(values_.size()));
  }

 private:
  Vector<float> values_;
};

}  // namespace ff::cpu
