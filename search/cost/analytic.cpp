#include "search/cost/analytic.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "common/errors.h"

namespace ff {
namespace {

double slowest_us(const DeviceModel& model, double compute_us, double bytes) {
  return std::max({model.launch_us, compute_us, bytes / (model.memory_gb_per_s * model.efficiency.memory * 1e3)});
}
double roofline_us(const DeviceModel& model, const Work& work, double tflops) {
  return slowest_us(model, work.flops / (tflops * 1e6), work.bytes);
}

// Of the nearest number of channels that is known, by their logarithm. Half of what a causal mask leaves out is never
// computed.
double attention_us(const DeviceModel& model, const AttentionWork& work, double tflops) {
  const KernelEfficiency::Attention* nearest = nullptr;
  const auto distance = [&](const KernelEfficiency::Attention& one) {
    return std::abs(std::log(static_cast<double>(one.head_channels) / static_cast<double>(work.head_channels)));
  };
  for (const KernelEfficiency::Attention& one : model.efficiency.attention)
    if (one.causal == work.causal && (!nearest || distance(one) < distance(*nearest))) nearest = &one;
  if (!nearest) return work.flops / (tflops * 1e6);
  const double share = KernelEfficiency::share(nearest->by_length, static_cast<double>(work.length));
  return work.flops * (work.causal ? 0.5 : 1) / (tflops * share * 1e6);
}

// In bf16, where the device model has efficiencies of products and attention: every product at its own rate.
double products_us(const DeviceModel& model, const OperatorDefinition& definition, const Block& part, const Work& work,
                   bool backward) {
  const double tflops = model.peak_bf16_tflops;
  const AttentionWork attention = definition.attention_work(part, backward);
  const double in_forward = definition.forward_work(part).flops - definition.attention_work(part, false).flops;
  const double gflop = in_forward / definition.products() / 1e9;
  const double share = KernelEfficiency::share(model.efficiency.products, gflop);
  const double us = (work.flops - attention.flops) / (tflops * share * 1e6);
  return attention.flops > 0 ? us + attention_us(model, attention, tflops) : us;
}

double kernel_us(const DeviceModel& model, const OperatorDefinition& definition, const Block& part, const Work& work,
                 bool backward, double tflops, Precision precision) {
  const KernelEfficiency& known = model.efficiency;
  if (precision != Precision::bf16 || !computes_products(definition.type()) ||
      (known.products.empty() && known.attention.empty()))
    return roofline_us(model, work, tflops);
  return slowest_us(model, products_us(model, definition, part, work, backward), work.bytes);
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
    case Phase::forward:
      return kernel_us(model, definition, part, definition.forward_work(part), false, tflops, precision);
    case Phase::backward_statistics: return roofline_us(model, definition.statistics_work(part, true), tflops);
    case Phase::backward: {
      Work work = definition.backward_work(part, use.input_gradients);
      if (use.shared_bytes > 0)  // gradients are read to be added to
        work.bytes += definition.gradient_addition_bytes(part);
      return kernel_us(model, definition, part, work, true, tflops, precision);
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
