#include "search/cost/analytic.h"

#include <algorithm>

namespace ff {
namespace {

double roofline_us(const DeviceModel& model, const Work& work) {
  return std::max(
      {model.launch_us, work.flops / (model.peak_tflops * 1e6), work.bytes / (model.memory_gb_per_s * 1e3)});
}

}  // namespace

double analytic_kernel_us(const DeviceModel& model, const OperatorDefinition& definition, const Block& part,
                          Phase phase, KernelUse use) {
  switch (phase) {
    case Phase::forward_statistics: return roofline_us(model, definition.statistics_work(part, false));
    case Phase::forward: return roofline_us(model, definition.forward_work(part));
    case Phase::backward_statistics: return roofline_us(model, definition.statistics_work(part, true));
    case Phase::backward: {
      Work work = definition.backward_work(part, use.input_gradients);
      if (use.shared_bytes > 0)  // gradients are read to be added to
        work.bytes += definition.gradient_addition_bytes(part);
      return roofline_us(model, work);
    }
  }
  return 0;
}

double analytic_copy_us(const DeviceModel& model, int64_t bytes) {
  return roofline_us(model, {0, 2.0 * static_cast<double>(bytes)});
}

double analytic_update_us(const DeviceModel& model, int64_t bytes) {
  return roofline_us(model, {0, 5.0 * static_cast<double>(bytes)});
}

}  // namespace ff
