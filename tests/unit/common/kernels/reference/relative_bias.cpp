#include "common/operators/relative_bias.h"

#include "tests/unit/common/kernels/reference/taped.h"

namespace ff::reference {
namespace {

// The row by counting, not by search.
int64_t row_of(const RelativeBias& bias, int64_t query, int64_t key) {
  using Directions = RelativeBias::Directions;
  int64_t row = bias.directions == Directions::both && key > query ? bias.buckets / 2 : 0, distance = query - key;
  if (bias.directions == Directions::with_sign) distance = key - query;
  else if (key > query) distance = bias.directions == Directions::both ? key - query : 0;
  for (const int64_t boundary : bias.boundaries) row += boundary <= distance;
  return row;
}

void relative_bias(const RelativeBias& bias, Operation& o) {
  for (int64_t n = 0; n < o.outputs[0].size(0); ++n)
    for (int64_t h = 0; h < o.outputs[0].size(1); ++h)
      for (int64_t q = 0; q < o.outputs[0].size(2); ++q)
        for (int64_t k = 0; k < o.outputs[0].size(3); ++k)
          o.outputs[0](n, h, q, k) = o.inputs[0](n, h, q, k) + o.parameters[0](row_of(bias, q, k), h);
}

}  // namespace

Reference make_relative_bias_reference(const OperatorDefinition& definition, const Randomness&) {
  return taped<RelativeBias>(definition, relative_bias);
}

}  // namespace ff::reference
