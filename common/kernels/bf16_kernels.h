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

// What a native kernel has no memory of its own for lies in that of conversions (converted_kernel.h), while it runs.
class Scratch {
 public:
  Scratch(void* begin, int64_t bytes) : next_(static_cast<char*>(begin)), left_(begin ? bytes : 0) {}
  // 64-byte aligned; null if there is no room.
  void* take(int64_t bytes) {
    constexpr int64_t alignment = 64;
    const int64_t rounded = (bytes + alignment - 1) / alignment * alignment;
    if (rounded > left_) return nullptr;
    void* const result = next_;
    next_ += rounded;
    left_ -= rounded;
    return result;
  }

 private:
  char* next_;
  int64_t left_;
};

}  // namespace ff
