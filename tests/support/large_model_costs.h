// What large transformers are planned with.
#pragma once

#include "search/problem_files.h"

namespace ff {

inline CostOptions analytic_bf16_adamw() {
  CostOptions costs;
  costs.mode = CostMode::analytic;
  costs.precision = Precision::bf16;
  costs.optimizer.kind = "adamw";
  return costs;
}

}  // namespace ff
