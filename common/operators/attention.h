#pragma once

#include "common/operators/operator.h"

namespace ff {

// Of a recurrent decoder over its encoder's states (Luong et al. 2015, arXiv 1508.04025, equations 5, 7 and 8,
// "general" score):
//   query [batch, features], states [batch, length, channels] -> output [batch, out_features]
//   weights = softmax over the positions of  query score state;  context = sum of weights * states;  output =
//                                            tanh(combine [context; query])
// score [features, channels], combine [out_features, channels + features]. A part of the outputs computes the context
// anew.
class Attention : public OperatorDefinition {
 public:
  explicit Attention(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return part; }
  Block input_block(int input, const Block& part) const override;
  Block parameter_block(int parameter, const Block& part) const override;
  bool backward_reads_output() const override { return true; }
  int64_t workspace_bytes(const Block& part) const override;
  Work forward_work(const Block& part) const override;
  Work backward_work(const Block& part, bool input_gradients) const override;

  int64_t features, length, channels, out_features;
};

// Scaled dot-product attention of a sequence to itself (Vaswani et al. 2017, arXiv 1706.03762, section 3.2), with the
// projections to queries, keys and values: [batch, length, channels] -> the same. weight [3, channels, channels], bias
// [3, channels]. A part is [sample, head]; the heads' channels lie together.
class MultiHeadAttention : public OperatorDefinition {
 public:
  explicit MultiHeadAttention(const OperatorRequest& request);

  Block output_block(int output, const Block& part) const override;
  Block input_block(int input, const Block& part) const override;
  Block parameter_block(int parameter, const Block& part) const override;
  std::string attribute_text() const override;
  int64_t workspace_bytes(const Block& part) const override;
  Work forward_work(const Block& part) const override;
  Work backward_work(const Block& part, bool input_gradients) const override;

  int64_t length, channels, heads, head_channels;
  bool causal;
};

}  // namespace ff
