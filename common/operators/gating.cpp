#include "common/operators/gating.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/operators/operator_list.h"
#include "common/operators/routing.h"

namespace ff {
namespace {

constexpr int64_t most_experts = 8192;  // a GPU counts a group's tokens in memory that one block of threads shares

void expect_logits(const OperatorRequest& request, int64_t least_experts) {
  request.expect_one_input(3, 3);
  const int64_t experts = request.inputs[0].shape[2];
  if (experts < least_experts || experts > most_experts)
    request.place.at("inputs").items()[0].fail("has logits of " + std::to_string(experts) + " experts, " +
                                               request.type + " expects from " + std::to_string(least_experts) +
                                               " to " + std::to_string(most_experts));
}

int64_t group_samples_of(const OperatorRequest& request) {
  const int64_t batch = request.inputs[0].shape[0], samples = request.integer("group_samples", 1, 1, int64_t{1} << 32);
  if (batch % samples != 0)
    request.required_attribute("group_samples")
        .fail("found " + std::to_string(samples) + ", expected a divisor of the batch of " + std::to_string(batch));
  return samples;
}

// Places in an expert's buffer for each group: its part of what the group's tokens choose, times `factor`; at least
// one, and not more than there are tokens.
int64_t capacity_of(double factor, int64_t top_k, int64_t group_tokens, int64_t experts) {
  const double expected = factor * static_cast<double>(top_k * group_tokens) / static_cast<double>(experts);
  // A product of decimal fractions may lie a rounding above the whole number that it means.
  const double places = std::ceil(expected * (1 - 1e-12));
  return static_cast<int64_t>(std::clamp(places, 1.0, static_cast<double>(group_tokens)));
}

// Whole groups of `samples` samples of a tensor.
Block samples_of_groups(const Shape& shape, const Block& part, int64_t samples) {
  Block block(shape);
  block[0] = {part[0].begin * samples, part[0].end * samples};
  return block;
}

}  // namespace

TopKGating::TopKGating(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.allow_attributes({"top_k", "capacity_factor", "group_samples", "normalize", "random_routing"});
  top_k = request.integer("top_k", 2, 1, most_choices);
  expect_logits(request, top_k);
  const Shape& logits = inputs_[0].shape;
  const auto factor = request.attribute("capacity_factor");
  routing.experts = logits[2];
  routing.group_samples = group_samples_of(request);
  group_tokens = routing.group_samples * logits[1];
  routing.capacity = capacity_of(factor ? factor->as_positive_number() : 1, top_k, group_tokens, routing.experts);
  if (routing.slots() > std::numeric_limits<int32_t>::max())
    (factor ? *factor : request.place)
        .fail(std::to_string(routing.experts) + " experts with " + std::to_string(routing.capacity) +
              " places each are more slots than 32 bits number");
  normalized = request.flag("normalize", top_k > 1);
  if (normalized && top_k == 1)
    request.required_attribute("normalize").fail("found true, but the one weight of top_k 1 would always be 1");
  random_routing = request.flag("random_routing", top_k == 2 && normalized);
  if (random_routing && (top_k != 2 || !normalized))
    request.required_attribute("random_routing")
        .fail("found true, but only with top_k 2 and normalized weights is the second expert dropped at random");
  const Shape choices{logits[0], logits[1], top_k};
  outputs_ = {{"slot", choices, DataType::i32, routing}, {"weight", choices}};
  dimensions_ = {{"sample", DimensionKind::sample, logits[0] / routing.group_samples}};
}

Block TopKGating::output_block(int output, const Block& part) const {
  return samples_of_groups(outputs_[output].shape, part, routing.group_samples);
}

Block TopKGating::input_block(int input, const Block& part) const {
  return samples_of_groups(inputs_[input].shape, part, routing.group_samples);
}

std::string TopKGating::attribute_text() const {
  return "top_k=" + std::to_string(top_k) + " capacity=" + std::to_string(routing.capacity) +
         " group_samples=" + std::to_string(routing.group_samples) + (random_routing ? " random" : "") +
         (top_k > 1 && !normalized ? " gates" : "");
}

Work TopKGating::forward_work(const Block& part) const {  // a comparison for each choice and logit
  return {static_cast<double>(std::max<int64_t>(2, top_k) * input_block(0, part).volume()), touched_bytes(part)};
}

Work TopKGating::backward_work(const Block& part, bool) const {  // reads the logits, writes their gradients
  return {static_cast<double>(std::max<int64_t>(2, top_k) * input_block(0, part).volume()), 2 * touched_bytes(part)};
}

LoadBalancingLoss::LoadBalancingLoss(const OperatorRequest& request)
    : OperatorDefinition(request.type, request.inputs) {
  request.allow_attributes({"group_samples", "weight"});
  expect_logits(request, 1);
  const Shape& logits = inputs_[0].shape;
  experts = logits[2];
  group_samples = group_samples_of(request);
  group_tokens = group_samples * logits[1];
  weight = request.number("weight", 0.01, 0, 1e9);
  const int64_t groups = logits[0] / group_samples;
  outputs_ = {{"loss", {groups}}};
  dimensions_ = {{"sample", DimensionKind::sample, groups}};
}

Block LoadBalancingLoss::input_block(int input, const Block& part) const {
  return samples_of_groups(inputs_[input].shape, part, group_samples);
}

Work LoadBalancingLoss::forward_work(const Block& part) const {  // softmax, its largest, and the weighted sum
  return {22.0 * static_cast<double>(input_block(0, part).volume()), 3 * touched_bytes(part)};
}

Work LoadBalancingLoss::backward_work(const Block& part, bool) const {
  return {3.0 * static_cast<double>(input_block(0, part).volume()), 2 * touched_bytes(part)};
}

std::unique_ptr<OperatorDefinition> make_top_k_gating(const OperatorRequest& request) {
  return std::make_unique<TopKGating>(request);
}
std::unique_ptr<OperatorDefinition> make_load_balancing_loss(const OperatorRequest& request) {
  return std::make_unique<LoadBalancingLoss>(request);
}

}  // namespace ff
