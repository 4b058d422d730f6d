#include <cstring>

#include "common/errors.h"

#include "common/kernels/cpu/kernels.h"

namespace ff::cpu {

void multiply_matrices(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k, const float* a,
                       int64_t a_stride, const float* b, int64_t b_stride, float beta, float* c, int64_t c_stride,
                       float alpha) {
  const dnnl_status_t status =
      dnnl_sgemm(transpose_a, transpose_b, m, n, k, alpha, a, a_stride, b, b_stride, beta, c, c_stride);
  if (status != dnnl_success) throw MachineError("oneDNN: sgemm failed with status " + std::to_string(status));
}

FF_VECTORIZED void mask_by_positive(const float* gate, const float* source, float* destination, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) destination[i] = gate[i] > 0 ? source[i] : 0.0f;
}

FF_VECTORIZED void sum_rows(const float* matrix, int64_t rows, int64_t columns, float* sums, bool add) {
  if (!add) std::memset(sums, 0, static_cast<size_t>(columns) * sizeof(float));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) sums[column] += matrix[row * columns + column];
}

FF_VECTORIZED void add_to(const float* source, float* destination, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) destination[i] += source[i];
}

FF_VECTORIZED void add(const float* a, const float* b, float* destination, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) destination[i] = a[i] + b[i];
}

FF_VECTORIZED void multiply(const float* a, const float* b, float* destination, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) destination[i] = a[i] * b[i];
}

}  // namespace ff::cpu
