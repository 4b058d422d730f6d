#include "common/kernels/backend.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <tuple>

#include "common/errors.h"
#include "common/kernels/bf16_kernels.h"
#include "common/kernels/cpu/bf16_conversion.h"
#include "common/kernels/cpu/bf16_products.h"
#include "common/kernels/cpu/block_copy.h"
#include "common/kernels/cpu/kernels.h"

namespace ff {
namespace {

FF_VECTORIZED void sgd_with_momentum(float* parameter, const float* gradient, float* velocity, int64_t elements,
                                     const OptimizerStep& step) {
  const auto [rate, momentum, decay] = std::tuple(step.learning_rate, step.momentum, step.weight_decay);
  for (int64_t i = 0; i < elements; ++i) {
    velocity[i] = momentum * velocity[i] + (gradient[i] + decay * parameter[i]);
    parameter[i] -= rate * velocity[i];
  }
}

FF_VECTORIZED void sgd_plain(float* parameter, const float* gradient, int64_t elements, const OptimizerStep& step) {
  const float rate = step.learning_rate, decay = step.weight_decay;
  for (int64_t i = 0; i < elements; ++i) parameter[i] -= rate * (gradient[i] + decay * parameter[i]);
}

FF_VECTORIZED void adam(float* parameter, const float* gradient, float* first, float* second, int64_t elements,
                        const OptimizerStep& step) {
  const bool decoupled = step.kind == OptimizerKind::adamw;
  const float kept = decoupled ? 1 - step.learning_rate * step.weight_decay : 1,
              decay = decoupled ? 0 : step.weight_decay;
  const float beta1 = step.beta1, beta2 = step.beta2;
  const float size = step.step_size, root = step.second_moment_root, epsilon = step.epsilon;
  for (int64_t i = 0; i < elements; ++i) {
    const float value = kept * parameter[i], g = gradient[i] + decay * value;
    first[i] = beta1 * first[i] + (1 - beta1) * g;
    second[i] = beta2 * second[i] + (1 - beta2) * g * g;
    parameter[i] = value - size * first[i] / (std::sqrt(second[i]) / root + epsilon);
  }
}

constexpr OperatorFunction<std::unique_ptr<Kernel>(const cpu::Context&, const KernelRequest&)> factories[] = {
#define FF_ROW(type, name) {#type, cpu::make_##name##_kernel},
    FF_OPERATORS(FF_ROW)
#undef FF_ROW
};

class CpuBackend : public Backend, public Bf16Kernels {
 public:
  explicit CpuBackend(int threads) : context_(threads) {}

  std::string name() const override { return "cpu"; }
  int64_t shared_workspace_bytes() const override { return context_.scratch_bytes(); }

  std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) override {
    context_.use_threads();
    try {
      return function_of(request.definition.type(), factories)(context_, request);
    } catch (const dnnl::error& error) {
      throw MachineError("oneDNN: " + std::string(error.what()) + " (kernel \"" +
                         request.definition.signature(request.part) + "\")");
    }
  }

  std::unique_ptr<Kernel> make_bf16_kernel(const KernelRequest& request, void* scratch) override {
    context_.use_threads();
    try {
      return cpu::make_bf16_kernel(context_, request, scratch);
    } catch (const dnnl::error&) {
      return nullptr;  // a shape that oneDNN does not know
    }
  }
  std::string native_operators() const override {
    return cpu::has_bf16_products() ? "linear, matmul, einsum, projections of multi_head_attention, and embedding"
                                    : "embedding";
  }

  void* allocate(int64_t bytes) override {
    constexpr size_t alignment = 64;
    const size_t rounded = (static_cast<size_t>(bytes) + alignment - 1) / alignment * alignment;
    void* memory = std::aligned_alloc(alignment, std::max(rounded, alignment));
    if (!memory) throw MachineError("out of memory: cannot allocate " + std::to_string(bytes) + " bytes");
    return memory;
  }
  void release(void* memory) override { std::free(memory); }

  void copy_block(const void* source, const Block& source_block, void* destination, const Block& destination_block,
                  const Block& region, DataType type) override {
    cpu::copy_block(source, source_block, destination, destination_block, region, size_of(type));
  }
  void add_block(const void* source, const Block& source_block, void* destination, const Block& destination_block,
                 const Block& region, DataType type) override {
    if (type == DataType::bf16)
      cpu::add_block(static_cast<const Bf16*>(source), source_block, static_cast<Bf16*>(destination), destination_block,
                     region);
    else
      cpu::add_block(static_cast<const float*>(source), source_block, static_cast<float*>(destination),
                     destination_block, region);
  }
  void convert(const void* source, DataType from, void* destination, DataType to, int64_t elements) override {
    if (from == DataType::bf16 && to == DataType::f32)
      cpu::widen(static_cast<const Bf16*>(source), static_cast<float*>(destination), elements);
    else if (from == DataType::f32 && to == DataType::bf16)
      cpu::narrow(static_cast<const float*>(source), static_cast<Bf16*>(destination), elements);
    else throw std::logic_error("conversion between types other than f32 and bf16");
  }
  void round_to_bf16(const float* source, float* destination, int64_t elements) override {
    cpu::round_to_bf16(source, destination, elements);
  }
  void fill_zero(void* memory, int64_t bytes) override { std::memset(memory, 0, static_cast<size_t>(bytes)); }
  void add(const float* source, float* destination, int64_t elements) override {
    cpu::add_to(source, destination, elements);
  }

  void store_from_host(const void* host, void* memory, const Shape& shape) override {
    if (volume(shape) == 0) return;
    if (shape.size() == 4)
      cpu::transpose(static_cast<const uint32_t*>(host), shape[0], shape[1], shape[2] * shape[3],
                     static_cast<uint32_t*>(memory));
    else std::memcpy(memory, host, static_cast<size_t>(volume(shape) * element_bytes));
  }
  void load_to_host(const void* memory, void* host, const Shape& shape) override {
    if (volume(shape) == 0) return;
    if (shape.size() == 4)
      cpu::transpose(static_cast<const uint32_t*>(memory), shape[0], shape[2] * shape[3], shape[1],
                     static_cast<uint32_t*>(host));
    else std::memcpy(host, memory, static_cast<size_t>(volume(shape) * element_bytes));
  }

  void update(float* parameter, const float* gradient, OptimizerStates states, int64_t elements,
              const OptimizerStep& step) override {
    if (step.kind != OptimizerKind::sgd) adam(parameter, gradient, states.first, states.second, elements, step);
    else if (states.first) sgd_with_momentum(parameter, gradient, states.first, elements, step);
    else sgd_plain(parameter, gradient, elements, step);
  }

  double sum_of_squares(const float* values, int64_t elements) override {
    double sum = 0;
    for (int64_t i = 0; i < elements; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    return sum;
  }
  void scale(float* values, int64_t elements, float factor) override {
    for (int64_t i = 0; i < elements; ++i) values[i] *= factor;
  }

  void wait() override {}

 private:
  cpu::Context context_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(int threads) { return std::make_unique<CpuBackend>(threads); }

std::string cpu_library_version() {
  const dnnl_version_t* version = dnnl_version();
  return std::to_string(version->major) + "." + std::to_string(version->minor) + "." + std::to_string(version->patch);
}

}  // namespace ff
