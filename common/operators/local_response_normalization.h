#pragma once

#include "common/operators/operator.h"

namespace ff {

// Across channels (Krizhevsky et al. 2012, section 3.3):
//   output_c = input_c / (bias + alpha / size * sum over the `size` channels around c of input^2)^beta.
// Every channel reads its neighbours, so the channel is not split.
class LocalResponseNormalization : public OperatorDefinition {
 public:
  explicit LocalResponseNormalization(const OperatorRequest& request);

  Block output_block(int output, const Block& part) const override;
  Block input_block(int input, const Block& part) const override;
  std::string attribute_text() const override;
  int64_t workspace_bytes(const Block& part) const override {
    return 2 * output_block(0, part).volume() * element_bytes;
  }
  Work forward_work(const Block& part) const override;
  Work backward_work(const Block& part, bool input_gradients) const override;

  int64_t channels;
  int64_t size;
  double alpha, beta, bias;
};

}  // namespace ff
