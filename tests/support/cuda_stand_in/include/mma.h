// CUDA's warp matrix functions (CUDA C++ Programming Guide, "Warp Matrix Functions"), as far as the product uses them:
// products of 16 x 8 and 8 x 16 numbers in TF32, added up in f32. All lanes of a warp call them together, with the same
// arguments. Which lane has which element is unspecified; here it is another order than a GPU's, so that code that
// assumes one is wrong. As on a GPU, a product drops what operands have beyond ten bits: __float_to_tf32 rounds them.
// And no function orders the accesses of the warp's lanes to memory, for which there is __syncwarp.
#pragma once

#include <bit>
#include <limits>

#include "cuda_runtime_api.h"

// Waits for all lanes; what they pass has to be the same.
void cuda_stand_in_matrix_access(const void* memory, unsigned stride);
// d = a b + c of the whole warp; each lane gives its elements.
void cuda_stand_in_multiply(const float* a, const float* b, const float* c, float* d);
// Number, in a matrix of so many elements, of the one that a lane has at this place of its fragment.
constexpr unsigned cuda_stand_in_element(unsigned elements, unsigned lane, unsigned place) {
  return (37 * (32 * place + lane) + 11) % elements;
}
unsigned cuda_stand_in_lane();

namespace nvcuda::wmma {

struct row_major;
struct col_major;
struct matrix_a;
struct matrix_b;
struct accumulator;
namespace precision {
struct tf32;
}
enum layout_t { mem_row_major, mem_col_major };

template <int size>
struct cuda_stand_in_fragment {
  static constexpr int num_elements = size;
  cuda_stand_in_fragment() {  // not initialized: no number
    for (float& element : x) element = std::numeric_limits<float>::quiet_NaN();
  }
  float x[size];
};

template <class Use, int m, int n, int k, class Type, class Layout = void>
class fragment;
template <class Layout>
class fragment<matrix_a, 16, 16, 8, precision::tf32, Layout> : public cuda_stand_in_fragment<4> {};
template <class Layout>
class fragment<matrix_b, 16, 16, 8, precision::tf32, Layout> : public cuda_stand_in_fragment<4> {};
template <>
class fragment<accumulator, 16, 16, 8, float> : public cuda_stand_in_fragment<8> {};

// To nearest, ties away from zero (PTX ISA, cvt.rna.tf32.f32).
inline float __float_to_tf32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return value;
  return std::bit_cast<float>((bits + 0x1000u) & 0xffffe000u);
}

template <int size>
void fill_fragment(cuda_stand_in_fragment<size>& fragment, float value) {
  for (float& element : fragment.x) element = value;
}

// Calls body(element of the lane's fragment, its place in memory) for a matrix of rows of `columns`.
template <int size, class Memory, class Body>
void cuda_stand_in_each_element(Memory* memory, unsigned stride, unsigned columns, bool by_rows, const Body& body) {
  cuda_stand_in_matrix_access(memory, stride);
  const unsigned lane = cuda_stand_in_lane();
  for (unsigned place = 0; place < size; ++place) {
    const unsigned element = cuda_stand_in_element(32 * size, lane, place), row = element / columns,
                   column = element % columns;
    body(place, memory + (by_rows ? row * stride + column : column * stride + row));
  }
}

template <class Layout>
void load_matrix_sync(fragment<matrix_a, 16, 16, 8, precision::tf32, Layout>& a, const float* memory, unsigned stride) {
  cuda_stand_in_each_element<4>(memory, stride, 8, std::is_same_v<Layout, row_major>,
                                [&](unsigned place, const float* value) { a.x[place] = *value; });
}
template <class Layout>
void load_matrix_sync(fragment<matrix_b, 16, 16, 8, precision::tf32, Layout>& b, const float* memory, unsigned stride) {
  cuda_stand_in_each_element<4>(memory, stride, 16, std::is_same_v<Layout, row_major>,
                                [&](unsigned place, const float* value) { b.x[place] = *value; });
}
inline void load_matrix_sync(fragment<accumulator, 16, 16, 8, float>& c, const float* memory, unsigned stride,
                             layout_t layout) {
  cuda_stand_in_each_element<8>(memory, stride, 16, layout == mem_row_major,
                                [&](unsigned place, const float* value) { c.x[place] = *value; });
}
inline void store_matrix_sync(float* memory, const fragment<accumulator, 16, 16, 8, float>& c, unsigned stride,
                              layout_t layout) {
  cuda_stand_in_each_element<8>(memory, stride, 16, layout == mem_row_major,
                                [&](unsigned place, float* value) { *value = c.x[place]; });
}

template <class LayoutA, class LayoutB>
void mma_sync(fragment<accumulator, 16, 16, 8, float>& d,
              const fragment<matrix_a, 16, 16, 8, precision::tf32, LayoutA>& a,
              const fragment<matrix_b, 16, 16, 8, precision::tf32, LayoutB>& b,
              const fragment<accumulator, 16, 16, 8, float>& c) {
  cuda_stand_in_multiply(a.x, b.x, c.x, d.x);
}

}  // namespace nvcuda::wmma
