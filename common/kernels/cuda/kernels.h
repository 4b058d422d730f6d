// The kernel factories of the CUDA backend, and what several kernels share. All work is submitted to the context's
// stream. Matrices are row-major.
#pragma once

#include "common/kernels/batched_updates.h"
#include "common/kernels/cuda/context.h"
#include "common/operators/operator_list.h"

namespace ff::cuda {

#define FF_DECLARE(type, name) std::unique_ptr<Kernel> make_##name##_kernel(const Context&, const KernelRequest&);
FF_OPERATORS(FF_DECLARE)
#undef FF_DECLARE

// A tensor as it is stored, of f32 or bf16 (Element).
template <class Element>
Element* typed(float* tensor) {
  return reinterpret_cast<Element*>(tensor);
}
template <class Element>
const Element* typed(const void* tensor) {
  return static_cast<const Element*>(tensor);
}

// products.cpp: cuBLAS.
// c [m, n] = alpha op(a) op(b) + beta c, with row strides; 'T' transposes an operand.
void multiply_matrices(const Context& context, char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k,
                       const float* a, int64_t a_stride, const float* b, int64_t b_stride, float beta, float* c,
                       int64_t c_stride, float alpha = 1);
// `count` such products; operands of the next one lie *_step elements further on.
struct MatrixBatch {
  int64_t count;
  int64_t a_step, b_step, c_step;
};
void multiply_matrices(const Context& context, const MatrixBatch& batch, char transpose_a, char transpose_b, int64_t m,
                       int64_t n, int64_t k, const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                       float beta, float* c, int64_t c_stride, float alpha = 1);
// The same of bf16, added up in f32; the result is bf16, each element rounded once, or f32. Compute capability 8.0.
template <class Result>
void multiply_matrices(const Context& context, char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k,
                       const uint16_t* a, int64_t a_stride, const uint16_t* b, int64_t b_stride, float beta, Result* c,
                       int64_t c_stride, float alpha = 1);
void multiply_matrices(const Context& context, const MatrixBatch& batch, char transpose_a, char transpose_b, int64_t m,
                       int64_t n, int64_t k, const uint16_t* a, int64_t a_stride, const uint16_t* b, int64_t b_stride,
                       float beta, uint16_t* c, int64_t c_stride, float alpha = 1);
void multiply_matrices(const Context& context, const MatrixBatch& batch, char transpose_a, char transpose_b, int64_t m,
                       int64_t n, int64_t k, const uint16_t* a, int64_t a_stride, const uint16_t* b, int64_t b_stride,
                       float beta, float* c, int64_t c_stride, float alpha = 1);

// loops.cu.
void copy(const Context& context, const void* source, void* destination, int64_t elements);
void copy_bytes(const Context& context, const void* source, void* destination, int64_t bytes);
void fill_zero(const Context& context, void* memory, int64_t bytes);
// bf16 to f32, f32 to the nearest bf16, f32 to the nearest bf16 as f32 (common/kernels/bf16.h).
void widen(const Context& context, const uint16_t* source, float* destination, int64_t elements);
void narrow(const Context& context, const float* source, uint16_t* destination, int64_t elements);
void round_to_bf16(const Context& context, const float* source, float* destination, int64_t elements);
// destination += source
void add_to(const Context& context, const float* source, float* destination, int64_t elements);
// gate > 0 ? source : 0; of f32 or bf16.
template <class Element>
void mask_by_positive(const Context& context, const Element* gate, const Element* source, Element* destination,
                      int64_t elements);
template <class Element>
void tanh_gradient(const Context& context, const Element* output, const Element* gradient, Element* result,
                   int64_t elements);
// values [rows, columns] += bias [columns], if any, then relu, if asked for; of f32 or bf16.
template <class Element>
void add_bias(const Context& context, const Element* bias, bool relu, int64_t rows, int64_t columns, Element* values);
// [rows, columns], of f32 or bf16, -> [columns]. `scratch`: sum_rows_scratch_bytes.
template <class Element>
void sum_rows(const Context& context, const Element* matrix, int64_t rows, int64_t columns, float* sums, bool add,
              void* scratch);
int64_t sum_rows_scratch_bytes(const Context& context, int64_t rows, int64_t columns);
// destination[c][r] = (destination[c][r] +) source[r][c] for every one of `count` matrices [rows, columns]; of f32 or
// bf16, or of bf16 to f32.
template <class Source, class Destination>
void transpose(const Context& context, const Source* source, int64_t count, int64_t rows, int64_t columns,
               Destination* destination, bool add = false);
// `rows` rows of `width` elements out of matrices with `source_stride` and `destination_stride` elements a row; of
// f32 or bf16.
template <class Element>
void copy_columns(const Context& context, const Element* source, int64_t source_stride, Element* destination,
                  int64_t destination_stride, int64_t rows, int64_t width);
// Keeps the stream busy for so long, so that work submitted meanwhile begins without gaps.
void keep_busy(const Context& context, int64_t nanoseconds);

// updates.cu: many parameters at once.
void update(const Context& context, std::span<const UpdateOperands> operands, const OptimizerStep& step);
double sum_of_squares(const Context& context, std::span<const ElementRun> runs);  // waits
void scale(const Context& context, std::span<const ElementRun> runs, float factor);

// block_copy.cu: rectangles between dense buffers (storage order as in backend.h).
void copy_block(const Context& context, const void* source, const Block& source_block, void* destination,
                const Block& destination_block, const Block& region);
void add_block(const Context& context, const float* source, const Block& source_block, float* destination,
               const Block& destination_block, const Block& region);
// Of bf16; each sum is rounded.
void copy_block_bf16(const Context& context, const void* source, const Block& source_block, void* destination,
                     const Block& destination_block, const Block& region);
void add_block_bf16(const Context& context, const void* source, const Block& source_block, void* destination,
                    const Block& destination_block, const Block& region);
template <class Element>  // f32 or bf16
void zero_block(const Context& context, Element* destination, const Block& destination_block, const Block& region);
// Elements [sizes] from strides `from` to strides `to`.
constexpr int most_strides = Block::max_rank;
struct StridedLoops {
  int depth = 0;
  int64_t sizes[most_strides], from[most_strides], to[most_strides];
};
template <class Element>  // f32 or bf16
void copy_strided(const Context& context, const StridedLoops& loops, const Element* source, Element* destination);
void add_strided(const Context& context, const StridedLoops& loops, const float* source, float* destination);

// embedding.cu: output [count, channels], rows of a table of f32 or bf16, which has these rows of the vocabulary; other
// tokens give zeros, those beyond the vocabulary are a fault (Context::fault_number).
template <class Table, class Output>
void look_up(const Context& context, const Table* table, Interval rows, const int32_t* tokens, int64_t count,
             int64_t channels, int64_t vocabulary, int number, Output* output);

// softmax.cu: over the rows of [rows, classes]; output may be input.
void softmax(const Context& context, const float* input, int64_t rows, int64_t classes, float* output);
// Its input's gradient from its output and the output's gradient; the two gradients may be one buffer.
void softmax_gradient(const Context& context, const float* output, const float* gradient, int64_t rows, int64_t classes,
                      float* result);

}  // namespace ff::cuda
