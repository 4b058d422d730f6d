#include "common/operators/batch_norm.h"

#include "common/operators/operator_list.h"

namespace ff {

BatchNorm::BatchNorm(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.expect_one_input(2, 4);
  request.allow_attributes({"epsilon", "momentum", "statistics", "activation", "trained"});
  const Shape& shape = inputs_[0].shape;
  channel_axis = shape.size() == 3 ? 2 : 1;
  const int64_t channels = shape[channel_axis];
  elements_per_channel = volume(shape) / channels;
  if (elements_per_channel < 2)
    request.place.at("inputs").items()[0].fail("has shape " + to_string(shape) +
                                               " with one element a channel, batch_norm expects at least 2");
  epsilon = request.number("epsilon", 1e-5, 1e-12, 1);
  momentum = request.number("momentum", 0.1, 0, 1);
  global = request.choice("statistics", "global", {"global", "local"}) == "global";
  relu = request.choice("activation", "none", {"none", "relu"}) == "relu";
  outputs_ = {{"", shape}};
  parameters_ = {{"weight", {channels}, 0, 1},
                 {"bias", {channels}},
                 {"running_mean", {channels}, 0, 0, false},
                 {"running_variance", {channels}, 0, 1, false}};
  trained = request.flag("trained", true);
  for (const int p : {0, 1}) {
    parameters_[p].trained = trained;
    parameters_[p].given = !trained;
  }
  dimensions_ = every_axis(shape);
  dimensions_[channel_axis].kind = DimensionKind::parameter;
}

std::string BatchNorm::attribute_text() const {
  return std::string(global ? "global" : "local") + (relu ? " relu" : "");
}

Work BatchNorm::statistics_work(const Block& part, bool backward) const {
  const double elements = static_cast<double>(part.volume());
  return {(backward ? 4 : 3) * elements,
          (backward ? (relu ? 3 : 2) : 1) * elements * static_cast<double>(activation_bytes())};
}

Work BatchNorm::forward_work(const Block& part) const {
  const double elements = static_cast<double>(part.volume());
  const Work statistics = global ? Work{} : statistics_work(part, false);
  return {2 * elements + statistics.flops, 2 * elements * static_cast<double>(activation_bytes()) + statistics.bytes};
}

Work BatchNorm::backward_work(const Block& part, bool) const {
  const double elements = static_cast<double>(part.volume());
  const Work statistics = global ? Work{} : statistics_work(part, true);
  return {5 * elements + statistics.flops,
          (relu ? 4 : 3) * elements * static_cast<double>(activation_bytes()) + statistics.bytes};
}

std::unique_ptr<OperatorDefinition> make_batch_norm(const OperatorRequest& request) {
  return std::make_unique<BatchNorm>(request);
}

}  // namespace ff
