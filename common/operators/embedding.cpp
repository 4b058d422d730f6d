#include "common/operators/embedding.h"

#include "common/operators/operator_list.h"

namespace ff {

Embedding::Embedding(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.expect_one_input(1, 2, DataType::i32);
  request.allow_attributes({"vocabulary", "channels", "trained"});
  vocabulary = request.required_attribute("vocabulary").as_integer(1, int64_t{1} << 31);
  channels = request.required_attribute("channels").as_integer(1, int64_t{1} << 24);
  Shape output = inputs_[0].shape;
  output.push_back(channels);
  outputs_ = {{"", output}};
  // as Zaremba et al. 2014 (arXiv 1409.2329) start their medium language model, about
  const bool trained = request.flag("trained", true);
  parameters_ = {{"weight", {vocabulary, channels}, 0.1, 0, trained, !trained}};
  dimensions_ = every_axis(output);
  dimensions_.back().kind = DimensionKind::parameter;
  dimensions_.push_back({"vocabulary", DimensionKind::reduction, vocabulary});
}

Block Embedding::output_block(int, const Block& part) const {
  Block block;
  for (int axis = 0; axis + 1 < part.rank(); ++axis) block.append(part[axis]);
  return block;
}

Block Embedding::input_block(int, const Block& part) const {
  Block block;
  for (int axis = 0; axis + 2 < part.rank(); ++axis) block.append(part[axis]);
  return block;
}

Block Embedding::parameter_block(int, const Block& part) const { return {rows(part), part[part.rank() - 2]}; }

std::string Embedding::signature(const Block& part) const {
  const std::string text = OperatorDefinition::signature(part);
  if (rows(part).size() == vocabulary) return text;
  return text + " rows=" + std::to_string(rows(part).size()) + "/" + std::to_string(vocabulary);
}

// Reads one row per token, not the whole table; of tokens that the part has rows for, as many as its fraction of the
// table; writes all.
Work Embedding::forward_work(const Block& part) const {
  const double fraction = static_cast<double>(rows(part).size()) / static_cast<double>(vocabulary);
  return {0, (1 + fraction) * static_cast<double>(bytes_of(activation_type(), output_block(0, part)))};
}

// The gradient is dense: the part's rows of the table are cleared, and those of the tokens are added to.
Work Embedding::backward_work(const Block& part, bool) const {
  const double table = static_cast<double>(parameter_block(0, part).volume() * element_bytes);
  const double fraction = static_cast<double>(rows(part).size()) / static_cast<double>(vocabulary);
  const double added = fraction * static_cast<double>(output_block(0, part).volume());
  return {added, table + added * static_cast<double>(2 * element_bytes + activation_bytes())};
}

// The table is not cleared then.
double Embedding::gradient_addition_bytes(const Block& part) const {
  return -static_cast<double>(parameter_block(0, part).volume() * element_bytes);
}

PositionEmbedding::PositionEmbedding(const OperatorRequest& request)
    : OperatorDefinition(request.type, request.inputs) {
  request.expect_one_input(3, 3);
  request.allow_attributes({});
  const Shape& shape = inputs_[0].shape;
  outputs_ = {{"", shape}};
  // about the standard deviation 0.02 of Devlin et al. 2018 (arXiv 1810.04805)
  parameters_ = {{"weight", {shape[1], shape[2]}, 0.03}};
  dimensions_ = {{"sample", DimensionKind::sample, shape[0]},
                 {"length", DimensionKind::parameter, shape[1]},
                 {"channel", DimensionKind::parameter, shape[2]}};
}

std::unique_ptr<OperatorDefinition> make_embedding(const OperatorRequest& request) {
  return std::make_unique<Embedding>(request);
}

std::unique_ptr<OperatorDefinition> make_position_embedding(const OperatorRequest& request) {
  return std::make_unique<PositionEmbedding>(request);
}

}  // namespace ff
