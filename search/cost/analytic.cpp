#include "search/cost/analytic.h"

#include <algorithm>
#include <iterator>

#include "common/errors.h"

namespace ff {
namespace {

double roofline_us(const DeviceModel& model, const Work& work, double tflops) {
  return std::max({model.launch_us, work.flops / (tflops * 1e6), work.bytes / (model.memory_gb_per_s * 1e3)});
}

double peak_tflops(const DeviceModel& model, std::string_view type, Precision precision) {
  if (precision == Precision::fp32 || !computes_products(type)) return model.peak_tflops;
  const double peak = precision == Precision::tf32 ? model.peak_tf32_tflops : model.peak_bf16_tflops;
  const std::string name(to_string(precision));
  if (peak <= 0)
    throw InputError(
        "--precision " + name + ": device model \"" + model.name + "\" has no \"peak_" + name +
        "_tflops\", which analytic costs of matrix products and convolutions need; add it to the topology, "
        "give a profile that was measured with " +
        name + ", or use --precision fp32");
  return peak;
}

}  // namespace

bool computes_products(std::string_view type) {
  constexpr std::string_view types[] = {"conv1d", "conv2d", "linear",       "lstm", "attention", "multi_head_attention",
                                        "matmul", "einsum", "expert_linear"};
  return std::find(std::begin(types), std::end(types), type) != std::end(types);
}

double analytic_kernel_us(const DeviceModel& model, const OperatorDefinition& definition, const Block& part,
                          Phase phase, KernelUse use, Precision precision) {
  const double tflops = peak_tflops(model, definition.type(), precision);
  switch (phase) {
    case Phase::forward_statistics: return roofline_us(model, definition.statistics_work(part, false), tflops);
    case Phase::forward: return roofline_us(model, definition.forward_work(part), tflops);
    case Phase::backward_statistics: return roofline_us(model, definition.statistics_work(part, true), tflops);
    case Phase::backward: {
      Work work = definition.backward_work(part, use.input_gradients);
      if (use.shared_bytes > 0)  // gradients are read to be added to
        work.bytes += definition.gradient_addition_bytes(part);
      return roofline_us(model, work, tflops);
    }
  }
  return 0;
}

double analytic_copy_us(const DeviceModel& model, int64_t bytes) {
  return roofline_us(model, {0, 2.0 * static_cast<double>(bytes)}, model.peak_tflops);
}

double analytic_update_us(const DeviceModel& model, int64_t bytes, OptimizerKind optimizer) {
  const double streams = optimizer == OptimizerKind::sgd ? 5 : 7;
  return roofline_us(model, {0, streams * static_cast<double>(bytes)}, model.peak_tflops);
}

}  // namespace ff
