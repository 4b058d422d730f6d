// The kernel factories of the CPU backend; backend.cpp holds the list that names them.
#pragma once

#include <memory>

#include "common/kernels/backend.h"
#include "common/kernels/cpu/onednn.h"

// Own loops are compiled for several instruction sets; the one that fits the machine is chosen when the program starts.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define FF_VECTORIZED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FF_VECTORIZED
#endif

namespace ff::cpu {

std::unique_ptr<Kernel> make_conv2d_kernel(const Context&, const KernelRequest&);
std::unique_ptr<Kernel> make_pool2d_kernel(const Context&, const KernelRequest&);
std::unique_ptr<Kernel> make_linear_kernel(const Context&, const KernelRequest&);
std::unique_ptr<Kernel> make_elementwise_kernel(const Context&, const KernelRequest&);
std::unique_ptr<Kernel> make_dropout_kernel(const Context&, const KernelRequest&);
std::unique_ptr<Kernel> make_local_response_normalization_kernel(const Context&, const KernelRequest&);
std::unique_ptr<Kernel> make_concat_kernel(const Context&, const KernelRequest&);
std::unique_ptr<Kernel> make_flatten_kernel(const Context&, const KernelRequest&);
std::unique_ptr<Kernel> make_softmax_kernel(const Context&, const KernelRequest&);
std::unique_ptr<Kernel> make_softmax_cross_entropy_kernel(const Context&, const KernelRequest&);

// Loops that several kernels share.
void mask_by_positive(const float* gate, const float* source, float* destination, int64_t elements);  // gate > 0 ? source : 0
void sum_rows(const float* matrix, int64_t rows, int64_t columns, float* sums);                       // [rows, columns] -> [columns]
void add_to(const float* source, float* destination, int64_t elements);                              // destination += source

}  // namespace ff::cpu
