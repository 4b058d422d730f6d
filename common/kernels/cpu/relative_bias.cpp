#include "common/operators/relative_bias.h"

#include <cstring>

#include "common/kernels/cpu/kernels.h"

namespace ff::cpu {
namespace {

FF_VECTORIZED void add_row(const float* scores, const float* row, float* result, int64_t heads) {
  for (int64_t h = 0; h < heads; ++h) result[h] = scores[h] + row[h];
}
FF_VECTORIZED void add_to_row(const float* gradient, float* row, int64_t heads) {
  for (int64_t h = 0; h < heads; ++h) row[h] += gradient[h];
}

// Scores lie as [sample, query, key, head].
class RelativeBiasKernel : public Kernel {
 public:
  RelativeBiasKernel(const RelativeBias& definition, const Block& part)
      : buckets_(definition.part_buckets(part)), samples_(part[0].size()), heads_(part[1].size()),
        queries_(part[2].size()), keys_(part[3].size()), rows_(definition.buckets) {}

  void forward(const KernelArguments& arguments) override {
    const float *scores = static_cast<const float*>(arguments.inputs[0]), *weight = arguments.parameters[0];
    for_each_score([&](int64_t at, int64_t bucket) {
      add_row(scores + at, weight + bucket * heads_, arguments.outputs[0] + at, heads_);
    });
  }

  void backward(const KernelArguments& arguments) override {
    const float* gradient = arguments.output_gradients[0];
    if (float* result = arguments.input_gradients[0])
      std::memcpy(result, gradient, static_cast<size_t>(samples_ * queries_ * keys_ * heads_) * sizeof(float));
    float* weight = arguments.parameter_gradients[0];
    if (!arguments.accumulates(0)) std::memset(weight, 0, static_cast<size_t>(rows_ * heads_) * sizeof(float));
    for_each_score([&](int64_t at, int64_t bucket) { add_to_row(gradient + at, weight + bucket * heads_, heads_); });
  }

  int64_t workspace_bytes() const override { return static_cast<int64_t>(buckets_.size() * sizeof(int32_t)); }

 private:
  template <typename Call>
  void for_each_score(const Call& call) const {
    int64_t at = 0;
    for (int64_t s = 0; s < samples_; ++s)
      for (int64_t q = 0; q < queries_; ++q)
        for (int64_t k = 0; k < keys_; ++k, at += heads_) call(at, buckets_[k - q + queries_ - 1]);
  }

  Vector<int32_t> buckets_;  // by distance
  int64_t samples_, heads_, queries_, keys_, rows_;
};

}  // namespace

std::unique_ptr<Kernel> make_relative_bias_kernel(const Context&, const KernelRequest& request) {
  return std::make_unique<RelativeBiasKernel>(dynamic_cast<const RelativeBias&>(request.definition), request.part);
}

}  // namespace ff::cpu
