#include "common/operators/gating.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/kernels/cpu/kernels.h"
#include "common/operators/routing.h"
#include "common/philox.h"

namespace ff::cpu {
namespace {

class TopKGatingKernel : public Kernel {
 public:
  TopKGatingKernel(const TopKGating& gating, const KernelRequest& request)
      : top_k_(gating.top_k), experts_(gating.routing.experts), capacity_(gating.routing.capacity),
        group_tokens_(gating.group_tokens), groups_(request.part[0].size()),
        first_token_(request.part[0].begin * group_tokens_), random_(gating.random_routing),
        normalized_(gating.normalized), stream_(random_stream(request.seed, request.operator_name)),
        taken_(static_cast<size_t>(experts_)) {}

  void forward(const KernelArguments& arguments) override {
    const float* logits = static_cast<const float*>(arguments.inputs[0]);
    int32_t* slots = reinterpret_cast<int32_t*>(arguments.outputs[0]);
    float* weights = arguments.outputs[1];
    for (int64_t token = 0; token < groups_ * group_tokens_; ++token) {
      int32_t* experts = slots + token * top_k_;
      choose(logits + token * experts_, experts, weights + token * top_k_);
      if (random_ && arguments.training && !keeps_second(weights[token * 2 + 1], uniform(token, arguments.iteration)))
        experts[1] = -1;
    }
    for (int64_t group = 0; group < groups_; ++group)
      take_places(slots + group * group_tokens_ * top_k_, weights + group * group_tokens_ * top_k_);
  }

  // With the weights w and their gradients g, of which those of dropped choices are 0, the gradient of a chosen
  // expert's logit is w (g - sum of w g), of any other 0 - or, where the weights are softmax gates of all experts,
  // -gate * (sum of w g).
  void backward(const KernelArguments& arguments) override {
    float* result = arguments.input_gradients[0];
    if (!result) return;
    const float* logits = static_cast<const float*>(arguments.inputs[0]);
    const int32_t* slots = reinterpret_cast<const int32_t*>(arguments.outputs[0]);
    const float* gradients = arguments.output_gradients[1];
    std::memset(result, 0, static_cast<size_t>(groups_ * group_tokens_ * experts_) * sizeof(float));
    for (int64_t token = 0; token < groups_ * group_tokens_; ++token) {
      const float* of_token = logits + token * experts_;
      float* row = result + token * experts_;
      const int32_t* places = slots + token * top_k_;
      if (std::all_of(places, places + top_k_, [](int32_t slot) { return slot < 0; })) continue;
      int32_t chosen[most_choices];
      float weights[most_choices], sum = 0;
      const float scale = choose(of_token, chosen, weights);  // of exp(logit - largest): a gate
      const auto gradient = [&](int64_t k) { return places[k] < 0 ? 0.0f : gradients[token * top_k_ + k]; };
      for (int64_t k = 0; k < top_k_; ++k) sum += weights[k] * gradient(k);
      if (!normalized_)
        for (int64_t e = 0; e < experts_; ++e) row[e] = -sum * scale * std::exp(of_token[e] - of_token[chosen[0]]);
      for (int64_t k = 0; k < top_k_; ++k) row[chosen[k]] = weights[k] * (gradient(k) - sum);
    }
  }

  int64_t workspace_bytes() const override { return 0; }
  void set_part(const Block& part, const std::string&) override { first_token_ = part[0].begin * group_tokens_; }

 private:
  // Leaves the experts of a token's choices where their slots will be; returns the gate of the first choice, or, with
  // normalized weights, its weight.
  float choose(const float* logits, int32_t* experts, float* weights) const {
    ExpertChoice<float> chosen[most_choices];
    choose_experts(logits, experts_, top_k_, chosen);
    const float largest = chosen[0].logit;
    float sum = 0;
    for (int64_t k = 0; k < top_k_; ++k) {
      experts[k] = chosen[k].expert;
      sum += weights[k] = std::exp(chosen[k].logit - largest);
    }
    if (!normalized_) {
      sum = 0;
      for (int64_t e = 0; e < experts_; ++e) sum += std::exp(logits[e] - largest);
    }
    for (int64_t k = 0; k < top_k_; ++k) weights[k] /= sum;
    return 1 / sum;
  }

  float uniform(int64_t token, int64_t iteration) const {
    return uniform_at(stream_, static_cast<uint64_t>(first_token_ + token), static_cast<uint64_t>(iteration));
  }

  // Of a group: all first choices in the order of the tokens, then the second ones, and so on.
  void take_places(int32_t* slots, float* weights) {
    std::fill(taken_.begin(), taken_.end(), 0);
    for (int64_t choice = 0; choice < top_k_; ++choice)
      for (int64_t at = choice; at < group_tokens_ * top_k_; at += top_k_) {
        const int32_t expert = slots[at];
        const int64_t place = expert < 0 ? capacity_ : taken_[expert]++;
        slots[at] = place < capacity_ ? static_cast<int32_t>(expert * capacity_ + place) : -1;
        if (slots[at] < 0) weights[at] = 0;
      }
  }

  int64_t top_k_, experts_, capacity_, group_tokens_, groups_, first_token_;
  bool random_, normalized_;
  uint64_t stream_;
  Vector<int64_t> taken_;  // by expert: tokens of the group so far
};

// output = sum over the row of weights * values
FF_VECTORIZED float weighted_sum(const float* weights, const float* values, int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += weights[i] * values[i];
  return sum;
}

FF_VECTORIZED void weighted_differences(const float* weights, const float* values, float mean, float scale,
                                        int64_t count, float* result) {
  for (int64_t i = 0; i < count; ++i) result[i] = scale * values[i] * (weights[i] - mean);
}

class LoadBalancingLossKernel : public Kernel {
 public:
  LoadBalancingLossKernel(const Context& context, const LoadBalancingLoss& loss, const Block& part)
      : context_(context), experts_(loss.experts), group_tokens_(loss.group_tokens), groups_(part[0].size()),
        factor_(1 / (static_cast<double>(experts_) * static_cast<double>(group_tokens_) *
                     static_cast<double>(group_tokens_))),
        scale_(static_cast<float>(loss.weight / static_cast<double>(volume(loss.outputs()[0].shape)) * factor_)),
        softmax_(make_softmax(context, groups_ * group_tokens_, experts_)), gates_(groups_ * group_tokens_ * experts_),
        sums_(groups_ * group_tokens_), counts_(groups_ * experts_) {}

  void forward(const KernelArguments& arguments) override {
    context_.use_threads();
    const float* logits = static_cast<const float*>(arguments.inputs[0]);
    softmax_.run(context_, {{DNNL_ARG_SRC, logits}, {DNNL_ARG_DST, gates_.data()}});
    std::fill(counts_.begin(), counts_.end(), 0.0f);
    for (int64_t group = 0; group < groups_; ++group) {
      float* counts = counts_.data() + group * experts_;
      const int64_t first = group * group_tokens_, last = first + group_tokens_;
      for (int64_t token = first; token < last; ++token) {
        ExpertChoice<float> chosen;
        choose_experts(logits + token * experts_, experts_, 1, &chosen);
        counts[chosen.expert] += 1;
      }
      double sum = 0;
      for (int64_t token = first; token < last; ++token)
        sum += sums_[token] = weighted_sum(counts, gates_.data() + token * experts_, experts_);
      arguments.outputs[0][group] = static_cast<float>(sum * factor_);
    }
  }

  void backward(const KernelArguments& arguments) override {
    float* result = arguments.input_gradients[0];
    if (!result) return;
    for (int64_t token = 0; token < groups_ * group_tokens_; ++token)
      weighted_differences(counts_.data() + token / group_tokens_ * experts_, gates_.data() + token * experts_,
                           sums_[token], scale_, experts_, result + token * experts_);
  }

  int64_t workspace_bytes() const override {
    return static_cast<int64_t>((gates_.size() + sums_.size() + counts_.size()) * sizeof(float));
  }

 private:
  const Context& context_;
  int64_t experts_, group_tokens_, groups_;
  double factor_;  // of the sum over tokens and experts of count * gate: 1 / (experts * tokens^2)
  float scale_;    // of its gradient
  Primitive softmax_;
  Vector<float> gates_;   // [token, expert]
  Vector<float> sums_;    // [token]: over the experts, count * gate
  Vector<float> counts_;  // [group, expert]: tokens whose first choice it is
};

}  // namespace

std::unique_ptr<Kernel> make_top_k_gating_kernel(const Context&, const KernelRequest& request) {
  return std::make_unique<TopKGatingKernel>(dynamic_cast<const TopKGating&>(request.definition), request);
}
std::unique_ptr<Kernel> make_load_balancing_loss_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<LoadBalancingLossKernel>(context, dynamic_cast<const LoadBalancingLoss&>(request.definition),
                                                   request.part);
}

}  // namespace ff::cpu
