#include <cstring>

#include "common/kernels/cpu/kernels.h"

namespace ff::cpu {

FF_VECTORIZED void mask_by_positive(const float* gate, const float* source, float* destination, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) destination[i] = gate[i] > 0 ? source[i] : 0.0f;
}

FF_VECTORIZED void sum_rows(const float* matrix, int64_t rows, int64_t columns, float* sums) {
  std::memset(sums, 0, static_cast<size_t>(columns) * sizeof(float));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) sums[column] += matrix[row * columns + column];
}

FF_VECTORIZED void add_to(const float* source, float* destination, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) destination[i] += source[i];
}

}  // namespace ff::cpu
