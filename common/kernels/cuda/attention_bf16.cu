// Multi-head attention of bf16 as it lies: projections by cuBLAS, what is between them by attention_bf16_products.cu.
// Projected queries, keys and values and their gradients are bf16 too.
#include "common/kernels/cuda/attention_tensors.cuh"
#include "common/kernels/cuda/bf16_kernel.h"
#include "common/kernels/cuda/rotary_positions.cuh"

namespace ff::cuda {
namespace {

class MultiHeadAttentionBf16 : public Bf16Kernel {
 public:
  MultiHeadAttentionBf16(const Context& context, const KernelRequest& request, const MultiHeadAttention& attention,
                         void* scratch)
      : Bf16Kernel(context, request, scratch), attention_(attention), layout_(attention.projected(part_)),
        channels_(attention.channels), projected_(context, layout_.size()),
        projected_gradients_(context, projected_.size()),
        logarithms_(context, layout_.query_rows() * layout_.query_width / attention.head_channels),
        cosines_(context, layout_.positions * attention.rotary_channels / 2), sines_(context, cosines_.size()) {
    for (const Matrix& matrix : layout_.matrices)
      context.reserve_scratch(sum_rows_scratch_bytes(context, layout_.samples * matrix.positions, matrix.width));
    context.reserve_scratch(logarithms_.bytes());
    if (attention.rotary())
      fill_rotation(context, layout_.positions, attention.rotary_channels / 2, attention.rotary_base, cosines_.data(),
                    sines_.data());
  }

  void forward(const KernelArguments& arguments) override {
    Scratch scratch = forward_scratch();
    const Bf16* const input = this->input(arguments, 0, scratch);
    const Vector<const Bf16*> parameters = parameters_of(arguments, definition_.parameters().size(), scratch);
    for (const Matrix& matrix : layout_.matrices) project(matrix, input, parameters);
    if (attention_.rotary()) turn(projected_, 1);
    attention_products(context_, tensors(arguments, /*backward=*/false), layout_.samples, /*backward=*/false);
  }

  void backward(const KernelArguments& arguments) override {
    Scratch scratch = backward_scratch();
    const Bf16* const input = this->input(arguments, 0, scratch);
    attention_products(context_, tensors(arguments, /*backward=*/true), layout_.samples, /*backward=*/true);
    if (attention_.rotary()) turn(projected_gradients_, -1);
    for (const Matrix& matrix : layout_.matrices) {
      const Bf16* const gradients = as_bf16(projected_gradients_.data()) + matrix.begin;
      const int bias = matrix.parameter + layout_.weights;
      weight_gradients(matrix, input, gradients, arguments);
      if (attention_.bias)
        sum_rows(context_, gradients, layout_.samples * matrix.positions, matrix.width,
                 arguments.parameter_gradients[bias] + matrix.weight_row,
                 arguments.accumulates(static_cast<size_t>(bias)), context_.scratch());
    }
    if (arguments.input_gradients[0])
      input_gradients(parameters_of(arguments, static_cast<size_t>(layout_.weights), scratch),
                      as_bf16(arguments.input_gradients[0]));
  }

  int64_t workspace_bytes() const override {
    return projected_.bytes() + projected_gradients_.bytes() + logarithms_.bytes() + cosines_.bytes() + sines_.bytes();
  }

 private:
  using Matrix = MultiHeadAttention::Projected::Matrix;

  Vector<const Bf16*> parameters_of(const KernelArguments& arguments, size_t count, Scratch& scratch) const {
    Vector<const Bf16*> result;
    for (size_t p = 0; p < count; ++p) result.push_back(parameter(arguments, static_cast<int>(p), scratch));
    return result;
  }

  AttentionTensorsOf<Bf16> tensors(const KernelArguments& arguments, bool backward) const {
    return attention_tensors<Bf16>(attention_, layout_, as_bf16(projected_.data()),
                                   as_bf16(projected_gradients_.data()), as_bf16(arguments.outputs[0]),
                                   backward ? as_bf16(arguments.output_gradients[0]) : nullptr, logarithms_.data(),
                                   reinterpret_cast<float*>(context_.scratch()));
  }

  // Products are added to the bias, so that the sum is rounded once.
  void project(const Matrix& matrix, const Bf16* input, const Vector<const Bf16*>& parameters) const {
    const Bf16* const weight = parameters[matrix.parameter] + matrix.weight_row * channels_;
    Bf16* const output = as_bf16(projected_.data()) + matrix.begin;
    if (attention_.bias)
      fill_rows(context_, parameters[matrix.parameter + layout_.weights] + matrix.weight_row,
                layout_.samples * matrix.positions, matrix.width, matrix.width, output);
    layout_.for_each_product(matrix, [&](int64_t row, int64_t element) {
      multiply_matrices(context_, 'N', 'T', layout_.rows(matrix), matrix.width, channels_, input + row * channels_,
                        channels_, weight, channels_, attention_.bias ? 1 : 0, output + element, matrix.width);
    });
  }

  void weight_gradients(const Matrix& matrix, const Bf16* input, const Bf16* gradients,
                        const KernelArguments& arguments) const {
    bool add = arguments.accumulates(static_cast<size_t>(matrix.parameter));
    layout_.for_each_product(matrix, [&](int64_t row, int64_t element) {
      multiply_matrices(context_, 'T', 'N', matrix.width, channels_, layout_.rows(matrix), gradients + element,
                        matrix.width, input + row * channels_, channels_, add ? 1 : 0,
                        arguments.parameter_gradients[matrix.parameter] + matrix.weight_row * channels_, channels_);
      add = true;
    });
  }

  void input_gradients(const Vector<const Bf16*>& weights, Bf16* result) const {
    for (const int m : layout_.matrices.indices()) {
      const Matrix& matrix = layout_.matrices[m];
      const Bf16* const gradients = as_bf16(projected_gradients_.data()) + matrix.begin;
      layout_.for_each_product(matrix, [&](int64_t row, int64_t element) {
        multiply_matrices(context_, 'N', 'N', layout_.rows(matrix), channels_, matrix.width, gradients + element,
                          matrix.width, weights[matrix.parameter] + matrix.weight_row * channels_, channels_,
                          m == 0 ? 0 : 1, result + row * channels_, channels_);
      });
    }
  }

  void turn(const Memory<float>& projected, float direction) const {
    turn_queries_and_keys(context_, attention_, layout_, as_bf16(projected.data()), cosines_.data(), sines_.data(),
                          direction);
  }

  const MultiHeadAttention& attention_;
  const MultiHeadAttention::Projected layout_;
  const int64_t channels_;
  Memory<float> projected_, projected_gradients_;  // bf16, as layout_ says; memory as large as in f32
  Memory<float> logarithms_;                       // [samples, heads, queries], of each query's sum, base 2
  Memory<float> cosines_, sines_;                  // [positions, rotary_channels / 2]; empty without rotary positions
};

}  // namespace

std::unique_ptr<Kernel> make_multi_head_attention_bf16_kernel(const Context& context, const KernelRequest& request,
                                                              void* scratch) {
  const auto* const attention = dynamic_cast<const MultiHeadAttention*>(&request.definition);
  if (!attention || attention->head_channels > most_bf16_head_channels) return nullptr;
  return std::make_unique<MultiHeadAttentionBf16>(context, request, *attention, scratch);
}

}  // namespace ff::cuda
