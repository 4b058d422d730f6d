// The optimizer's work on many parameters at once. A GPU does it with one launch, which takes longer than the work of a
// small parameter. Other backends do one parameter after the other.
#pragma once

#include <span>

#include "common/kernels/backend.h"

namespace ff {

// As Backend::update has them.
struct UpdateOperands {
  float* parameter;
  const float* gradient;
  OptimizerStates states;
  int64_t elements;
};

struct ElementRun {
  float* values;
  int64_t elements;
};

// What a backend may have besides Backend::update, sum_of_squares and scale: the same for all of these, which do not
// overlap.
class BatchedUpdates {
 public:
  virtual ~BatchedUpdates() = default;
  // Updates are collected until they have so many elements.
  virtual int64_t update_batch_elements() const = 0;
  virtual void update_all(std::span<const UpdateOperands> operands, const OptimizerStep& step) = 0;
  virtual double sum_of_all_squares(std::span<const ElementRun> runs) = 0;
  virtual void scale_all(std::span<const ElementRun> runs, float factor) = 0;
};

// With any backend; update_batch_elements is 0 where each update is submitted at its place.
int64_t update_batch_elements(const Backend& backend);
void update_all(Backend& backend, std::span<const UpdateOperands> operands, const OptimizerStep& step);
double sum_of_all_squares(Backend& backend, std::span<const ElementRun> runs);
void scale_all(Backend& backend, std::span<const ElementRun> runs, float factor);

}  // namespace ff
