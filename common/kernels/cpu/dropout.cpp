#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/kernels/cpu/kernels.h"
#include "common/operators/dropout.h"
#include "common/philox.h"

namespace ff::cpu {
namespace {

// What an element is multiplied by, from the 32 bits drawn for it: 0 where uniform_float(bits) is less than the rate.
// That number is a multiple of 2^-24, so that the comparison is one of integers with `dropped`, the multiples below the
// rate.
struct Factors {
  explicit Factors(float rate)
      : dropped(static_cast<int32_t>(std::ceil(std::ldexp(rate, 24)))), kept(1.0f / (1.0f - rate)) {}
  float of(uint32_t bits) const { return static_cast<int32_t>(bits >> 8) >= dropped ? kept : 0.0f; }

  int32_t dropped;
  float kept;
};

// The four factors of each of `counters` Philox counters from `first`. Every lane of a vector computes a counter of its
// own, the four words apart: they are interleaved at the end.
FF_VECTORIZED void draw_counters(uint64_t stream, uint64_t first, int64_t counters, uint64_t iteration, Factors factors,
                                 float* __restrict result) {
  for (int64_t i = 0; i < counters; ++i) {
    const auto bits = philox(stream, first + static_cast<uint64_t>(i), iteration);
    result[4 * i] = factors.of(bits[0]);
    result[4 * i + 1] = factors.of(bits[1]);
    result[4 * i + 2] = factors.of(bits[2]);
    result[4 * i + 3] = factors.of(bits[3]);
  }
}

class DropoutKernel : public Kernel {
 public:
  DropoutKernel(const Dropout& definition, const KernelRequest& request)
      : drawn_(static_cast<float>(definition.rate)), seed_(request.seed),
        stream_(random_stream(seed_, request.operator_name)), shape_(definition.outputs()[0].shape),
        part_(request.part), factors_(static_cast<size_t>(part_.volume())) {}

  void forward(const KernelArguments& arguments) override {
    const float* input = static_cast<const float*>(arguments.inputs[0]);
    if (!arguments.training) {
      std::memcpy(arguments.outputs[0], input, factors_.size() * sizeof(float));
      return;
    }
    draw(static_cast<uint64_t>(arguments.iteration));
    multiply(factors_.data(), input, arguments.outputs[0], static_cast<int64_t>(factors_.size()));
  }

  void backward(const KernelArguments& arguments) override {
    if (!arguments.input_gradients[0]) return;
    multiply(factors_.data(), arguments.output_gradients[0], arguments.input_gradients[0],
             static_cast<int64_t>(factors_.size()));
  }

  int64_t workspace_bytes() const override { return static_cast<int64_t>(factors_.size() * sizeof(float)); }
  void set_part(const Block& part, const std::string& operator_name) override {
    part_ = part;
    stream_ = random_stream(seed_, operator_name);
  }

 private:
  // Factors of the block, in storage order, from the index of each element in the whole row-major tensor: run by run of
  // consecutive indices.
  void draw(uint64_t iteration) {
    const int rank = part_.rank();
    // Stride of each logical axis in the block's storage, and in the whole tensor.
    const Vector<int64_t> stored = stored_strides(part_.shape());
    Vector<int64_t> whole(static_cast<size_t>(rank));
    int64_t stride = 1;
    for (int axis = rank - 1; axis >= 0; --axis) whole[axis] = stride, stride *= shape_[axis];

    // Axes from `last` on form a run: those after it are whole, and stored as they are counted.
    int last = rank - 1;
    int64_t run = part_[last].size(), first = part_[last].begin;
    while (rank != 4 && last > 0 && part_[last].size() == shape_[last]) {
      --last;
      run *= part_[last].size();
      first = part_[last].begin * whole[last];
    }
    const int64_t step = stored[rank - 1], rows = part_.volume() / run;
    if (step != 1) row_.resize(run);
    for (int64_t row = 0; row < rows; ++row) {
      int64_t rest = row, at = 0, index = first;
      for (int axis = last - 1; axis >= 0; --axis) {
        const int64_t i = rest % part_[axis].size();
        rest /= part_[axis].size();
        at += i * stored[axis];
        index += (part_[axis].begin + i) * whole[axis];
      }
      float* factors = factors_.data() + at;
      draw_run(static_cast<uint64_t>(index), run, iteration, step == 1 ? factors : row_.data());
      if (step != 1)
        for (int64_t i = 0; i < run; ++i) factors[i * step] = row_[i];
    }
  }

  // Of elements [index, index + run), which may begin and end amid the four of a counter.
  void draw_run(uint64_t index, int64_t run, uint64_t iteration, float* factors) const {
    while (run > 0) {
      const uint64_t lane = index % 4;
      int64_t drawn = 0;
      if (lane == 0 && run >= 4) {
        drawn = run / 4 * 4;
        draw_counters(stream_, index / 4, run / 4, iteration, drawn_, factors);
      } else {
        const auto bits = philox(stream_, index / 4, iteration);
        drawn = std::min(run, 4 - static_cast<int64_t>(lane));
        for (int64_t i = 0; i < drawn; ++i) factors[i] = drawn_.of(bits[lane + static_cast<uint64_t>(i)]);
      }
      index += static_cast<uint64_t>(drawn), run -= drawn, factors += drawn;
    }
  }

  Factors drawn_;
  uint64_t seed_, stream_;
  Shape shape_;
  Block part_;
  Vector<float> factors_;  // 0 or 1 / (1 - rate)
  Vector<float> row_;      // of one run, where neighbours are not stored side by side
};

}  // namespace

std::unique_ptr<Kernel> make_dropout_kernel(const Context&, const KernelRequest& request) {
  return std::make_unique<DropoutKernel>(dynamic_cast<const Dropout&>(request.definition), request);
}

}  // namespace ff::cpu
