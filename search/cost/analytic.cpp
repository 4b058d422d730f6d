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

// In bf16, where the device model has efficiencies of products or attention. Products as microbenchmarks of them are
// described (KernelEfficiency::Products), one after the other.
double products_us(const DeviceModel& model, const OperatorDefinition& definition, const Block& part, const Work& work,
                   bool backward, const FrameworkConventions& conventions) {
  const double tflops = model.peak_bf16_tflops;
  const AttentionWork attention = definition.attention_work(part, backward);
  const KernelEfficiency::Products known = model.efficiency.products.value_or(KernelEfficiency::Products{0, 1, 1e300});
  const int products = definition.product_count() * (backward ? 2 : 1);
  const double us = products * known.launch_us + (work.flops - attention.flops) / (tflops * known.operations * 1e6) +
                    work.bytes / (model.memory_gb_per_s * known.bytes * 1e3);
  if (attention.flops == 0) return us;
  if (!conventions.stored_attention) return us + attention_us(model, attention, tflops);
  // Two products forward and five backward, of which one computes the scores again.
  const double scores = attention.flops / (backward ? 5 : 2) / 2 / static_cast<double>(attention.head_channels);
  const double products_flops = attention.flops * (backward ? 0.8 : 1);
  const double bytes = scores * (backward ? stored_backward_bytes : stored_forward_bytes);
  return us + products_flops / (tflops * known.operations * 1e6) +
         bytes / (model.memory_gb_per_s * model.efficiency.memory * 1e3);
}

double kernel_us(const DeviceModel& model, const OperatorDefinition& definition, const Block& part, const Work& work,
                 bool backward, double tflops, Precision precision, const FrameworkConventions& conventions) {
  const KernelEfficiency& known = model.efficiency;
  if (conventions.unfused_loss && definition.is_loss() && definition.counts_correct()) {  // classes, by their logits
    const double logits = static_cast<double>(definition.input_block(0, part).volume());
    return slowest_us(model, 0, logits * (backward ? unfused_loss_backward_bytes : unfused_loss_forward_bytes));
  }
  const bool one_rate = !known.products && known.attention.empty() && !conventions.stored_attention;
  if (precision != Precision::bf16 || !computes_products(definition.type()) || one_rate)
    return roofline_us(model, work, tflops);
  return slowest_us(model, products_us(model, definition, part, work, backward, conventions), work.bytes);
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
                          Phase phase, KernelUse use, Precision precision, const FrameworkConventions& conventions) {
  const double tflops = peak_tflops(model, definition.type(), precision);
  switch (phase) {
    case Phase::forward_statistics: return roofline_us(model, definition.statistics_work(part, false), tflops);
    case Phase::forward:
      return kernel_us(model, definition, part, definition.forward_work(part), false, tflops, precision, conventions);
    case Phase::backward_statistics: return roofline_us(model, definition.statistics_work(part, true), tflops);
    case Phase::backward: {
      Work work = definition.backward_work(part, use.input_gradients);
      if (use.shared_bytes > 0)  // gradients are read to be added to
        work.bytes += definition.gradient_addition_bytes(part);
      return kernel_us(model, definition, part, work, true, tflops, precision, conventions);
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
