// What a backend may have besides its kernels in f32: kernels that work on bf16 as it lies.
#pragma once

#include <memory>
#include <string>

#include "common/kernels/backend.h"

namespace ff {

class Bf16Kernels {
 public:
  virtual ~Bf16Kernels() = default;
  // For an operator with bf16 tensors, whose arguments have the types of the definition; null: there is none, and the
  // kernel in f32 works on converted values (converted_kernel.h, which also says what `scratch` is).
  virtual std::unique_ptr<Kernel> make_bf16_kernel(const KernelRequest& request, void* scratch) = 0;
  // Which operators have some; "" for none.
  virtual std::string native_operators() const = 0;
};

}  // namespace ff
