// Multi-head attention in bf16: its projections are products of bf16, what lies between them is in f32.
#include <cstring>

#include "common/kernels/cpu/attention_tiles.h"
#include "common/kernels/cpu/bf16_kernel.h"
#include "common/kernels/cpu/kernels.h"

namespace ff::cpu {
namespace {

class MultiHeadAttentionBf16 : public Bf16Kernel {
 public:
  MultiHeadAttentionBf16(const Context& context, const KernelRequest& request, const MultiHeadAttention& attention,
                         void* scratch)
      : Bf16Kernel(context, request, scratch, /*has_workspace=*/false), tiles_(attention, request.part),
        layout_(tiles_.layout()), bias_(attention.bias),
        input_elements_(attention.input_block(0, request.part).volume()),
        output_elements_(attention.output_block(0, request.part).volume()) {
    const int64_t rows = layout_.rows, channels = attention.channels;
    for (const int p : layout_.matrices.indices()) {
      const int64_t width = layout_.matrices[p].width;
      const auto f32 = [](int64_t columns) { return Bf16Matrix{columns, false, 0, /*is_f32=*/true}; };
      const Bf16Matrix input{channels}, gradient{width}, weight{channels};
      const Bf16Matrix transposed_weight{channels, /*transposed=*/true},
          transposed_gradient{width, /*transposed=*/true};
      Projection& projection = projections_.emplace_back();
      projection.forward = product({1, rows, width, channels, input, transposed_weight, f32(width), false, bias_});
      for (const bool add : {false, true})
        projection.weight_gradient[add] =
            product({1, width, channels, rows, transposed_gradient, input, f32(channels), add});
      if (request.input_gradients[0])
        projection.input_gradient = product({1, rows, channels, width, gradient, weight, f32(channels), p > 0});
    }
  }

  void forward(const KernelArguments& arguments) override {
    context_.use_threads();
    Scratch scratch = forward_scratch();
    const void* const input = this->input(arguments, 0, scratch);
    const int count = projections_.count();
    for (const int p : projections_.indices()) {
      Scratch own = scratch;
      const void *const weight = parameter(arguments, p, own), *const bias = bias_
                                                                                 ? parameter(arguments, p + count, own)
                                                                                 : nullptr;
      run(projections_[p].forward, input, weight, tiles_.projected() + layout_.matrices[p].begin, own, bias);
    }
    float* const output = floats(output_elements_, scratch);
    tiles_.forward(output);
    narrow(output, reinterpret_cast<Bf16*>(arguments.outputs[0]), output_elements_);
  }

  void backward(const KernelArguments& arguments) override {
    context_.use_threads();
    Scratch scratch = backward_scratch();
    {
      Scratch own = scratch;
      const float *const output = widened(arguments.outputs[0], own), *const gradient =
                                                                          widened(arguments.output_gradients[0], own);
      tiles_.backward(output, gradient);
    }
    const void* const input = this->input(arguments, 0, scratch);
    float* const input_gradient = arguments.input_gradients[0] ? floats(input_elements_, scratch) : nullptr;
    const size_t count = projections_.size();
    for (size_t p = 0; p < count; ++p) {
      const Projection& projection = projections_[p];
      const int64_t width = layout_.matrices[p].width;
      float* const values = tiles_.projected_gradients() + layout_.matrices[p].begin;
      if (bias_)
        sum_rows(values, layout_.rows, width, arguments.parameter_gradients[p + count],
                 arguments.accumulates(p + count));
      const void* const gradient = narrowed_in_place(values, width, scratch);
      run(projection.weight_gradient[arguments.accumulates(p)], gradient, input, arguments.parameter_gradients[p],
          scratch);
      if (!input_gradient) continue;
      Scratch own = scratch;
      const void* const weight = parameter(arguments, p, own);
      run(projection.input_gradient, gradient, weight, input_gradient, own);
    }
    if (input_gradient) narrow(input_gradient, reinterpret_cast<Bf16*>(arguments.input_gradients[0]), input_elements_);
  }

  int64_t workspace_bytes() const override { return tiles_.workspace_bytes(); }

 private:
  struct Projection {
    int forward = -1, weight_gradient[2] = {-1, -1}, input_gradient = -1;
  };

  static float* floats(int64_t elements, Scratch& scratch) {
    return static_cast<float*>(scratch.take(elements * static_cast<int64_t>(sizeof(float))));
  }
  const float* widened(const float* values, Scratch& scratch) const {
    float* const result = floats(output_elements_, scratch);
    widen(reinterpret_cast<const Bf16*>(values), result, output_elements_);
    return result;
  }
  // Row by row by way of the scratch memory: what is rounded lies in front of what has yet to be.
  const void* narrowed_in_place(float* values, int64_t width, Scratch scratch) const {
    const int64_t bytes = width * static_cast<int64_t>(sizeof(Bf16));
    auto* const row = static_cast<Bf16*>(scratch.take(bytes));
    char* result = reinterpret_cast<char*>(values);
    for (int64_t r = 0; r < layout_.rows; ++r, result += bytes) {
      narrow(values + r * width, row, width);
      std::memcpy(result, row, static_cast<size_t>(bytes));
    }
    return values;
  }

  AttentionTiles tiles_;
  const MultiHeadAttention::Projected& layout_;
  const bool bias_;
  const int64_t input_elements_, output_elements_;
  Vector<Projection> projections_;  // one a weight
};

}  // namespace

std::unique_ptr<Bf16Kernel> make_multi_head_attention_bf16(const Context& context, const KernelRequest& request,
                                                           const MultiHeadAttention& attention, void* scratch) {
  return std::make_unique<MultiHeadAttentionBf16>(context, request, attention, scratch);
}

}  // namespace ff::cpu
