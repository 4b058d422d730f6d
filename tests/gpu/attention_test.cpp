// Attention on tensor cores, in TF32 and in bf16: every number of the output and of the input's gradient within a bound
// that counts what is rounded.
#include <cmath>
#include <cstdlib>

#include "common/kernels/bf16.h"
#include "common/kernels/bf16_kernels.h"
#include "common/operators/attention.h"
#include "common/operators/conversion.h"
#include "tests/gpu/gpu_or_skip.h"
#include "tests/gpu/random_cases.h"
#include "tests/unit/common/kernels/buffer.h"
#include "tests/unit/common/kernels/kernel_cases.h"

using namespace ff;
using namespace ff::kernel_cases;

namespace {

// Of operands between the projections; of numbers that are stored; of those of queries, keys and values before and
// after the projections' products.
struct Rounding {
  double of_operands, of_results, of_projections;
};
constexpr Rounding tf32 = {1.0 / 2048, 0, 2.0 / 2048};  // half a unit of ten bits behind the point; cuBLAS may cut off
// Two parts of an input's gradient are added, so three roundings.
constexpr Rounding bf16 = {bf16_rounding, bf16_rounding, 3 * bf16_rounding};
// Of sums of about a hundred numbers; tensor cores drop what is behind the bits of the largest of eight products.
constexpr double f32_rounding = 4e-6;

// Inputs, and gradients of the output, are multiples of 1/64 below 16, which TF32 holds (for bf16 of 1/16); each row of
// a weight selects one channel. So queries, keys, values and the products of scores are exact, and this is rounded:
// probabilities (of the sums with values and with gradients of the output), gradients of scores, and gradients of
// queries, keys and values, as operands of the projections' products; in bf16 results too. Each sum's bound is that
// share of the sum of its summands' absolute values.
class Exact {
 public:
  Exact(const MultiHeadAttention& attention, const Block& part, const Rounding& rounding, const Values& input,
        const Values& output_gradient)
      : attention_(attention), part_(part), rounding_(rounding), input_(input), gradient_(output_gradient),
        output(volume(attention.outputs()[0].shape), 0.0), output_bound(output), input_gradient(input.size(), 0.0),
        input_bound(input_gradient) {
    for (int64_t sample = part[0].begin; sample < part[0].end; ++sample)
      for (int64_t key_head = part[2].begin; key_head < part[2].end; ++key_head) add_head(sample, key_head);
  }

  // Which channel of the input a row of the projection to queries (0), keys (1) or values (2) selects.
  static int64_t selected(int64_t projection, int64_t row, int64_t channels) {
    return (row * (projection == 1 ? 3 : 1) + 5 * projection) % channels;
  }

 private:
  struct Sum {
    double value = 0, bound = 0;
    void add(double factor, double summand, double error) {
      value += factor * summand;
      bound += std::abs(factor) * (error + f32_rounding * std::abs(summand));
    }
  };

  double projected(int64_t projection, int64_t sample, int64_t position, int64_t row) const {
    return input_[(sample * attention_.length + position) * attention_.channels +
                  selected(projection, row, attention_.channels)];
  }
  void add_to_input(int64_t projection, int64_t sample, int64_t position, int64_t row, const Sum& sum) {
    const int64_t at =
        (sample * attention_.length + position) * attention_.channels + selected(projection, row, attention_.channels);
    input_gradient[at] += sum.value;
    input_bound[at] += sum.bound + rounding_.of_projections * (std::abs(sum.value) + sum.bound);
  }

  void add_head(int64_t sample, int64_t key_head) {
    const int64_t width = attention_.head_channels, length = attention_.length;
    Vector<Sum> of_keys(length * width), of_values(length * width);
    for (int64_t head = key_head * attention_.group; head < (key_head + 1) * attention_.group; ++head)
      for (int64_t query = part_[1].begin; query < part_[1].end; ++query)
        add_query(sample, key_head, head, query, of_keys, of_values);
    for (int64_t key = 0; key < length; ++key)
      for (int64_t c = 0; c < width; ++c) {
        add_to_input(1, sample, key, key_head * width + c, of_keys[key * width + c]);
        add_to_input(2, sample, key, key_head * width + c, of_values[key * width + c]);
      }
  }

  void add_query(int64_t sample, int64_t key_head, int64_t head, int64_t query, Vector<Sum>& of_keys,
                 Vector<Sum>& of_values) {
    const int64_t width = attention_.head_channels, keys = attention_.causal ? query + 1 : attention_.length;
    const double scale = 1 / std::sqrt(static_cast<double>(width));
    const auto of_query = [&](int64_t c) { return projected(0, sample, query, head * width + c); };
    const auto of_key = [&](int64_t k, int64_t c) { return projected(1, sample, k, key_head * width + c); };
    const auto of_value = [&](int64_t k, int64_t c) { return projected(2, sample, k, key_head * width + c); };
    const int64_t at = ((sample * attention_.length + query) * attention_.heads + head) * width;
    Vector<double> probabilities(keys, 0.0);
    double largest = -1e30, total = 0, score_error = 0;
    for (int64_t k = 0; k < keys; ++k) {
      double absolute = 0;
      for (int64_t c = 0; c < width; ++c) {
        probabilities[k] += scale * of_query(c) * of_key(k, c);
        absolute += scale * std::abs(of_query(c) * of_key(k, c));
      }
      largest = std::max(largest, probabilities[k]);
      score_error = std::max(score_error, f32_rounding * absolute);
    }
    // Of a probability: of its exponential, and of the total.
    const double rounding = rounding_.of_operands + 2 * score_error;
    for (double& one : probabilities) total += one = std::exp(one - largest);
    for (double& one : probabilities) one /= total;
    double product = 0, product_error = 0;
    for (int64_t c = 0; c < width; ++c) {
      Sum sum;
      for (int64_t k = 0; k < keys; ++k) sum.add(of_value(k, c), probabilities[k], rounding * probabilities[k]);
      output[at + c] = sum.value;
      sum.bound += rounding_.of_results * (std::abs(sum.value) + sum.bound);
      output_bound[at + c] = sum.bound;
      product += sum.value * gradient_[at + c];
      product_error += (sum.bound + f32_rounding * std::abs(sum.value)) * std::abs(gradient_[at + c]);
    }
    Vector<Sum> of_queries(width);
    for (int64_t k = 0; k < keys; ++k) {
      double change = 0, change_error = 0;
      for (int64_t c = 0; c < width; ++c) {
        change += gradient_[at + c] * of_value(k, c);
        change_error += f32_rounding * std::abs(gradient_[at + c] * of_value(k, c));
      }
      const double of_score = scale * probabilities[k] * (change - product),
                   error = rounding * std::abs(of_score) +
                           scale * probabilities[k] * (product_error + change_error) * (1 + rounding_.of_operands);
      for (int64_t c = 0; c < width; ++c) {
        of_queries[c].add(of_key(k, c), of_score, error);
        of_keys[k * width + c].add(of_query(c), of_score, error);
        of_values[k * width + c].add(gradient_[at + c], probabilities[k], rounding * probabilities[k]);
      }
    }
    for (int64_t c = 0; c < width; ++c) add_to_input(0, sample, query, head * width + c, of_queries[c]);
  }

  const MultiHeadAttention& attention_;
  const Block& part_;
  const Rounding& rounding_;
  const Values &input_, &gradient_;

 public:
  Values output, output_bound, input_gradient, input_bound;
};

// The largest error of a block's numbers, in bounds of each.
double largest_error(Backend& backend, const void* memory, const Shape& shape, const Block& block,
                     const Values& expected, const Values& bounds) {
  Vector<float> found(block.volume());
  backend.load_to_host(memory, found.data(), block.shape());
  double largest = 0;
  for_each_element(shape, block, [&](size_t whole, size_t in_block) {
    const double error = std::abs(static_cast<double>(found[in_block]) - expected[whole]);
    if (!(error <= largest * (bounds[whole] + 1e-30))) largest = error / (bounds[whole] + 1e-30);
  });
  return largest;
}

Values multiples(Cases& cases, const Shape& shape, double of_one) {
  Values values = cases.values(shape);
  for (double& value : values) value = std::clamp(std::round(of_one * value) / of_one, -15.0, 15.0);
  return values;
}

// The operator on activations, which are bf16 in a graph of bf16.
Graph graph_of(const Json& attributes, int64_t length, int64_t channels, DataType type) {
  const Json text = {
      {"format", "ffgraph/1"},
      {"name", "g"},
      {"batch_size", 2},
      {"inputs",
       {{{"name", "x"}, {"shape", {"batch", length, channels}}, {"dtype", "f32"}},
        {{"name", "label"}, {"shape", {"batch"}}, {"dtype", "i32"}}}},
      {"operators",
       {{{"name", "activation"}, {"type", "relu"}, {"inputs", {"x"}}},
        {{"name", "tested"}, {"type", "multi_head_attention"}, {"inputs", {"activation"}}, {"attributes", attributes}},
        {{"name", "flat"}, {"type", "flatten"}, {"inputs", {"tested"}}},
        {{"name", "loss"}, {"type", "softmax_cross_entropy"}, {"inputs", {"flat", "label"}}}}}};
  return parse_graph(parse_json(text.dump(), "test"), 0, type);
}

const MultiHeadAttention& tested(const Graph& graph) {
  for (const Operator& op : graph.operators)
    if (op.name == "tested") return dynamic_cast<const MultiHeadAttention&>(*op.definition);
  throw std::logic_error("no operator \"tested\"");
}

// A part of the operator with tensors of its definition's types.
class Part {
 public:
  Part(CudaBackend& backend, const MultiHeadAttention& attention, const Block& part, const Values& input,
       const Values& gradient)
      : backend_(backend), type_(attention.activation_type()), input_shape_(attention.inputs()[0].shape),
        output_shape_(attention.outputs()[0].shape), input_block_(attention.input_block(0, part)),
        output_block_(attention.output_block(0, part)) {
    buffers_.reserve(32);
    arguments_.inputs = {activation(input_shape_, input_block_, input)};
    arguments_.input_gradients = {activation(input_shape_, input_block_, input)};
    arguments_.outputs = {activation(output_shape_, output_block_, gradient)};
    arguments_.output_gradients = {activation(output_shape_, output_block_, gradient)};
    for (const int p : attention.parameters().indices()) {
      const Shape& shape = attention.parameters()[p].shape;
      Values values(static_cast<size_t>(volume(shape)), 0.0);
      const int64_t channels = attention.channels, rows = shape[shape.size() - 2], first = p == 1 ? 1 : 0;
      for (int64_t row = 0; row < volume(shape) / channels; ++row)
        values[row * channels + Exact::selected(first + row / rows, row % rows, channels)] = 1;
      arguments_.parameters.push_back(in_f32(shape, attention.parameter_block(p, part), values, false));
      arguments_.parameter_gradients.push_back(in_f32(shape, attention.parameter_block(p, part), values, false));
      if (type_ == DataType::bf16) arguments_.masters.push_back(true);
    }
    const KernelRequest request{attention, part, {true}, "tested", 1};
    const int64_t bytes = conversion_bytes(attention, part, true, {true});
    const Shape scratch{1 + bytes / element_bytes};
    if (type_ == DataType::bf16)
      kernel_ = dynamic_cast<Bf16Kernels&>(backend).make_bf16_kernel(
          request, in_f32(scratch, Block(scratch), Values(scratch[0], 0.0), false));
    else kernel_ = backend.make_kernel(request);
  }

  Kernel* kernel() { return kernel_.get(); }
  const KernelArguments& arguments() const { return arguments_; }
  double output_error(const Exact& exact) {
    return error(arguments_.outputs[0], output_shape_, output_block_, exact.output, exact.output_bound);
  }
  double input_gradient_error(const Exact& exact) {
    return error(arguments_.input_gradients[0], input_shape_, input_block_, exact.input_gradient, exact.input_bound);
  }

 private:
  float* in_f32(const Shape& shape, const Block& block, const Values& values, bool stored) {
    buffers_.emplace_back(backend_, shape, block, stored).fill(values, DataType::f32);
    return buffers_.back().data();
  }
  float* activation(const Shape& shape, const Block& block, const Values& values) {
    float* const wide = in_f32(shape, block, values, true);
    if (type_ == DataType::f32) return wide;
    float* const result = in_f32(shape, block, values, true);
    backend_.convert(wide, DataType::f32, result, DataType::bf16, block.volume());
    return result;
  }
  double error(const void* memory, const Shape& shape, const Block& block, const Values& expected,
               const Values& bounds) {
    if (type_ == DataType::bf16) {
      float* const wide = in_f32(shape, block, expected, true);
      backend_.convert(memory, DataType::bf16, wide, DataType::f32, block.volume());
      memory = wide;
    }
    return largest_error(backend_, memory, shape, block, expected, bounds);
  }

  CudaBackend& backend_;
  const DataType type_;
  const Shape input_shape_, output_shape_;
  const Block input_block_, output_block_;
  Vector<Buffer> buffers_;
  KernelArguments arguments_;
  std::unique_ptr<Kernel> kernel_;
};

// `most`: of the output's error, in bounds.
void check(CudaBackend& backend, const Json& attributes, int64_t length, int64_t channels, const Degrees& degrees,
           double most = 1, DataType type = DataType::f32) {
  INFO(attributes.dump() << " length " << length << " channels " << channels);
  const Graph graph = graph_of(attributes, length, channels, type);
  const MultiHeadAttention& attention = tested(graph);
  Cases cases(1);
  const double of_one = type == DataType::bf16 ? 16 : 64;
  const Values input = multiples(cases, attention.inputs()[0].shape, of_one),
               gradient = multiples(cases, attention.outputs()[0].shape, of_one);
  int64_t parts = 1;
  for (const int degree : degrees) parts *= degree;
  for (int64_t number = 0; number < parts; ++number) {
    const Block part = attention.part(degrees, number);
    INFO("part " << to_string(part));
    Part one(backend, attention, part, input, gradient);
    REQUIRE(one.kernel());
    one.kernel()->forward(one.arguments());
    const Exact exact(attention, part, type == DataType::bf16 ? bf16 : tf32, input, gradient);
    CHECK(one.output_error(exact) < most);
    one.kernel()->backward(one.arguments());
    CHECK(one.input_gradient_error(exact) < 1);
  }
}

}  // namespace

TEST_CASE("attention on tensor cores is off by no more than TF32 rounds") {
  const auto backend = gpu_or_skip(Precision::tf32);
  if (!backend) return;
  for (const int64_t width : {6, 64, 80, 96, 128, 150}) DYNAMIC_SECTION("heads of " << width) {
      for (const bool causal : {true, false}) {
        const Json two = {{"heads", 2}, {"head_channels", width}, {"causal", causal}, {"bias", false}};
        check(*backend, two, width == 64 ? 150 : 45, 17, {1, 1, 1});
      }
    }
  SECTION("parts of grouped heads and of the length") {
    for (const bool causal : {true, false})
      for (const int64_t width : {32, 7})
        check(*backend,
              {{"heads", 4}, {"key_value_heads", 2}, {"head_channels", width}, {"causal", causal}, {"bias", false}}, 90,
              12, {1, 2, 2});
  }
}

TEST_CASE("attention of bf16 is off by no more than bf16 rounds") {
  const auto backend = gpu_or_skip(Precision::bf16);
  if (!backend) return;
  const auto check_bf16 = [&](const Json& attributes, int64_t length, const Degrees& degrees) {
    check(*backend, attributes, length, 16, degrees, 1, DataType::bf16);
  };
  for (const int64_t width : {8, 17, 36, 64, 80, 96, 128}) DYNAMIC_SECTION("heads of " << width) {
      for (const bool causal : {true, false})
        check_bf16({{"heads", 2}, {"head_channels", width}, {"causal", causal}, {"bias", false}},
                   width == 64 ? 150 : 45, {1, 1, 1});
    }
  SECTION("parts of grouped heads and of the length") {
    for (const bool causal : {true, false})
      for (const int64_t width : {64, 32, 7})
        check_bf16(
            {{"heads", 4}, {"key_value_heads", 2}, {"head_channels", width}, {"causal", causal}, {"bias", false}},
            width == 64 ? 130 : 90, {1, 2, 2});
  }
}

TEST_CASE("attention of bf16 is converted where heads are wide, or the device is older") {
  const auto made = [](CudaBackend& backend, int64_t width) {
    const Graph graph = graph_of({{"heads", 2}, {"head_channels", width}}, 5, 8, DataType::bf16);
    const MultiHeadAttention& attention = tested(graph);
    return dynamic_cast<Bf16Kernels&>(backend).make_bf16_kernel({attention, attention.whole(), {true}, "tested", 1},
                                                                nullptr) != nullptr;
  };
  const auto backend = gpu_or_skip(Precision::bf16);
  if (!backend) return;
  CHECK_FALSE(made(*backend, 136));
  if (!random_cases::stand_in) return;
  CHECK(made(*backend, 128));
  setenv("FF_CUDA_STAND_IN_CAPABILITY", "75", 1);
  const auto older = gpu_or_skip(Precision::bf16);
  unsetenv("FF_CUDA_STAND_IN_CAPABILITY");
  CHECK_FALSE(made(*older, 128));
}

// Which have no TF32.
TEST_CASE("attention on older devices is f32 whatever the precision") {
  if (!random_cases::stand_in) return;
  setenv("FF_CUDA_STAND_IN_CAPABILITY", "75", 1);
  const auto backend = gpu_or_skip(Precision::tf32);
  unsetenv("FF_CUDA_STAND_IN_CAPABILITY");
  check(*backend, {{"heads", 2}, {"head_channels", 32}, {"causal", true}, {"bias", false}}, 20, 12, {1, 1, 1}, 0.05);
}
