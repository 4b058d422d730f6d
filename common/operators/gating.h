// Which tokens go to which experts (GShard: Lepikhin et al. 2020, arXiv 2006.16668, algorithm 1).
#pragma once

#include "common/operators/operator.h"

namespace ff {

// logits [batch, length, experts] ->
//   "slot"   (i32) [batch, length, top_k]: where each choice of a token goes (Routing), or -1
//   "weight" [batch, length, top_k]: with which the experts' results count; 0 where the slot is -1. The softmax gates
//            of the choices, divided by their sum if `normalized`
// Consecutive samples form groups, which are gated independently and so are never split.
class TopKGating : public OperatorDefinition {
 public:
  bool kernel_names_operator() const override { return true; }
  explicit TopKGating(const OperatorRequest& request);

  Block output_block(int output, const Block& part) const override;
  Block input_block(int input, const Block& part) const override;
  std::string attribute_text() const override;
  bool backward_reads_output() const override { return true; }
  Work forward_work(const Block& part) const override;
  Work backward_work(const Block& part, bool input_gradients) const override;

  int64_t top_k;
  bool random_routing, normalized;
  Routing routing;
  int64_t group_tokens;
};

// logits [batch, length, experts] -> "loss" [batch / group_samples]: small where the experts of a group get equally
// many tokens. Of each group (1 / experts) * sum over experts of (share of the tokens whose first choice it is, before
// any capacity) * (mean of its gate); the gradient flows through the mean gates.
class LoadBalancingLoss : public OperatorDefinition {
 public:
  bool kernel_names_operator() const override { return true; }
  explicit LoadBalancingLoss(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return part; }
  Block input_block(int input, const Block& part) const override;
  std::string attribute_text() const override { return "group_samples=" + std::to_string(group_samples); }
  bool is_loss() const override { return true; }
  double loss_weight() const override { return weight; }
  bool backward_reads_input(int) const override { return false; }
  // gates and their weighted sum of each token, tokens of each expert in each group
  int64_t workspace_bytes(const Block& part) const override {
    return part.volume() * (group_tokens * (experts + 1) + experts) * element_bytes;
  }
  Work forward_work(const Block& part) const override;
  Work backward_work(const Block& part, bool input_gradients) const override;

  int64_t experts, group_samples, group_tokens;
  double weight;
};

}  // namespace ff
