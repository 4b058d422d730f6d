#include "common/kernels/batched_updates.h"

namespace ff {

int64_t update_batch_elements(const Backend& backend) {
  const auto* const batched = dynamic_cast<const BatchedUpdates*>(&backend);
  return batched ? batched->update_batch_elements() : 0;
}

void update_all(Backend& backend, std::span<const UpdateOperands> operands, const OptimizerStep& step) {
  if (auto* const batched = dynamic_cast<BatchedUpdates*>(&backend)) return batched->update_all(operands, step);
  for (const UpdateOperands& one : operands)
    backend.update(one.parameter, one.gradient, one.states, one.elements, step);
}

double sum_of_all_squares(Backend& backend, std::span<const ElementRun> runs) {
  if (auto* const batched = dynamic_cast<BatchedUpdates*>(&backend)) return batched->sum_of_all_squares(runs);
  double sum = 0;
  for (const ElementRun& run : runs) sum += backend.sum_of_squares(run.values, run.elements);
  return sum;
}

void scale_all(Backend& backend, std::span<const ElementRun> runs, float factor) {
  if (auto* const batched = dynamic_cast<BatchedUpdates*>(&backend)) return batched->scale_all(runs, factor);
  for (const ElementRun& run : runs) backend.scale(run.values, run.elements, factor);
}

}  // namespace ff
