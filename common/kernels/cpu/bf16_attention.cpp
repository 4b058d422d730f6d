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
        layout_(tiles_.layout()), bias_(attention.bias), channels_(attention.channels),
        input_elements_(attention.input_block(0, request.part).volume()),
        output_elements_(attention.output_block(0, request.part).volume()) {
    for (const auto& matrix : layout_.matrices) {
      const int64_t rows = layout_.rows(matrix), width = matrix.width;
      const auto f32 = [](int64_t columns) { return Bf16Matrix{columns, false, 0, /*is_f32=*/true}; };
      const Bf16Matrix input{channels_}, gradient{width}, weight{channels_};
      const Bf16Matrix transposed_weight{channels_, /*transposed=*/true},
          transposed_gradient{width, /*transposed=*/true};
      const bool first = projections_.empty();
      Projection& projection = projections_.emplace_back();
      projection.forward = product({1, rows, width, channels_, input, transposed_weight, f32(width), false, bias_});
      for (const bool add : {false, true})
        projection.weight_gradient[add] =
            product({1, width, channels_, rows, transposed_gradient, input, f32(channels_), add});
      if (request.input_gradients[0])
        projection.input_gradient = product({1, rows, channels_, width, gradient, weight, f32(channels_), !first});
    }
  }

  void forward(const KernelArguments& arguments) override {
    context_.use_threads();
    Scratch scratch = forward_scratch();
    const Bf16* const input = as_bf16(this->input(arguments, 0, scratch));
    for (const int m : projections_.indices()) {
      const Matrix& matrix = layout_.matrices[m];
      Scratch own = scratch;
      const Bf16 *const weight = as_bf16(parameter(arguments, matrix.parameter, own)),
                        *const bias =
                            bias_ ? as_bf16(parameter(arguments, matrix.parameter + layout_.weights, own)) : nullptr;
      layout_.for_each_product(matrix, [&](int64_t row, int64_t element) {
        run(projections_[m].forward, input + row * channels_, weight + matrix.weight_row * channels_,
            tiles_.projected() + matrix.begin + element, own, bias ? bias + matrix.weight_row : nullptr);
      });
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
    const Bf16* const input = as_bf16(this->input(arguments, 0, scratch));
    float* const input_gradient = arguments.input_gradients[0] ? floats(input_elements_, scratch) : nullptr;
    for (const int m : projections_.indices()) {
      const Matrix& matrix = layout_.matrices[m];
      const Bf16* const gradient = gradients_of(matrix, arguments, scratch);
      bool add = arguments.accumulates(static_cast<size_t>(matrix.parameter));
      layout_.for_each_product(matrix, [&](int64_t row, int64_t element) {
        run(projections_[m].weight_gradient[add], gradient + element, input + row * channels_,
            arguments.parameter_gradients[matrix.parameter] + matrix.weight_row * channels_, scratch);
        add = true;
      });
      if (!input_gradient) continue;
      Scratch own = scratch;
      const Bf16* const weight = as_bf16(parameter(arguments, matrix.parameter, own)) + matrix.weight_row * channels_;
      layout_.for_each_product(matrix, [&](int64_t row, int64_t element) {
        run(projections_[m].input_gradient, gradient + element, weight, input_gradient + row * channels_, own);
      });
    }
    if (input_gradient) narrow(input_gradient, reinterpret_cast<Bf16*>(arguments.input_gradients[0]), input_elements_);
  }

  int64_t workspace_bytes() const override { return tiles_.workspace_bytes(); }

 private:
  using Matrix = MultiHeadAttention::Projected::Matrix;
  struct Projection {
    int forward = -1, weight_gradient[2] = {-1, -1}, input_gradient = -1;
  };

  static const Bf16* as_bf16(const void* values) { return static_cast<const Bf16*>(values); }
  // Of what is projected, once the gradient of the bias is their sum.
  const Bf16* gradients_of(const Matrix& matrix, const KernelArguments& arguments, const Scratch& scratch) {
    float* const values = tiles_.projected_gradients() + matrix.begin;
    const int64_t rows = layout_.samples * matrix.positions;
    const int bias = matrix.parameter + layout_.weights;
    if (bias_)
      sum_rows(values, rows, matrix.width, arguments.parameter_gradients[bias] + matrix.weight_row,
               arguments.accumulates(static_cast<size_t>(bias)));
    return narrowed_in_place(values, rows, matrix.width, scratch);
  }

  static float* floats(int64_t elements, Scratch& scratch) {
    return static_cast<float*>(scratch.take(elements * static_cast<int64_t>(sizeof(float))));
  }
  const float* widened(const float* values, Scratch& scratch) const {
    float* const result = floats(output_elements_, scratch);
    widen(reinterpret_cast<const Bf16*>(values), result, output_elements_);
    return result;
  }
  // Row by row by way of the scratch memory: what is rounded lies in front of what has yet to be.
  static const Bf16* narrowed_in_place(float* values, int64_t rows, int64_t width, Scratch scratch) {
    const int64_t bytes = width * static_cast<int64_t>(sizeof(Bf16));
    auto* const row = static_cast<Bf16*>(scratch.take(bytes));
    char* result = reinterpret_cast<char*>(values);
    for (int64_t r = 0; r < rows; ++r, result += bytes) {
      narrow(values + r * width, row, width);
      std::memcpy(result, row, static_cast<size_t>(bytes));
    }
    return as_bf16(values);
  }

  AttentionTiles tiles_;
  const MultiHeadAttention::Projected& layout_;
  const bool bias_;
  const int64_t channels_, input_elements_, output_elements_;
  Vector<Projection> projections_;  // [matrix]
};

}  // namespace

std::unique_ptr<Bf16Kernel> make_multi_head_attention_bf16(const Context& context, const KernelRequest& request,
                                                           const MultiHeadAttention& attention, void* scratch) {
  return std::make_unique<MultiHeadAttentionBf16>(context, request, attention, scratch);
}

}  // namespace ff::cpu
