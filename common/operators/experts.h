// Tokens to their experts, the experts' layers, and back (GShard: Lepikhin et al. 2020, arXiv 2006.16668, algorithm 2).
// What the experts work on is [expert, group * capacity, channel], by expert first, so that the rows of each expert are
// the rows of one matrix. Tokens are moved by index: no product with a mask.
#pragma once

#include "common/operators/operator.h"
#include "common/operators/routing.h"

namespace ff {

// What dispatch and combine share: slots of top_k_gating, and parts of whole groups.
class Routed : public OperatorDefinition {
 public:
  bool kernel_names_operator() const override { return true; }
  int64_t index_limit(int) const override { return routing.slots(); }
  bool position_matters(int) const override { return false; }
  std::string attribute_text() const override;

  // Whose rows a part has.
  virtual Interval experts(const Block&) const { return {0, routing.experts}; }
  // Of the groups in a part.
  ExpertRows rows(const Block& part) const { return {part[0].size(), group_tokens, routing.capacity}; }
  int64_t tokens(const Block& part) const { return part[0].size() * group_tokens; }

  Routing routing;
  int64_t top_k, group_tokens;

 protected:
  // Which input has the slots?
  Routed(const OperatorRequest& request, size_t inputs, size_t slot_input);

  Block token_block(const Block& part, int64_t choices) const;    // [batch, length, choices]
  Block token_block(const Block& part, Interval channels) const;  // [batch, length, channels]
  Block expert_block(const Block& part) const;                    // [experts, groups * capacity, channels]
  void split_by_group(int64_t channels);

  int64_t batch_, length_;
};

// x [batch, length, channels] and slots -> [experts, groups * capacity, channels]; places without a token are zeros.
class Dispatch : public Routed {
 public:
  explicit Dispatch(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return expert_block(part); }
  Block input_block(int input, const Block& part) const override {
    return input == 0 ? token_block(part, part[1]) : token_block(part, top_k);
  }
  bool backward_reads_input(int input) const override { return input == 1; }
  Work forward_work(const Block& part) const override { return {0, touched_bytes(part)}; }
  Work backward_work(const Block& part, bool input_gradients) const override;
};

// rows [experts, groups * capacity, channels], slots and weights -> [batch, length, channels]: of each token the sum of
// its slots' rows times its weights; zeros where it has none. Split by expert, parts have shares of that sum.
class Combine : public Routed {
 public:
  explicit Combine(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return token_block(part, part[1]); }
  Block input_block(int input, const Block& part) const override {
    return input == 0 ? expert_block(part) : token_block(part, top_k);
  }
  Interval experts(const Block& part) const override { return part[2]; }
  Work forward_work(const Block& part) const override;
  Work backward_work(const Block& part, bool input_gradients) const override;
  bool backward_reads_input(int input) const override { return input != 0 || !weighted_by_experts; }

  // In predictions of frameworks whose experts multiply tokens by their weights (search/cost/conventions.h): the rows
  // come weighted, and backward has no use for them.
  bool weighted_by_experts = false;

 private:
  double moved_elements(const Block& part) const;  // of rows, if the experts get equally many
};

// A linear layer of each expert: [experts, rows, in] -> [experts, rows, out], weight [experts, out, in], bias [experts,
// out]. A part is [sample, expert, channel, in_channel]: rows, which share the parameters, come first, as the sample
// does elsewhere; in_channel as in a linear.
class ExpertLinear : public OperatorDefinition {
 public:
  bool kernel_names_operator() const override { return true; }
  explicit ExpertLinear(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return {part[1], part[0], part[2]}; }
  Block input_block(int, const Block& part) const override { return {part[1], part[0], in_channels(part)}; }
  Block parameter_block(int parameter, const Block& part) const override;
  bool position_matters(int dimension) const override {
    return bias && dimensions_[dimension].kind == DimensionKind::reduction;
  }
  std::string attribute_text() const override;
  std::string signature(const Block& part) const override;
  bool backward_reads_output() const override { return relu; }
  int64_t workspace_bytes(const Block& part) const override { return relu ? part.volume() * element_bytes : 0; }
  Work forward_work(const Block& part) const override;
  Work backward_work(const Block& part, bool input_gradients) const override;
  // Which of the input's features the part multiplies; does it add the bias?
  Interval in_channels(const Block& part) const { return relu ? Interval{0, in_features} : part[3]; }
  bool adds_bias(const Block& part) const { return bias && in_channels(part).begin == 0; }

  int64_t in_features, out_features;
  bool bias;
  bool relu;  // fused: output = max(0, product)
};

}  // namespace ff
