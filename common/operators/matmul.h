#pragma once

#include "common/operators/operator.h"

namespace ff {

// Sample by sample: a [batch, m, k] times b [batch, k, n] (transposed: [batch, n, k]), times `scale` -> [batch, m, n].
// S, length (m) and channel (n) A, inner (k) R.
class Matmul : public OperatorDefinition {
 public:
  explicit Matmul(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return {part[0], part[1], part[2]}; }
  Block input_block(int input, const Block& part) const override;
  std::string attribute_text() const override;
  Work forward_work(const Block& part) const override;
  Work backward_work(const Block& part, bool input_gradients) const override;
  bool position_matters(int dimension) const override {
    return dimensions_[dimension].kind == DimensionKind::attribute;
  }

  int64_t inner;  // k
  bool transposed;
  double scale;
};

}  // namespace ff
