// Kernels that work on bf16 as it lies: of embeddings, and of operators with products (bf16_products.h).
// Others compute in f32 on converted values (common/kernels/converted_kernel.h).
#include <algorithm>
#include <optional>

#include "common/kernels/cpu/bf16_kernel.h"
#include "common/kernels/cpu/embedding_rows.h"
#include "common/kernels/cpu/kernels.h"
#include "common/operators/attention.h"
#include "common/operators/einsum.h"
#include "common/operators/embedding.h"
#include "common/operators/linear.h"
#include "common/operators/matmul.h"

namespace ff::cpu {
namespace {

FF_VECTORIZED void mask_gradient(const Bf16* gate, const Bf16* source, Bf16* destination, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) destination[i] = f32_of(gate[i]) > 0 ? source[i] : Bf16{0};
}

FF_VECTORIZED void add_rows(const Bf16* matrix, int64_t rows, int64_t columns, float* sums, bool add) {
  if (!add) std::fill(sums, sums + columns, 0.0f);
  for (int64_t row = 0; row < rows; ++row, matrix += columns)
    for (int64_t column = 0; column < columns; ++column) sums[column] += f32_of(matrix[column]);
}

// input [rows, in], weight [out, in], bias [out] -> output [rows, out].
class LinearBf16 : public Bf16Kernel {
 public:
  LinearBf16(const Context& context, const KernelRequest& request, const Linear& linear, void* scratch)
      : Bf16Kernel(context, request, scratch), relu_(linear.relu), bias_(linear.adds_bias(part_)),
        in_(linear.in_channels(part_).size()) {
    const Block output = linear.output_block(0, part_);
    out_ = output[output.rank() - 1].size();
    rows_ = output.volume() / out_;
    const Bf16Matrix input{in_}, gradient{out_}, weight{in_}, weight_gradient{in_, false, 0, /*is_f32=*/true};
    const Bf16Matrix transposed_weight{in_, /*transposed=*/true}, transposed_gradient{out_, /*transposed=*/true};
    output_ = product({1, rows_, out_, in_, input, transposed_weight, gradient, false, bias_, relu_});
    for (const bool add : {false, true})
      weight_gradient_[add] =
          product({1, out_, in_, rows_, transposed_gradient, input, weight_gradient, add, false, false});
    if (request.input_gradients[0]) input_gradient_ = product({1, rows_, in_, out_, gradient, weight, input});
  }

  void forward(const KernelArguments& arguments) override {
    context_.use_threads();
    Scratch scratch = forward_scratch();
    const void *const input = this->input(arguments, 0, scratch), *const weight = parameter(arguments, 0, scratch),
                      *const bias = bias_ ? parameter(arguments, 1, scratch) : nullptr;
    run(output_, input, weight, arguments.outputs[0], scratch, bias);
  }

  void backward(const KernelArguments& arguments) override {
    context_.use_threads();
    Scratch scratch = backward_scratch();
    const void* const input = this->input(arguments, 0, scratch);
    const auto* gradient = reinterpret_cast<const Bf16*>(arguments.output_gradients[0]);
    if (relu_) {
      auto* const masked = reinterpret_cast<Bf16*>(workspace_.data());
      mask_gradient(reinterpret_cast<const Bf16*>(arguments.outputs[0]), gradient, masked, rows_ * out_);
      gradient = masked;
    }
    run(weight_gradient_[arguments.accumulates(0)], gradient, input, arguments.parameter_gradients[0], scratch);
    if (bias_) add_rows(gradient, rows_, out_, arguments.parameter_gradients[1], arguments.accumulates(1));
    if (arguments.input_gradients[0]) {
      const void* const weight = parameter(arguments, 0, scratch);
      run(input_gradient_, gradient, weight, arguments.input_gradients[0], scratch);
    }
  }

 private:
  bool relu_, bias_;
  int64_t in_, out_, rows_;
  int output_, weight_gradient_[2], input_gradient_ = -1;
};

// One product a sample: a [m, k], b [k, n] or [n, k] -> [m, n].
class MatmulBf16 : public Bf16Kernel {
 public:
  MatmulBf16(const Context& context, const KernelRequest& request, const Matmul& matmul, void* scratch)
      : Bf16Kernel(context, request, scratch) {
    const int64_t batch = part_[0].size(), m = part_[1].size(), n = part_[2].size(), k = part_[3].size();
    const bool transposed = matmul.transposed;
    const auto scale = static_cast<float>(matmul.scale);
    const Bf16Matrix a{k, false, m * k}, c{n, false, m * n}, b{transposed ? k : n, false, n * k};
    const auto turned = [](Bf16Matrix matrix) {
      matrix.transposed = true;
      return matrix;
    };
    output_ = product({batch, m, n, k, a, transposed ? turned(b) : b, c, false, false, false, scale});
    if (request.input_gradients[0])
      first_ = product({batch, m, k, n, c, transposed ? b : turned(b), a, false, false, false, scale});
    if (request.input_gradients[1])
      second_ = transposed ? product({batch, n, k, m, turned(c), a, b, false, false, false, scale})
                           : product({batch, k, n, m, turned(a), c, b, false, false, false, scale});
    gradient_first_ = transposed;
  }

  void forward(const KernelArguments& arguments) override {
    context_.use_threads();
    Scratch scratch = forward_scratch();
    const void *const a = input(arguments, 0, scratch), *const b = input(arguments, 1, scratch);
    run(output_, a, b, arguments.outputs[0], scratch);
  }

  void backward(const KernelArguments& arguments) override {
    context_.use_threads();
    Scratch scratch = backward_scratch();
    const void *const a = input(arguments, 0, scratch), *const b = input(arguments, 1, scratch),
                      *const gradient = arguments.output_gradients[0];
    if (arguments.input_gradients[0]) run(first_, gradient, b, arguments.input_gradients[0], scratch);
    if (!arguments.input_gradients[1]) return;
    if (gradient_first_) run(second_, gradient, a, arguments.input_gradients[1], scratch);
    else run(second_, a, gradient, arguments.input_gradients[1], scratch);
  }

 private:
  int output_, first_ = -1, second_ = -1;
  bool gradient_first_;
};

// Of tensors that lie as the products want them.
class EinsumBf16 : public Bf16Kernel {
 public:
  EinsumBf16(const Context& context, const KernelRequest& request, const Einsum& einsum, void* scratch)
      : Bf16Kernel(context, request, scratch), has_parameter_(einsum.has_parameter()),
        output_(make(einsum.products(Einsum::output, part_), false, false)) {
    if (request.input_gradients[0]) first_ = make(einsum.products(0, part_), false, false);
    if (has_parameter_ || request.input_gradients[1]) {
      second_ = make(einsum.products(1, part_), has_parameter_, false);
      if (has_parameter_) second_adding_ = make(einsum.products(1, part_), true, true);
    }
  }
  bool fits() const { return fits_; }

  void forward(const KernelArguments& arguments) override {
    context_.use_threads();
    Scratch scratch = forward_scratch();
    const void *const a = input(arguments, 0, scratch), *const b = second(arguments, scratch);
    run_factors(output_, a, b, arguments.outputs[0], scratch);
  }

  void backward(const KernelArguments& arguments) override {
    context_.use_threads();
    Scratch scratch = backward_scratch();
    const void* const gradient = arguments.output_gradients[0];
    if (arguments.input_gradients[0])
      run_factors(first_, gradient, second(arguments, scratch), arguments.input_gradients[0], scratch);
    if (has_parameter_)
      run_factors(arguments.accumulates(0) ? second_adding_ : second_, input(arguments, 0, scratch), gradient,
                  arguments.parameter_gradients[0], scratch);
    else if (arguments.input_gradients[1])
      run_factors(second_, input(arguments, 0, scratch), gradient, arguments.input_gradients[1], scratch);
  }

 private:
  struct Factors {
    int product = -1;
    bool swapped = false;
  };
  Factors make(const MatrixProducts& by, bool is_f32, bool add) {
    fits_ = fits_ && !by.left.permuted() && !by.right.permuted() && !by.result.permuted();
    if (!fits_) return {};
    const auto matrix = [](const MatrixOperand& operand, bool f32) {
      return Bf16Matrix{operand.row_stride, operand.transposed, operand.batch_step, f32};
    };
    return {product({by.batch, by.m, by.n, by.k, matrix(by.left, false), matrix(by.right, false),
                     matrix(by.result, is_f32), add}),
            by.swapped};
  }
  void run_factors(const Factors& by, const void* first, const void* second, void* result, const Scratch& scratch) {
    run(by.product, by.swapped ? second : first, by.swapped ? first : second, result, scratch);
  }
  const void* second(const KernelArguments& arguments, Scratch& scratch) const {
    return has_parameter_ ? parameter(arguments, 0, scratch) : input(arguments, 1, scratch);
  }

  bool has_parameter_, fits_ = true;
  Factors output_, first_, second_, second_adding_;
};

FF_VECTORIZED void add_row(const Bf16* row, float* sum, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) sum[i] += f32_of(row[i]);
}

// Rows of a table: by conversion all of it would be read and written for the few rows of the tokens.
class EmbeddingBf16 : public Bf16Kernel {
 public:
  EmbeddingBf16(const Context& context, const KernelRequest& request, const Embedding& embedding, void* scratch)
      : Bf16Kernel(context, request, scratch), rows_(embedding, request),
        channels_(embedding.parameter_block(0, part_)[1].size()), tokens_(embedding.input_block(0, part_).volume()) {}

  void forward(const KernelArguments& arguments) override {
    const bool is_f32 = !arguments.masters.empty() && arguments.masters[0];
    const auto* const tokens = static_cast<const int32_t*>(arguments.inputs[0]);
    auto* output = reinterpret_cast<Bf16*>(arguments.outputs[0]);
    const float* const table = arguments.parameters[0];
    for (int64_t t = 0; t < tokens_; ++t, output += channels_) {
      const int64_t row = rows_.own(tokens[t]);
      if (row < 0) std::fill(output, output + channels_, Bf16{0});
      else if (is_f32) narrow(table + row * channels_, output, channels_);
      else std::copy_n(reinterpret_cast<const Bf16*>(table) + row * channels_, channels_, output);
    }
  }

  void backward(const KernelArguments& arguments) override {
    float* const table = arguments.parameter_gradients[0];
    if (!arguments.accumulates(0)) std::fill(table, table + rows_.count() * channels_, 0.0f);
    const auto* const tokens = static_cast<const int32_t*>(arguments.inputs[0]);
    const auto* gradient = reinterpret_cast<const Bf16*>(arguments.output_gradients[0]);
    for (int64_t t = 0; t < tokens_; ++t, gradient += channels_)
      if (const int64_t row = rows_.own(tokens[t]); row >= 0) add_row(gradient, table + row * channels_, channels_);
  }

 private:
  EmbeddingRows rows_;
  int64_t channels_, tokens_;
};

template <class Made, class Definition>
std::unique_ptr<Kernel> make(const Context& context, const KernelRequest& request, void* scratch) {
  const auto* const definition = dynamic_cast<const Definition*>(&request.definition);
  if (!definition) return nullptr;
  auto kernel = std::make_unique<Made>(context, request, *definition, scratch);
  if constexpr (std::is_same_v<Made, EinsumBf16>)
    if (!kernel->fits()) return nullptr;
  return kernel->is_fast() ? std::move(kernel) : nullptr;
}

}  // namespace

std::unique_ptr<Kernel> make_bf16_kernel(const Context& context, const KernelRequest& request, void* scratch) {
  // A constant parameter is f32.
  const Vector<ParameterSpec>& parameters = request.definition.parameters();
  if (!parameters.empty() && !parameters[0].trained) return nullptr;
  if (auto kernel = make<EmbeddingBf16, Embedding>(context, request, scratch)) return kernel;
  if (!has_bf16_products()) return nullptr;
  if (auto kernel = make<LinearBf16, Linear>(context, request, scratch)) return kernel;
  if (auto kernel = make<MatmulBf16, Matmul>(context, request, scratch)) return kernel;
  if (const auto* const attention = dynamic_cast<const MultiHeadAttention*>(&request.definition)) {
    auto kernel = make_multi_head_attention_bf16(context, request, *attention, scratch);
    return kernel->is_fast() ? std::move(kernel) : nullptr;
  }
  return make<EinsumBf16, Einsum>(context, request, scratch);
}

}  // namespace ff::cpu
