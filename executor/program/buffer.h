// Memory of a backend, released with its owner.
#pragma once

#include <memory>

#include "common/kernels/backend.h"

namespace ff {

struct ReleaseBuffer {
  Backend* backend;
  void operator()(float* memory) const { backend->release(memory); }
};
using Buffer = std::unique_ptr<float[], ReleaseBuffer>;

// Null for no elements.
inline Buffer allocate_buffer(Backend& backend, int64_t elements, bool zeroed, DataType type = DataType::f32) {
  const int64_t bytes = bytes_of(type, elements);
  Buffer buffer(bytes > 0 ? static_cast<float*>(backend.allocate(bytes)) : nullptr, {&backend});
  if (zeroed && buffer) backend.fill_zero(buffer.get(), bytes);
  return buffer;
}

}  // namespace ff
