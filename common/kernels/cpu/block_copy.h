// Moving rectangles between dense buffers (storage order as in backend.h).
#pragma once

#include <cstdint>

#include "common/block.h"
#include "common/kernels/bf16.h"

namespace ff::cpu {

// Elements of `region` (4 bytes each, or 2) from a buffer that holds block `source_block` to one that holds
// `destination_block`.
void copy_block(const void* source, const Block& source_block, void* destination, const Block& destination_block,
                const Block& region, int64_t element_size = 4);
// destination += source; sums of bf16 are rounded.
void add_block(const float* source, const Block& source_block, float* destination, const Block& destination_block,
               const Block& region);
void add_block(const Bf16* source, const Block& source_block, Bf16* destination, const Block& destination_block,
               const Block& region);

// destination[c][r] = source[r][c] for every one of `count` matrices [rows, columns].
void transpose(const uint32_t* source, int64_t count, int64_t rows, int64_t columns, uint32_t* destination);

// `rows` rows of `width` elements out of matrices with `source_stride` and `destination_stride` elements a row.
void copy_columns(const float* source, int64_t source_stride, float* destination, int64_t destination_stride,
                  int64_t rows, int64_t width);

}  // namespace ff::cpu
