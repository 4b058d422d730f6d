// Instructions for tensor cores and for copies to shared memory that CUDA C++ has no functions for, as PTX (PTX ISA,
// sections "mma", "ldmatrix" and "cp.async"). Of compute capability 8.0 and newer. All lanes of a warp call those of
// matrices together.
//
// Which elements of its matrices a lane has: each register has two neighbouring ones, the lower half the first. With
// g = lane / 4 and c = 2 * (lane % 4):
//
//   a [16 x 16], of left operands:   row g, columns c;  row g + 8, columns c;  row g, columns c + 8;  row g + 8, c + 8
//   b [16 x 8], of right operands:   rows c and c + 1 of column g;  rows c + 8 and c + 9 of column g
//   d [16 x 8], of sums, in f32:     row g, columns c and c + 1;  row g + 8, columns c and c + 1
#pragma once

#include "common/kernels/bf16.h"

#ifndef __CUDACC__
#include <tensor_core_instructions_on_cpus.h>  // tests/support/cuda_stand_in
#elif !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

namespace ff::cuda {

// d += a b
__device__ inline void multiply_add_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two numbers rounded to the nearest bf16, the first in the lower half.
__device__ inline uint32_t pack_bf16(float first, float second) {
  uint32_t result;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(second), "f"(first));
  return result;
}

// 2^exponent, with an error of two units in the last place; results too small for normal numbers are 0.
__device__ inline float power_of_two(float exponent) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(exponent));
  return result;
}

__device__ inline uint32_t shared_address(const void* memory) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(memory));
}

// Four matrices [8 x 8] in shared memory. Lane i gives the address of row i % 8 of matrix i / 8, a multiple of 16
// bytes. Register m of a lane is elements c and c + 1 of row g of matrix m.
__device__ inline void load_matrices(uint32_t (&registers)[4], const Bf16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(shared_address(row))
               : "memory");
}
// The same, but register m is rows c and c + 1 of column g of matrix m.
__device__ inline void load_transposed_matrices(uint32_t (&registers)[4], const Bf16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(shared_address(row))
               : "memory");
}

// From global to shared memory, asynchronously; addresses are multiples of as many bytes. Zeros where not `valid`: then
// `global` is not read. The copies since the last commit are a group.
__device__ inline void copy_async_16(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}
__device__ inline void copy_async_4(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(valid ? 4 : 0)
               : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// For all groups of the thread but the last `later`. Other threads see the copies after a barrier.
template <int later>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(later) : "memory");
}

}  // namespace ff::cuda

#endif
