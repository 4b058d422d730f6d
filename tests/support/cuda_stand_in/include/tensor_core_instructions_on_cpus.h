// The instructions of common/kernels/cuda/tensor_core_instructions.cuh, which says what they do, on CPUs. Matrices are
// read by the lane that gets the elements. What an asynchronous copy writes is no number until the thread waits for it.
#pragma once

#include <cmath>

#include "cuda_runtime_api.h"

unsigned cuda_stand_in_lane();
// all[i] = the value of lane i; waits for all lanes.
void cuda_stand_in_gather(uint64_t value, uint64_t (&all)[32]);
// d += a b of the whole warp; each lane gives its registers.
void cuda_stand_in_multiply_bf16(float* d, const uint32_t* a, const uint32_t* b);
// Fails unless the address is a multiple of 16 bytes.
void cuda_stand_in_check_matrix_row(const void* row);
void cuda_stand_in_copy_async(void* shared, const void* global, unsigned bytes, bool valid);
void cuda_stand_in_commit_copies();
void cuda_stand_in_wait_for_copies(unsigned later);

namespace ff::cuda {

inline void multiply_add_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint32_t b[2] = {b0, b1};
  cuda_stand_in_multiply_bf16(d, a, b);
}

inline uint32_t pack_bf16(float first, float second) {
  return bf16_of(first) | static_cast<uint32_t>(bf16_of(second)) << 16;
}

inline float power_of_two(float exponent) {
  const float result = std::exp2(exponent);
  return result < 1.17549435e-38f ? 0 : result;
}

// The rows of four matrices, whose addresses the lanes give.
struct MatrixRows {
  uint64_t of[32];
  explicit MatrixRows(const Bf16* row) {
    cuda_stand_in_check_matrix_row(row);
    cuda_stand_in_gather(reinterpret_cast<uint64_t>(row), of);
  }
  uint32_t at(unsigned row, unsigned column) const { return reinterpret_cast<const Bf16*>(of[row])[column]; }
};

inline void load_matrices(uint32_t (&registers)[4], const Bf16* row) {
  const MatrixRows rows(row);
  const unsigned lane = cuda_stand_in_lane(), own_row = lane / 4, own_column = lane % 4 * 2;
  for (unsigned m = 0; m < 4; ++m)
    registers[m] = rows.at(8 * m + own_row, own_column) | rows.at(8 * m + own_row, own_column + 1) << 16;
}
inline void load_transposed_matrices(uint32_t (&registers)[4], const Bf16* row) {
  const MatrixRows rows(row);
  const unsigned lane = cuda_stand_in_lane(), own_row = lane % 4 * 2, own_column = lane / 4;
  for (unsigned m = 0; m < 4; ++m)
    registers[m] = rows.at(8 * m + own_row, own_column) | rows.at(8 * m + own_row + 1, own_column) << 16;
}

inline void copy_async_16(void* shared, const void* global, bool valid) {
  cuda_stand_in_copy_async(shared, global, 16, valid);
}
inline void copy_async_4(void* shared, const void* global, bool valid) {
  cuda_stand_in_copy_async(shared, global, 4, valid);
}
inline void commit_copies() { cuda_stand_in_commit_copies(); }
template <int later>
void wait_for_copies() {
  cuda_stand_in_wait_for_copies(later);
}

}  // namespace ff::cuda
