#include "common/kernels/cpu/bf16_conversion.h"

#include "common/kernels/cpu/kernels.h"

namespace ff::cpu {

FF_VECTORIZED void widen(const Bf16* source, float* destination, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) destination[i] = f32_of(source[i]);
}

FF_VECTORIZED void narrow(const float* source, Bf16* destination, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) destination[i] = bf16_of(source[i]);
}

FF_VECTORIZED void round_to_bf16(const float* source, float* destination, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) destination[i] = f32_of(bf16_of(source[i]));
}

}  // namespace ff::cpu
