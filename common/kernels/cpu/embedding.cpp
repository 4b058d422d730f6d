#include <cstring>

#include "common/kernels/cpu/embedding_rows.h"
#include "common/kernels/cpu/kernels.h"

namespace ff::cpu {
namespace {

class EmbeddingKernel : public Kernel {
 public:
  EmbeddingKernel(const Embedding& embedding, const KernelRequest& request)
      : rows_(embedding, request), channels_(embedding.parameter_block(0, request.part)[1].size()),
        tokens_(embedding.input_block(0, request.part).volume()) {}

  void forward(const KernelArguments& arguments) override {
    const int32_t* tokens = static_cast<const int32_t*>(arguments.inputs[0]);
    const size_t bytes = static_cast<size_t>(channels_) * sizeof(float);
    for (int64_t t = 0; t < tokens_; ++t) {
      float* output = arguments.outputs[0] + t * channels_;
      if (const int64_t row = rows_.own(tokens[t]); row >= 0)
        std::memcpy(output, arguments.parameters[0] + row * channels_, bytes);
      else std::memset(output, 0, bytes);
    }
  }

  void backward(const KernelArguments& arguments) override {
    float* table = arguments.parameter_gradients[0];
    if (!table) return;  // of a constant
    if (!arguments.accumulates(0))
      std::memset(table, 0, static_cast<size_t>(rows_.count() * channels_) * sizeof(float));
    const int32_t* tokens = static_cast<const int32_t*>(arguments.inputs[0]);
    for (int64_t t = 0; t < tokens_; ++t)
      if (const int64_t row = rows_.own(tokens[t]); row >= 0)
        add_to(arguments.output_gradients[0] + t * channels_, table + row * channels_, channels_);
  }

 private:
  EmbeddingRows rows_;
  int64_t channels_, tokens_;
};

// [samples, positions] + [positions], a position being all channels of it.
class PositionEmbeddingKernel : public Kernel {
 public:
  explicit PositionEmbeddingKernel(const Block& part)
      : samples_(part[0].size()), elements_(part[1].size() * part[2].size()) {}

  void forward(const KernelArguments& arguments) override {
    const float* input = static_cast<const float*>(arguments.inputs[0]);
    for (int64_t s = 0; s < samples_; ++s)
      add(input + s * elements_, arguments.parameters[0], arguments.outputs[0] + s * elements_, elements_);
  }

  void backward(const KernelArguments& arguments) override {
    sum_rows(arguments.output_gradients[0], samples_, elements_, arguments.parameter_gradients[0],
             arguments.accumulates(0));
    if (arguments.input_gradients[0])
      std::memcpy(arguments.input_gradients[0], arguments.output_gradients[0],
                  static_cast<size_t>(samples_ * elements_) * sizeof(float));
  }

 private:
  int64_t samples_, elements_;
};

}  // namespace

std::unique_ptr<Kernel> make_embedding_kernel(const Context&, const KernelRequest& request) {
  return std::make_unique<EmbeddingKernel>(dynamic_cast<const Embedding&>(request.definition), request);
}

std::unique_ptr<Kernel> make_position_embedding_kernel(const Context&, const KernelRequest& request) {
  return std::make_unique<PositionEmbeddingKernel>(request.part);
}

}  // namespace ff::cpu
