// Blocks of tensors in a backend's memory, and the whole tensors that the reference works on.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "common/kernels/backend.h"
#include "tests/unit/common/kernels/reference/reference.h"

namespace ff::kernel_cases {

using reference::Values;

// Calls visit(index in the whole row-major tensor, index in the row-major block) for every element of the block.
template <class Visit>
void for_each_element(const Shape& shape, const Block& block, const Visit& visit) {
  const int64_t count = block.volume();
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, index = 0, stride = 1;
    for (int axis = block.rank() - 1; axis >= 0; --axis) {
      index += (block[axis].begin + rest % block[axis].size()) * stride;
      rest /= block[axis].size();
      stride *= shape[axis];
    }
    visit(static_cast<size_t>(index), static_cast<size_t>(i));
  }
}

// A block in the backend's memory, filled from and read back as row-major values of the whole tensor.
class Buffer {
 public:
  Buffer(Backend& backend, const Shape& shape, const Block& block, bool stored)
      : backend_(backend), shape_(shape), block_(block), stored_(stored) {
    memory_ = backend.allocate(std::max<int64_t>(block.volume(), 1) * element_bytes);
    const Vector<float> nonsense(std::max<int64_t>(block.volume(), 1), 1e30f);
    backend.store_from_host(nonsense.data(), memory_, {static_cast<int64_t>(nonsense.size())});
  }
  ~Buffer() { backend_.release(memory_); }
  Buffer(Buffer&& other) noexcept
      : backend_(other.backend_), shape_(other.shape_), block_(other.block_), stored_(other.stored_),
        memory_(other.memory_) {
    other.memory_ = nullptr;
  }

  void fill(const Values& whole, DataType type) {
    Vector<uint32_t> host(block_.volume());
    for_each_element(shape_, block_, [&](size_t w, size_t b) {
      if (type == DataType::i32) {
        const int32_t label = static_cast<int32_t>(whole[w]);
        std::memcpy(&host[b], &label, 4);
      } else {
        const float value = static_cast<float>(whole[w]);
        std::memcpy(&host[b], &value, 4);
      }
    });
    if (block_.empty()) return;
    backend_.store_from_host(host.data(), memory_, stored_ ? block_.shape() : Shape{block_.volume()});
  }

  // Largest difference from the whole tensor's block, relative to the block's largest value (or `floor`).
  double difference(const Values& whole, double floor = 1e-3, DataType type = DataType::f32) {
    if (block_.empty()) return 0;
    Vector<float> host(block_.volume());
    backend_.load_to_host(memory_, host.data(), stored_ ? block_.shape() : Shape{block_.volume()});
    double worst = 0, scale = floor;
    for_each_element(shape_, block_, [&](size_t w, size_t b) {
      const double found = type == DataType::i32 ? std::bit_cast<int32_t>(host[b]) : static_cast<double>(host[b]);
      worst = std::max(worst, std::abs(whole[w] - found));
      scale = std::max(scale, std::abs(whole[w]));
    });
    return worst / scale;
  }
  float* data() { return static_cast<float*>(memory_); }

 private:
  Backend& backend_;
  Shape shape_;
  Block block_;
  bool stored_;  // an activation, in storage order; else a parameter, row-major
  void* memory_;
};

}  // namespace ff::kernel_cases
