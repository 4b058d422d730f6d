// Attention on tensor cores, in TF32: every number of the output and of the input's gradient within a bound that counts
// what is rounded.
#include <cmath>
#include <cstdlib>

#include "common/operators/attention.h"
#include "tests/gpu/gpu_or_skip.h"
#include "tests/gpu/random_cases.h"
#include "tests/unit/common/kernels/buffer.h"
#include "tests/unit/common/kernels/kernel_cases.h"

using namespace ff;
using namespace ff::kernel_cases;

namespace {

constexpr double tf32_rounding = 1.0 / 2048;  // half a unit of ten bits behind the point
// Of sums of about a hundred numbers; tensor cores drop what is behind the bits of the largest of eight products.
constexpr double f32_rounding = 4e-6;

// Inputs, and gradients of the output, are multiples of 1/64 below 16, which TF32 holds; each row of a weight
// selects one channel. So queries, keys, values and the products of scores are exact, and this is rounded:
// probabilities (of the sums with values and with gradients of the output), gradients of scores, and gradients of
// queries, keys and values, as operands of the projections' products. Each sum's bound is that share of the sum of
// its summands' absolute values.
class Exact {
 public:
  Exact(const MultiHeadAttention& attention, const Block& part, const Values& input, const Values& output_gradient)
      : attention_(attention), part_(part), input_(input), gradient_(output_gradient),
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
    input_bound[at] += sum.bound + 2 * tf32_rounding * (std::abs(sum.value) + sum.bound);  // cuBLAS may cut off
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
    const double rounding = tf32_rounding + 2 * score_error;  // of a probability: of its exponential, and of the total
    for (double& one : probabilities) total += one = std::exp(one - largest);
    for (double& one : probabilities) one /= total;
    double product = 0, product_error = 0;
    for (int64_t c = 0; c < width; ++c) {
      Sum sum;
      for (int64_t k = 0; k < keys; ++k) sum.add(of_value(k, c), probabilities[k], rounding * probabilities[k]);
      output[at + c] = sum.value;
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
                           scale * probabilities[k] * (product_error + change_error) * (1 + tf32_rounding);
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

Values sixty_fourths(Cases& cases, const Shape& shape) {
  Values values = cases.values(shape);
  for (double& value : values) value = std::clamp(std::round(64 * value) / 64, -15.0, 15.0);
  return values;
}

// `most`: of the output's error, in bounds.
void check(Backend& backend, const Json& attributes, int64_t length, int64_t channels, const Degrees& degrees,
           double most = 1) {
  INFO(attributes.dump() << " length " << length << " channels " << channels);
  const std::string text = Cases::wrap("multi_head_attention", {{"batch", length, channels}}, attributes, 2).dump();
  const Graph graph = parse_graph(parse_json(text, "test"));
  const auto& attention = dynamic_cast<const MultiHeadAttention&>(*graph.operators[0].definition);
  Cases cases(1);
  const Values input = sixty_fourths(cases, attention.inputs()[0].shape),
               gradient = sixty_fourths(cases, attention.outputs()[0].shape);
  int64_t parts = 1;
  for (const int degree : degrees) parts *= degree;
  for (int64_t number = 0; number < parts; ++number) {
    const Block part = attention.part(degrees, number);
    INFO("part " << to_string(part));
    KernelArguments arguments;
    Vector<Buffer> buffers;
    buffers.reserve(16);
    const auto buffer = [&](const Shape& shape, const Block& block, const Values& values, bool stored) {
      buffers.emplace_back(backend, shape, block, stored).fill(values, DataType::f32);
      return buffers.back().data();
    };
    const Shape &input_shape = attention.inputs()[0].shape, &output_shape = attention.outputs()[0].shape;
    const Block input_block = attention.input_block(0, part), output_block = attention.output_block(0, part);
    arguments.inputs = {buffer(input_shape, input_block, input, true)};
    arguments.input_gradients = {buffer(input_shape, input_block, input, true)};
    arguments.outputs = {buffer(output_shape, output_block, gradient, true)};
    arguments.output_gradients = {buffer(output_shape, output_block, gradient, true)};
    for (const int p : attention.parameters().indices()) {
      const Shape& shape = attention.parameters()[p].shape;
      Values values(static_cast<size_t>(volume(shape)), 0.0);
      const int64_t rows = shape[shape.size() - 2], first = p == 1 ? 1 : 0;
      for (int64_t row = 0; row < volume(shape) / channels; ++row)
        values[row * channels + Exact::selected(first + row / rows, row % rows, channels)] = 1;
      arguments.parameters.push_back(buffer(shape, attention.parameter_block(p, part), values, false));
      arguments.parameter_gradients.push_back(buffer(shape, attention.parameter_block(p, part), values, false));
    }
    const auto kernel = backend.make_kernel({attention, part, {true}, "tested", 1});
    kernel->forward(arguments);
    const Exact exact(attention, part, input, gradient);
    CHECK(largest_error(backend, arguments.outputs[0], output_shape, output_block, exact.output, exact.output_bound) <
          most);
    kernel->backward(arguments);
    CHECK(largest_error(backend, arguments.input_gradients[0], input_shape, input_block, exact.input_gradient,
                        exact.input_bound) < 1);
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

// Which have no TF32.
TEST_CASE("attention on older devices is f32 whatever the precision") {
  if (!random_cases::stand_in) return;
  setenv("FF_CUDA_STAND_IN_CAPABILITY", "75", 1);
  const auto backend = gpu_or_skip(Precision::tf32);
  unsetenv("FF_CUDA_STAND_IN_CAPABILITY");
  check(*backend, {{"heads", 2}, {"head_channels", 32}, {"causal", true}, {"bias", false}}, 20, 12, {1, 1, 1}, 0.05);
}
