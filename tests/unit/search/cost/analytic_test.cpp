#include "search/cost/analytic.h"

#include <catch2/catch.hpp>

#include "common/graph.h"
#include "tests/support/graph_text.h"

using namespace ff;

namespace {

// 1e6 operations and 1e3 bytes a microsecond.
DeviceModel slow_device(double launch_us) {
  DeviceModel model;
  model.peak_tflops = 1;
  model.memory_gb_per_s = 1;
  model.launch_us = launch_us;
  return model;
}

}  // namespace

TEST_CASE("copies and updates take the time of their bytes, or of the launch") {
  const DeviceModel model = slow_device(3);
  CHECK(analytic_copy_us(model, 10000) == Approx(20));    // read and written
  CHECK(analytic_update_us(model, 10000) == Approx(50));  // of five operands
  CHECK(analytic_copy_us(model, 100) == 3);
}

TEST_CASE("a kernel takes the largest of launch, operations and bytes") {
  const Graph graph = parse_graph(parse_json(two_linear_layers, "graph"));
  const OperatorDefinition& linear = *graph.operators[0].definition;  // [4, 8] times [8, 8]
  const Block whole = linear.whole();
  // 128 + 256 + 128 bytes, each operand once
  CHECK(analytic_kernel_us(slow_device(0.1), linear, whole, Phase::forward, {}) == Approx(0.512));
  CHECK(analytic_kernel_us(slow_device(2), linear, whole, Phase::forward, {}) == 2);
  DeviceModel weak = slow_device(0.1);
  weak.peak_tflops = 1e-6;  // an operation a microsecond: 2 * 4 * 8 * 8
  CHECK(analytic_kernel_us(weak, linear, whole, Phase::forward, {}) == Approx(512));
}

TEST_CASE("in TF32 products take the model's rate for it, other operators that of f32") {
  const Graph graph = parse_graph(parse_json(two_linear_layers, "graph"));
  const OperatorDefinition& linear = *graph.operators[0].definition;
  DeviceModel model = slow_device(0.1);
  model.name = "m";
  model.peak_tflops = 1e-6;
  CHECK_THROWS_WITH(analytic_kernel_us(model, linear, linear.whole(), Phase::forward, {}, Precision::tf32),
                    Catch::StartsWith("--precision tf32: device model \"m\" has no \"peak_tf32_tflops\""));
  model.peak_tf32_tflops = 8e-6;
  CHECK(analytic_kernel_us(model, linear, linear.whole(), Phase::forward, {}, Precision::tf32) == Approx(64));
  CHECK(analytic_kernel_us(model, linear, linear.whole(), Phase::forward, {}) == Approx(512));
  const OperatorDefinition& loss = *graph.operators.back().definition;
  CHECK_FALSE(computes_products(loss.type()));
  CHECK(analytic_kernel_us(model, loss, loss.whole(), Phase::forward, {}, Precision::tf32) ==
        analytic_kernel_us(model, loss, loss.whole(), Phase::forward, {}));
}

TEST_CASE("in bf16 a tensor has half the bytes, and products take the model's rate for it") {
  const Graph graph = parse_graph(parse_json(two_linear_layers, "graph"), 0, DataType::bf16);
  const OperatorDefinition& first = *graph.operators[0].definition;   // reads the graph's input, which stays f32
  const OperatorDefinition& second = *graph.operators[1].definition;  // [4, 8] times [8, 8]
  DeviceModel model = slow_device(0.1);
  model.name = "m";
  CHECK_THROWS_WITH(analytic_kernel_us(model, second, second.whole(), Phase::forward, {}, Precision::bf16),
                    Catch::StartsWith("--precision bf16: device model \"m\" has no \"peak_bf16_tflops\""));
  model.peak_bf16_tflops = 1e6;
  const double us = analytic_kernel_us(model, second, second.whole(), Phase::forward, {}, Precision::bf16);
  CHECK(us == Approx((64 + 128 + 64) / 1e3));
  CHECK(analytic_kernel_us(model, first, first.whole(), Phase::forward, {}, Precision::bf16) == Approx(us + 0.064));
  model.peak_bf16_tflops = 4e-6;  // 512 operations
  CHECK(analytic_kernel_us(model, second, second.whole(), Phase::forward, {}, Precision::bf16) == Approx(128));
}

TEST_CASE("shares of products lie between those of the nearest shapes, in logarithms") {
  const KernelEfficiency::Products products{{256, 4096}, {1 << 16, 1 << 24}, {{0.1, 0.5}, {0.3, 0.8}}, 1};
  CHECK(products.share(256, 1 << 16) == Approx(0.1));
  CHECK(products.share(4096, 1 << 24) == Approx(0.8));
  CHECK(products.share(1, 1) == Approx(0.1));  // beyond the table it is constant
  CHECK(products.share(1e9, 1e12) == Approx(0.8));
  CHECK(products.share(1024, 1 << 16) == Approx(0.2));               // half way from 256 to 4096
  CHECK(products.share(1024, 1 << 20) == Approx((0.3 + 0.55) / 2));  // and half way from 2^16 to 2^24
  const KernelEfficiency::Products one{{1}, {1}, {{0.7}}, 1};
  CHECK(one.share(5, 7) == Approx(0.7));
}

TEST_CASE("in bf16 a linear layer's products have the shares of their shapes") {
  const Graph graph = parse_graph(parse_json(two_linear_layers, "graph"), 0, DataType::bf16);
  const OperatorDefinition& linear = *graph.operators[1].definition;  // [4, 8] times [8, 8]: 512 operations
  DeviceModel model = slow_device(0.1);
  model.peak_bf16_tflops = 1e-6;  // an operation a microsecond
  // Forward and the gradient of the input: 32 sums of 8 terms. The gradient of the weight: 64 sums of 4 terms.
  model.efficiency.products = {{4, 8}, {32, 64}, {{0.1, 0.25}, {0.5, 0.2}}, 0.5};
  const auto us = [&](Phase phase, const FrameworkConventions& conventions = {}) {
    return analytic_kernel_us(model, linear, linear.whole(), phase, {true, 0}, Precision::bf16, conventions);
  };
  CHECK(us(Phase::forward) == Approx(512 / 0.5));
  CHECK(us(Phase::backward) == Approx(512 / 0.5 + 512 / 0.25));
  FrameworkConventions accumulating;
  accumulating.added_by_products_bytes = 8;
  CHECK(us(Phase::backward, accumulating) == Approx(512 / 0.5 + 512 / 0.125));
  // 64 gradients are read and written; memory moves a byte in a nanosecond.
  model.efficiency.products->exposed_accumulation = 0.5;
  CHECK(us(Phase::backward, accumulating) == Approx(512 / 0.5 + 512 / 0.125 + 0.5 * 64 * 8 / 1e3));
  CHECK(us(Phase::backward) == Approx(512 / 0.5 + 512 / 0.25));
  model.efficiency.products->exposed_accumulation = 0;
  model.efficiency.sustained = 0.8;
  CHECK(us(Phase::forward) == Approx(512 / 0.4));
  model.efficiency.slowest = 1.25;
  CHECK(us(Phase::forward) == Approx(512 / 0.32));
}

TEST_CASE("launches that block add the host's time to each kernel") {
  const Graph graph = parse_graph(parse_json(two_linear_layers, "graph"), 0, DataType::bf16);
  const OperatorDefinition& linear = *graph.operators[1].definition;
  DeviceModel model = slow_device(0.1);
  model.peak_bf16_tflops = 1e-6;
  model.efficiency.products = {{4, 8}, {32, 64}, {{0.1, 0.25}, {0.5, 0.2}}, 0.5};
  FrameworkConventions blocking;
  blocking.blocking_launches = true;
  const auto more = [&](Phase phase) {
    const auto us = [&](const FrameworkConventions& conventions) {
      return analytic_kernel_us(model, linear, linear.whole(), phase, {true, 0}, Precision::bf16, conventions);
    };
    return us(blocking) - us({});
  };
  CHECK(more(Phase::forward) == Approx(host_us_of_kernel));
  CHECK(more(Phase::backward) == Approx(2 * host_us_of_kernel));  // of the input, of the weights
  CHECK(host_us_of_kernel == Approx(25.5).margin(0.1));
  std::string how;
  analytic_kernel_us(model, linear, linear.whole(), Phase::forward, {true, 0}, Precision::bf16, blocking, &how);
  CHECK_THAT(how, Catch::Contains("a launch that blocks: 25.5 us"));
}

TEST_CASE("an optimizer of elementwise kernels moves more, and so does clipping") {
  const DeviceModel model = slow_device(3);
  FrameworkConventions conventions;
  conventions.clips_gradients = true;
  CHECK(analytic_update_us(model, 10000, OptimizerKind::adamw, conventions) == Approx(100));  // 7 + 3 operands
  conventions.unfused_optimizer = true;
  CHECK(analytic_update_us(model, 10000, OptimizerKind::adamw, conventions) == Approx(250));  // 22 + 3
}
