// Kernels for operators in bf16 (common/data_type.h). The backends' kernels compute in f32: around each call, operands
// in bf16 become f32 in scratch memory, and results are rounded to bf16. So every operator has a bf16 form with f32
// accumulation, and products of bf16 operands are exact in f32; what is kept from forward to backward is f32. Where a
// backend has a kernel that works on bf16 as it lies (bf16_kernels.h), it is used instead.
#pragma once

#include <memory>

#include "common/kernels/backend.h"
#include "common/operators/conversion.h"

namespace ff {

// The backend's kernel itself where all tensors are f32 or i32. `scratch`: conversion_bytes, of the backend's memory,
// which other kernels use too between calls; it lives as long as the kernel.
std::unique_ptr<Kernel> make_typed_kernel(Backend& backend, const KernelRequest& request, void* scratch);

}  // namespace ff
