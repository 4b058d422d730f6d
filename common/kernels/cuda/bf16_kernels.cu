// Kernels that work on bf16 as it lies: products by cuBLAS, rows of tables, and those that are made from the kernels in
// f32 by other loads and stores (packs.cuh). The others compute in f32 on converted values
// (common/kernels/converted_kernel.h).
#include "common/kernels/cuda/bf16_kernel.h"
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/packs.cuh"
#include "common/operators/embedding.h"
#include "common/operators/linear.h"
#include "common/operators/matmul.h"

namespace ff::cuda {

void fill_rows(const Context& context, const Bf16* row, int64_t rows, int64_t columns, int64_t stride, Bf16* result) {
  if (stride == columns && columns_by_packs(columns, row, result)) {
    const int64_t packs = columns / pack_size;
    for_each_index(context, rows * packs, [=] __device__(int64_t i) {
      store(result + i * pack_size, load<pack_size>(row + i % packs * pack_size));
    });
  } else {
    for_each_index(context, rows * stride, [=] __device__(int64_t i) {
      const int64_t column = i % stride;
      result[i] = column < columns ? row[column] : Bf16{};
    });
  }
}

namespace {

constexpr int aligned_columns = 8;  // of 16 bytes

void relu(const Context& context, Bf16* values, int64_t elements) {
  const Bf16* const before = values;
  map_elements(context, elements, values, before, [=] __device__(float value) { return value > 0 ? value : 0.0f; });
}

// Rows of `columns` elements, `source_stride` apart, to rows `destination_stride` apart, with zeros behind them. Each
// thread stores 16 bytes.
void copy_rows(const Context& context, const Bf16* source, int64_t source_stride, int64_t rows, int64_t columns,
               Bf16* destination, int64_t destination_stride) {
  constexpr int n = aligned_columns;
  const int64_t elements = rows * destination_stride;
  for_each_index(context, (elements + n - 1) / n, [=] __device__(int64_t number) {
    const int64_t begin = number * n;
    int64_t row = begin / destination_stride, column = begin - row * destination_stride;
    Pack<Bf16, n> values{};
#pragma unroll
    for (int j = 0; j < n; ++j) {
      if (begin + j < elements && column < columns) values.of[j] = source[row * source_stride + column];
      if (++column == destination_stride) column = 0, ++row;
    }
    if (begin + n <= elements) {
      store(destination + begin, values);
    } else {
      for (int j = 0; begin + j < elements; ++j) destination[begin + j] = values.of[j];
    }
  });
}

// input [rows, in], weight [out, in], bias [out] -> output [rows, out].
class LinearBf16 : public Bf16Kernel {
 public:
  LinearBf16(const Context& context, const KernelRequest& request, const Linear& linear, void* scratch)
      : Bf16Kernel(context, request, scratch), relu_(linear.relu), bias_(linear.adds_bias(part_)),
        in_(linear.in_channels(part_).size()), out_(linear.parameter_block(0, part_)[0].size()),
        rows_(linear.output_block(0, part_).volume() / out_), padded_(padded_channels()),
        workspace_(context, linear.workspace_bytes(part_)) {
    if (bias_) context.reserve_scratch(sum_rows_scratch_bytes(context, rows_, out_));
  }

  // The product is added to the bias, so that the sum is rounded once.
  void forward(const KernelArguments& arguments) override {
    Scratch scratch = forward_scratch();
    const Bf16* const input = this->input(arguments, 0, scratch);
    const Bf16* weight = parameter(arguments, 0, scratch);
    const Bf16* const bias = bias_ ? parameter(arguments, 1, scratch) : nullptr;
    Bf16 *const output = as_bf16(arguments.outputs[0]), *rows = output;
    if (is_padded()) {
      weight = padded_weight(weight, scratch);
      rows = take(rows_ * padded_, scratch);
    }
    if (bias) fill_rows(context_, bias, rows_, out_, padded_, rows);
    multiply_matrices(context_, 'N', 'T', rows_, padded_, in_, input, in_, weight, in_, bias ? 1 : 0, rows, padded_);
    if (is_padded()) copy_rows(context_, rows, padded_, rows_, out_, output, out_);
    if (relu_) relu(context_, output, rows_ * out_);
  }

  void backward(const KernelArguments& arguments) override {
    Scratch scratch = backward_scratch();
    const Bf16* const input = this->input(arguments, 0, scratch);
    const Bf16* gradient = as_bf16(arguments.output_gradients[0]);
    if (relu_) {
      auto* const masked = reinterpret_cast<Bf16*>(workspace_.data());
      mask_by_positive(context_, static_cast<const Bf16*>(as_bf16(arguments.outputs[0])), gradient, masked,
                       rows_ * out_);
      gradient = masked;
    }
    if (bias_)
      sum_rows(context_, gradient, rows_, out_, arguments.parameter_gradients[1], arguments.accumulates(1),
               context_.scratch());
    if (is_padded()) {
      Bf16* const rows = take(rows_ * padded_, scratch);
      copy_rows(context_, gradient, out_, rows_, out_, rows, padded_);
      gradient = rows;
    }
    weight_gradient(arguments, input, gradient);
    if (!arguments.input_gradients[0]) return;
    const Bf16* weight = parameter(arguments, 0, scratch);
    if (is_padded()) weight = padded_weight(weight, scratch);
    multiply_matrices(context_, 'N', 'N', rows_, in_, padded_, gradient, padded_, weight, in_, 0,
                      as_bf16(arguments.input_gradients[0]), in_);
  }

  int64_t workspace_bytes() const override { return workspace_.bytes(); }

 private:
  // cuBLAS's fast products of bf16 need sizes and strides of multiples of 16 bytes (cuBLAS library, Tensor Core Usage):
  // on an H200 a product for rows of 50,257 elements took 6.6 ms, whose operations take 1.1 ms. So rows of the output
  // have zeros behind them within the kernel. Small products do not earn the copies.
  int64_t padded_channels() const {
    constexpr int64_t least = 128;
    const bool padded = out_ % aligned_columns != 0 && in_ >= least && out_ >= least && rows_ >= least;
    return padded ? (out_ + aligned_columns - 1) / aligned_columns * aligned_columns : out_;
  }
  bool is_padded() const { return padded_ != out_; }

  // There is room: as much as the same in f32 would take.
  static Bf16* take(int64_t elements, Scratch& scratch) {
    return static_cast<Bf16*>(scratch.take(elements * static_cast<int64_t>(sizeof(Bf16))));
  }
  const Bf16* padded_weight(const Bf16* weight, Scratch& scratch) const {
    Bf16* const result = take(padded_ * in_, scratch);
    copy_bytes(context_, weight, result, out_ * in_ * static_cast<int64_t>(sizeof(Bf16)));
    fill_zero(context_, result + out_ * in_, (padded_ - out_) * in_ * static_cast<int64_t>(sizeof(Bf16)));
    return result;
  }

  // gradient [rows, padded]; the gradient of the weights has no room for more rows, so the last few are a product of
  // their own.
  void weight_gradient(const KernelArguments& arguments, const Bf16* input, const Bf16* gradient) const {
    const int64_t first = is_padded() ? out_ / aligned_columns * aligned_columns : out_;
    const auto product = [&](int64_t begin, int64_t count) {
      multiply_matrices(context_, 'T', 'N', count, in_, rows_, gradient + begin, padded_, input, in_,
                        arguments.accumulates(0) ? 1 : 0, arguments.parameter_gradients[0] + begin * in_, in_);
    };
    product(0, first);
    if (first < out_) product(first, out_ - first);
  }

  bool relu_, bias_;
  int64_t in_, out_, rows_;
  int64_t padded_;          // of the output within the kernel
  Memory<char> workspace_;  // the gradient after the relu; as large as in f32
};

// One product a sample: a [m, k], b [k, n] or [n, k] -> [m, n].
class MatmulBf16 : public Bf16Kernel {
 public:
  MatmulBf16(const Context& context, const KernelRequest& request, const Matmul& matmul, void* scratch)
      : Bf16Kernel(context, request, scratch), transposed_(matmul.transposed), scale_(static_cast<float>(matmul.scale)),
        samples_(part_[0].size()), m_(part_[1].size()), n_(part_[2].size()), k_(part_[3].size()) {}

  void forward(const KernelArguments& arguments) override {
    Scratch scratch = forward_scratch();
    const Bf16 *const a = input(arguments, 0, scratch), *const b = input(arguments, 1, scratch);
    multiply_matrices(context_, {samples_, m_ * k_, k_ * n_, m_ * n_}, 'N', transposed_ ? 'T' : 'N', m_, n_, k_, a, k_,
                      b, b_stride(), 0, as_bf16(arguments.outputs[0]), n_, scale_);
  }

  void backward(const KernelArguments& arguments) override {
    Scratch scratch = backward_scratch();
    const Bf16 *const a = input(arguments, 0, scratch), *const b = input(arguments, 1, scratch),
                      *const gradient = as_bf16(arguments.output_gradients[0]);
    if (float* const result = arguments.input_gradients[0])
      multiply_matrices(context_, {samples_, m_ * n_, k_ * n_, m_ * k_}, 'N', transposed_ ? 'N' : 'T', m_, k_, n_,
                        gradient, n_, b, b_stride(), 0, as_bf16(result), k_, scale_);
    if (!arguments.input_gradients[1]) return;
    Bf16* const result = as_bf16(arguments.input_gradients[1]);
    if (transposed_)
      multiply_matrices(context_, {samples_, m_ * n_, m_ * k_, k_ * n_}, 'T', 'N', n_, k_, m_, gradient, n_, a, k_, 0,
                        result, k_, scale_);
    else
      multiply_matrices(context_, {samples_, m_ * k_, m_ * n_, k_ * n_}, 'T', 'N', k_, n_, m_, a, k_, gradient, n_, 0,
                        result, n_, scale_);
  }

 private:
  int64_t b_stride() const { return transposed_ ? k_ : n_; }

  bool transposed_;
  float scale_;
  int64_t samples_, m_, n_, k_;
};

// Rows of a table: by conversion all of it would be read and written for the few rows of the tokens. Backward does not
// read the table.
class EmbeddingBf16 : public Bf16Kernel {
 public:
  EmbeddingBf16(const Context& context, const KernelRequest& request, const Embedding& embedding, void* scratch)
      : Bf16Kernel(context, request, scratch), in_f32_(make_embedding_kernel(context, request)),
        number_(context.fault_number(request.operator_name, "token")), vocabulary_(embedding.vocabulary),
        rows_(embedding.rows(part_)), channels_(embedding.parameter_block(0, part_)[1].size()),
        tokens_(embedding.input_block(0, part_).volume()) {}

  void forward(const KernelArguments& arguments) override {
    const auto* const tokens = static_cast<const int32_t*>(arguments.inputs[0]);
    const auto from = [&](const auto* table) {
      look_up(context_, table, rows_, tokens, tokens_, channels_, vocabulary_, number_, as_bf16(arguments.outputs[0]));
    };
    if (is_master(arguments, 0)) from(arguments.parameters[0]);
    else from(as_bf16(static_cast<const void*>(arguments.parameters[0])));
  }

  void backward(const KernelArguments& arguments) override {
    Scratch scratch = backward_scratch();
    const int64_t elements = tokens_ * channels_;
    auto* const gradient = static_cast<float*>(scratch.take(elements * element_bytes));
    widen(context_, as_bf16(arguments.output_gradients[0]), gradient, elements);
    KernelArguments in_f32 = arguments;
    in_f32.output_gradients[0] = gradient;
    in_f32_->backward(in_f32);
  }

  int64_t workspace_bytes() const override { return in_f32_->workspace_bytes(); }

 private:
  std::unique_ptr<Kernel> in_f32_;
  int number_;
  int64_t vocabulary_;
  Interval rows_;
  int64_t channels_, tokens_;
};

template <class Made, class Definition>
std::unique_ptr<Kernel> make(const Context& context, const KernelRequest& request, void* scratch) {
  const auto* const definition = dynamic_cast<const Definition*>(&request.definition);
  return definition ? std::make_unique<Made>(context, request, *definition, scratch) : nullptr;
}

}  // namespace

std::unique_ptr<Kernel> make_bf16_kernel(const Context& context, const KernelRequest& request, void* scratch) {
  // Operators that move elements may move indices.
  const auto is_bf16 = [](const TensorSpec& tensor) { return tensor.type == DataType::bf16; };
  const Vector<TensorSpec>&inputs = request.definition.inputs(), &outputs = request.definition.outputs();
  if (std::none_of(inputs.begin(), inputs.end(), is_bf16) && std::none_of(outputs.begin(), outputs.end(), is_bf16))
    return nullptr;
  // A constant parameter is f32.
  const Vector<ParameterSpec>& parameters = request.definition.parameters();
  if (!parameters.empty() && !parameters[0].trained) return nullptr;
  if (auto kernel = make<EmbeddingBf16, Embedding>(context, request, scratch)) return kernel;
  if (std::none_of(inputs.begin(), inputs.end(), [](const auto& input) { return input.type == DataType::f32; }))
    for (const auto make_kernel :
         {make_elementwise_bf16_kernel, make_dropout_bf16_kernel, make_layer_norm_bf16_kernel,
          make_rms_norm_bf16_kernel, make_batch_norm_bf16_kernel, make_softmax_cross_entropy_bf16_kernel,
          make_pool_bf16_kernel, make_mean_bf16_kernel, make_rearrange_bf16_kernel})
      if (auto kernel = make_kernel(context, request)) return kernel;
  if (!context.has_tf32) return nullptr;  // products of bf16 came with those of TF32
  if (auto kernel = make_multi_head_attention_bf16_kernel(context, request, scratch)) return kernel;
  if (auto kernel = make<LinearBf16, Linear>(context, request, scratch)) return kernel;
  if (auto kernel = make_lstm_bf16_kernel(context, request, scratch)) return kernel;
  if (auto kernel = make_convolution_bf16_kernel(context, request, scratch)) return kernel;
  return make<MatmulBf16, Matmul>(context, request, scratch);
}

std::string native_bf16_operators(const Context& context) {
  return std::string(context.has_tf32 ? "linear, matmul, conv2d, conv1d, lstm, multi_head_attention (heads of up to "
                                        "128 channels), "
                                      : "") +
         "embedding, layer_norm, rms_norm, batch_norm, dropout, softmax_cross_entropy, pooling, mean, operators that "
         "move elements, and elementwise ones";
}

}  // namespace ff::cuda
