#include "common/operators/embedding.h"

#include <cstring>

#include "common/errors.h"
#include "common/kernels/cpu/kernels.h"

namespace ff::cpu {
namespace {

class EmbeddingKernel : public Kernel {
 public:
  EmbeddingKernel(const Embedding& embedding, const KernelRequest& request)
      : name_(request.operator_name), vocabulary_(embedding.vocabulary),
        channels_(request.part[request.part.rank() - 1].size()), tokens_(request.part.volume() / channels_) {}

  void forward(const KernelArguments& arguments) override {
    const int32_t* tokens = static_cast<const int32_t*>(arguments.inputs[0]);
    for (int64_t t = 0; t < tokens_; ++t)
      std::memcpy(arguments.outputs[0] + t * channels_, arguments.parameters[0] + checked(tokens[t]) * channels_,
                  static_cast<size_t>(channels_) * sizeof(float));
  }

  void backward(const KernelArguments& arguments) override {
    float* table = arguments.parameter_gradients[0];
    if (!arguments.accumulates(0)) std::memset(table, 0, static_cast<size_t>(vocabulary_ * channels_) * sizeof(float));
    const int32_t* tokens = static_cast<const int32_t*>(arguments.inputs[0]);
    for (int64_t t = 0; t < tokens_; ++t)
      add_to(arguments.output_gradients[0] + t * channels_, table + checked(tokens[t]) * channels_, channels_);
  }

 private:
  int64_t checked(int32_t token) const {
    if (token < 0 || token >= vocabulary_)
      throw InputError(name_ + ": found the token " + std::to_string(token) + ", expected one from 0 to " +
                       std::to_string(vocabulary_ - 1));
    return token;
  }

  std::string name_;
  int64_t vocabulary_, channels_, tokens_;
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
