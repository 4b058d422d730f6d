#include "search/cost/analytic.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <optional>

#include "common/errors.h"
#include "common/operators/attention.h"
#include "common/operators/elementwise.h"

namespace ff {
namespace {

// A number as people read it: 3 digits.
std::string digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

Elementwise::GateKernel gate_kernel_of(const OperatorDefinition& definition) {
  const auto* elementwise = dynamic_cast<const Elementwise*>(&definition);
  return elementwise ? elementwise->gate_kernel : Elementwise::GateKernel::none;
}

// One kernel on one model of device. With `how` each term says where it comes from.
class AnalyticKernel {
 public:
  AnalyticKernel(const DeviceModel& model, const FrameworkConventions& conventions, std::string* how,
                 const KernelUse& use = {})
      : model_(model), known_(model.efficiency), conventions_(conventions), how_(how), use_(use) {}

  double roofline_us(const Work& work, double tflops, std::optional<double> memory_share = {}) const {
    const double compute_us = work.flops / (tflops * 1e6);
    if (work.flops > 0)
      say(compute_us, [&] { return digits(work.flops) + " operations at " + digits(tflops) + " TFLOP/s"; });
    return launched_us(slowest_us(compute_us, work.bytes, memory_share.value_or(known_.memory)));
  }

  double kernel_us(const OperatorDefinition& definition, const Block& part, const Work& work, bool backward,
                   bool input_gradients, double tflops, Precision precision) const {
    if (gate_kernel_of(definition) == Elementwise::GateKernel::activation) {
      say(0, [] { return std::string("in the kernel of the gate's product"); });
      return 0;
    }
    if (definition.is_loss() && definition.counts_correct()) {  // of classes, by their logits
      const double logits = static_cast<double>(logits_of_loss(definition, part, conventions_));
      const double logged = backward ? 0 : conventions_.logged_losses * unfused_loss_forward_bytes;
      const double unfused = backward ? unfused_loss_backward_bytes : unfused_loss_forward_bytes;
      if (conventions_.unfused_loss) return launched_us(slowest_us(0, logits * (unfused + logged)));
      return roofline_us({work.flops, work.bytes + logits * logged}, tflops);
    }
    if (is_norm(definition) && conventions_.autograd_copies) return norm_us(definition, part, work, backward, tflops);
    const bool products = computes_products(definition.type());
    const bool one_rate = !use_.fp8 && !known_.products && known_.attention.empty() && !conventions_.stored_attention;
    if (precision != Precision::bf16 || !products || one_rate) {
      const double times = products ? 1 : length_replication(definition, part, conventions_);
      return roofline_us({work.flops * times, work.bytes * times}, tflops);
    }
    return slowest_us(products_us(definition, part, work, backward, input_gradients), work.bytes);
  }

 private:
  // `text` is called only where terms are asked for: numbers as text would take longer than the model.
  void say(double us, const auto& text) const {
    if (how_) *how_ += (how_->empty() ? "" : "; ") + text() + ": " + digits(us) + " us";
  }

  // With what the host spends on so many kernels, where it waits for each.
  double launched_us(double us, int kernels = 1) const {
    if (!conventions_.blocking_launches) return us;
    const double host_us = kernels * host_us_of_kernel;
    say(host_us, [&] {
      return kernels == 1 ? std::string("a launch that blocks") : std::to_string(kernels) + " launches that block";
    });
    return us + host_us;
  }

  double slowest_us(double compute_us, double bytes) const { return slowest_us(compute_us, bytes, known_.memory); }
  double slowest_us(double compute_us, double bytes, double share) const {
    const double memory_us = bytes / (model_.memory_gb_per_s * share * 1e3);
    say(memory_us, [&] {
      return digits(bytes) + " bytes at " + digits(share) + " of " + digits(model_.memory_gb_per_s) + " GB/s";
    });
    if (model_.launch_us > std::max(compute_us, memory_us)) say(model_.launch_us, [] { return std::string("launch"); });
    return std::max({model_.launch_us, compute_us, memory_us});
  }

  // Of the nearest number of channels that is known, by their logarithm. Half of what a causal mask leaves out is never
  // computed.
  double attention_us(const AttentionWork& work, bool backward) const {
    const KernelEfficiency::Attention* nearest = nullptr;
    const auto distance = [&](const KernelEfficiency::Attention& one) {
      return std::abs(std::log(static_cast<double>(one.head_channels) / static_cast<double>(work.head_channels))) +
             100 * (2 * std::abs(one.generation - conventions_.flash_attention) +
                    (one.triton == conventions_.triton_attention ? 0 : 1) +
                    (one.cudnn == conventions_.cudnn_attention ? 0 : 1));
    };
    for (const KernelEfficiency::Attention& one : known_.attention)
      if (one.causal == work.causal && (!nearest || distance(one) < distance(*nearest))) nearest = &one;
    const double share = (nearest ? nearest->share_of(static_cast<double>(work.length), backward) : 1) / known_.slowest;
    const double flops = work.flops * (nearest && work.causal ? 0.5 : 1);
    const double us = flops / (model_.peak_bf16_tflops * share * 1e6);
    say(us, [&] {
      return "attention, " + digits(flops) + " operations at " + digits(share) + " (length " +
             std::to_string(work.length) +
             (!nearest         ? ""
              : nearest->cudnn ? ", cuDNN"
                               : ", FlashAttention-" + std::to_string(nearest->generation)) +
             (nearest && nearest->triton ? " in Triton" : "") + ") of " + digits(model_.peak_bf16_tflops) + " TFLOP/s";
    });
    return launched_us(us);
  }

  // A product with weights by its shape: `outputs` sums. In fp8 all products read their inputs in the same layout.
  double product_us(double flops, double outputs) const {
    return use_.fp8 ? any_product_us(flops, outputs, rate_in_fp8(), "product in fp8")
                    : any_product_us(flops, outputs, 1, "product");
  }

  // The gradients of so many parameters, which may be added to those of other micro-batches.
  double gradients_product_us(double flops, double parameters) const {
    if (conventions_.added_by_products_bytes == 0 || !known_.products) return product_us(flops, parameters);
    const double us = use_.fp8 ? product_us(flops, parameters)
                               : any_product_us(flops, parameters, known_.products->accumulating, "product");
    const double bytes = conventions_.added_by_products_bytes * parameters;
    const double exposed_us = known_.products->exposed_accumulation * bytes / (model_.memory_gb_per_s * 1e3);
    if (exposed_us > 0)
      say(exposed_us, [&] {
        return digits(known_.products->exposed_accumulation) + " of " + digits(bytes) +
               " bytes of sums of gradients that the product reads and writes";
      });
    return us + exposed_us;
  }

  // Over that in bf16.
  double rate_in_fp8() const {
    if (known_.products && known_.products->fp8 > 0) return known_.products->fp8;
    throw InputError("fp8=on: device model \"" + model_.name +
                     "\" has no rate of products in fp8 (\"efficiency\", \"products\", \"fp8\")");
  }

  // `times`: the rate of products of its shape. `products`: so many together.
  double any_product_us(double flops, double outputs, double times, const char* what, int products = 1) const {
    const double depth = flops / 2 / outputs;
    const double share =
        (known_.products ? known_.products->share(depth, outputs) * times : 1) * known_.sustained / known_.slowest;
    const double us = flops / (model_.peak_bf16_tflops * share * 1e6);
    say(us, [&] {
      return std::string(what) + ", " + digits(outputs) + " sums of " + digits(depth) + " terms at " + digits(share) +
             " of " + digits(model_.peak_bf16_tflops) + " TFLOP/s";
    });
    return launched_us(us, products);
  }

  // Each output is a sum over the channels of the input.
  double forward_products_us(const OperatorDefinition& definition, const Block& part, double flops) const {
    const Block input = definition.input_block(0, part);
    const double channels = static_cast<double>(input[input.rank() - 1].size());
    return product_us(flops, is_projection(definition)
                                 ? flops / 2 / channels
                                 : static_cast<double>(definition.output_block(0, part).volume()));
  }

  // Gradients of inputs are as many sums as the input has elements, and those of parameters as many as these have; each
  // of the two takes half of the operations.
  double backward_products_us(const OperatorDefinition& definition, const Block& part, double flops,
                              bool input_gradients) const {
    double parameters = 0;
    for (size_t p = 0; p < definition.parameters().size(); ++p)
      parameters += static_cast<double>(definition.parameter_block(static_cast<int>(p), part).volume());
    if (!input_gradients) return gradients_product_us(flops, std::max(parameters, 1.0));
    const double first = product_us(flops / 2, static_cast<double>(definition.input_block(0, part).volume()));
    if (parameters > 0) return first + gradients_product_us(flops / 2, parameters);
    return first + product_us(flops / 2, static_cast<double>(definition.input_block(1, part).volume()));
  }

  double products_us(const OperatorDefinition& definition, const Block& part, const Work& work, bool backward,
                     bool input_gradients) const {
    const AttentionWork attention = definition.attention_work(part, backward);
    const double flops = work.flops - attention.flops;
    double us = backward ? backward_products_us(definition, part, flops, input_gradients) +
                               bias_gradients_us(definition, part, flops, input_gradients) +
                               accumulation_us(definition, part)
                         : forward_products_us(definition, part, flops);
    if (use_.fp8) us += fp8_conversions_us(definition, part, flops, backward, input_gradients);
    if (attention.flops == 0) return us;
    if (backward) us += joined_gradients_us(definition, part, flops, input_gradients) + keys_again_us(definition, part);
    us += moved_us(framework_attention_bytes(definition, part, backward, conventions_),
                   "queries, keys, values and outputs gathered, scattered or turned");
    if (!conventions_.stored_attention) return us + attention_us(attention, backward);
    // Two products forward and five backward, of which one computes the scores again. Each has as many outputs as there
    // are scores, or reads them.
    const double scores = attention.flops / (backward ? 5 : 2) / 2 / static_cast<double>(attention.head_channels);
    const bool again = backward && conventions_.recomputes_attention;
    const double bytes =
        scores * ((backward ? stored_backward_bytes : stored_forward_bytes) + (again ? stored_forward_bytes : 0));
    const double memory_us = moved_us(bytes, "stored probabilities");
    const int products = backward ? (again ? 6 : 4) : 2;
    return us + any_product_us(attention.flops * products / (backward ? 5 : 2), scores, 1, "product", products) +
           memory_us;
  }

  double norm_us(const OperatorDefinition& definition, const Block& part, const Work& work, bool backward,
                 double tflops) const {
    const double times = length_replication(definition, part, conventions_);
    const double elements = static_cast<double>(definition.input_block(0, part).volume()) * times;
    if (conventions_.eager_norms && definition.type() == "rms_norm")
      return moved_us(elements * (backward ? eager_norm_backward_bytes : eager_norm_forward_bytes),
                      "RMS norm by elementwise kernels");
    double bytes = work.bytes * times, copied = 0;
    // The gradients of parameters are a kernel of their own, which reads two arrays.
    if (backward) bytes += 2.0 * elements * static_cast<double>(bytes_of(definition.inputs()[0].type, int64_t{1}));
    if (conventions_.norms_in_f32) {
      bytes += elements * (backward ? f32_norm_backward_bytes : f32_norm_forward_bytes);
      copied += elements * norm_copy_bytes;
    }
    if (conventions_.recomputes_norms && backward) {
      bytes += elements * recomputed_norm_bytes;
      copied += elements * (norm_copy_bytes + recomputed_addition_bytes);
    }
    return roofline_us({work.flops * times, bytes}, tflops, known_.norms) +
           moved_us(copied, "copies of the norm's input");
  }

  // Of a kernel that only moves bytes.
  double moved_us(double bytes, const char* what) const {
    if (bytes == 0) return 0;
    const double us = bytes / (model_.memory_gb_per_s * known_.memory * 1e3);
    say(us, [&] { return std::string(what) + ", " + digits(bytes) + " bytes"; });
    return launched_us(us);
  }

  // Of products with weights. `flops`: theirs, backward.
  static double output_elements(const OperatorDefinition& definition, const Block& part, double flops,
                                bool input_gradients) {
    const Block input = definition.input_block(0, part);
    return flops / (input_gradients ? 4 : 2) / static_cast<double>(input[input.rank() - 1].size());
  }

  static double output_bytes(const OperatorDefinition& definition, const Block& part, double flops,
                             bool input_gradients) {
    return output_elements(definition, part, flops, input_gradients) *
           static_cast<double>(bytes_of(definition.outputs()[0].type, int64_t{1}));
  }

  // To fp8: of the input and the weights forward, of the gradient of the output backward.
  double fp8_conversions_us(const OperatorDefinition& definition, const Block& part, double flops, bool backward,
                            bool input_gradients) const {
    if (backward) {
      const double elements = output_elements(definition, part, flops, input_gradients);
      return moved_us(elements * fp8_conversion_bytes, "gradient of the output to fp8");
    }
    double weights = 0;
    for (const int p : definition.parameters().indices())
      if (const Block block = definition.parameter_block(p, part); block.rank() > 1)
        weights += static_cast<double>(block.volume());
    return moved_us(static_cast<double>(definition.input_block(0, part).volume()) * use_.fp8_input_bytes,
                    "input to fp8") +
           moved_us(weights * conventions_.fp8_weight_bytes, "weights to fp8");
  }

  double keys_again_us(const OperatorDefinition& definition, const Block& part) const {
    const auto* attention = dynamic_cast<const MultiHeadAttention*>(&definition);
    if (!conventions_.recomputes_keys || !attention) return 0;
    const Block input = definition.input_block(0, part);
    const double keys = static_cast<double>(attention->projected(part).key_elements());
    return product_us(2 * keys * static_cast<double>(input[input.rank() - 1].size()), keys);
  }

  // Of queries, keys and values: read and written once more.
  double joined_gradients_us(const OperatorDefinition& definition, const Block& part, double flops,
                             bool input_gradients) const {
    if (!conventions_.autograd_copies) return 0;
    return moved_us(2 * output_bytes(definition, part, flops, input_gradients),
                    "gradients of queries, keys and values into one array");
  }

  double accumulation_us(const OperatorDefinition& definition, const Block& part) const {
    if (conventions_.accumulated_bytes == 0) return 0;
    double parameters = 0;
    for (int p = 0; p < definition.parameters().count(); ++p)
      parameters += static_cast<double>(definition.parameter_block(p, part).volume());
    return moved_us(parameters * conventions_.accumulated_bytes, "gradients added to other micro-batches'");
  }

  double bias_gradients_us(const OperatorDefinition& definition, const Block& part, double flops,
                           bool input_gradients) const {
    if (!conventions_.autograd_copies || !is_projection(definition)) return 0;
    bool biased = false;
    for (int p = 0; p < definition.parameters().count(); ++p)
      biased = biased ||
               (definition.parameters()[p].name.ends_with("bias") && definition.parameter_block(p, part).volume() > 0);
    return biased ? moved_us(output_bytes(definition, part, flops, input_gradients), "gradient of the bias") : 0;
  }

  const DeviceModel& model_;
  const KernelEfficiency& known_;
  const FrameworkConventions& conventions_;
  std::string* const how_;
  const KernelUse use_;
};

double peak_tflops(const DeviceModel& model, std::string_view type, Precision precision) {
  if (precision == Precision::fp32 || !computes_products(type)) return model.peak_tflops;
  const double peak = precision == Precision::tf32 ? model.peak_tf32_tflops : model.peak_bf16_tflops;
  if (peak > 0) return peak;
  const std::string name(to_string(precision));
  throw InputError("--precision " + name + ": device model \"" + model.name + "\" has no \"peak_" + name +
                   "_tflops\", which analytic costs of matrix products and convolutions need; add it to the topology, "
                   "give a profile that was measured with " +
                   name + ", or use --precision fp32");
}

}  // namespace

bool computes_products(std::string_view type) {
  constexpr std::string_view types[] = {"conv1d", "conv2d", "linear",       "lstm", "attention", "multi_head_attention",
                                        "matmul", "einsum", "expert_linear"};
  return std::find(std::begin(types), std::end(types), type) != std::end(types);
}

double analytic_kernel_us(const DeviceModel& model, const OperatorDefinition& definition, const Block& part,
                          Phase phase, KernelUse use, Precision precision, const FrameworkConventions& conventions,
                          std::string* how) {
  const AnalyticKernel kernel(model, conventions, how, use);
  const double tflops = peak_tflops(model, definition.type(), precision);
  switch (phase) {
    case Phase::forward_statistics: return kernel.roofline_us(definition.statistics_work(part, false), tflops);
    case Phase::forward:
      return kernel.kernel_us(definition, part, definition.forward_work(part), false, true, tflops, precision);
    case Phase::backward_statistics: return kernel.roofline_us(definition.statistics_work(part, true), tflops);
    case Phase::backward: {
      Work work = definition.backward_work(part, use.input_gradients);
      if (use.shared_bytes > 0)  // gradients are read to be added to
        work.bytes += definition.gradient_addition_bytes(part);
      if (definition.type() == "add" && conventions.autograd_copies) work.bytes = definition.forward_work(part).bytes;
      if (definition.type() == "mul") {
        const double array = definition.forward_work(part).bytes / 3;
        if (gate_kernel_of(definition) == Elementwise::GateKernel::product) work.bytes = (3 + 2) * array;
        else if (!conventions.fused_gates && conventions.autograd_copies)
          work.bytes = (2 * 3 + (conventions.joined_gates ? 4 : 0)) * array;
      }
      return kernel.kernel_us(definition, part, work, true, use.input_gradients, tflops, precision);
    }
  }
  return 0;
}

double analytic_copy_us(const DeviceModel& model, int64_t bytes) {
  return AnalyticKernel(model, {}, nullptr).roofline_us({0, 2.0 * static_cast<double>(bytes)}, model.peak_tflops);
}

double analytic_update_us(const DeviceModel& model, int64_t bytes, OptimizerKind optimizer,
                          const FrameworkConventions& conventions) {
  double streams = optimizer == OptimizerKind::sgd ? 5 : 7;
  if (optimizer != OptimizerKind::sgd && conventions.unfused_optimizer) streams = unfused_adam_streams;
  if (conventions.clips_gradients) streams += clipping_streams;
  streams += conventions.step_streams;
  return AnalyticKernel(model, conventions, nullptr)
      .roofline_us({0, streams * static_cast<double>(bytes)}, model.peak_tflops);
}

}  // namespace ff
