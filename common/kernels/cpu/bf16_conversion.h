// Between f32 and bf16, arrays of elements.
#pragma once

#include <cstdint>

#include "common/kernels/bf16.h"

namespace ff::cpu {

void widen(const Bf16* source, float* destination, int64_t elements);
void narrow(const float* source, Bf16* destination, int64_t elements);
void round_to_bf16(const float* source, float* destination, int64_t elements);

}  // namespace ff::cpu
