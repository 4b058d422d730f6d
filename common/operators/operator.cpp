#include "common/operators/operator.h"

#include <algorithm>
#include <cmath>

#include "common/operators/operator_list.h"

namespace ff {

std::string_view to_string(DimensionKind kind) {
  switch (kind) {
    case DimensionKind::sample: return "sample";
    case DimensionKind::attribute: return "attribute";
    case DimensionKind::parameter: return "parameter";
    case DimensionKind::reduction: return "reduction";
  }
  return "";
}

int parts_of(const Degrees& degrees) {
  int parts = 1;
  for (int degree : degrees) parts *= degree;
  return parts;
}

Block OperatorDefinition::part(const Degrees& degrees, int64_t index) const {
  assert(degrees.size() == dimensions_.size());
  Block part = whole();
  for (int d = static_cast<int>(degrees.size()) - 1; d >= 0; --d) {
    part[d] = degrees.interval(d, dimensions_[d].size, index % degrees[d]);
    index /= degrees[d];
  }
  return part;
}

int OperatorDefinition::partial_results(const Degrees& degrees) const {
  int count = 1;
  for (size_t d = 0; d < degrees.size(); ++d)
    if (dimensions_[d].kind == DimensionKind::reduction) count *= degrees[d];
  return count;
}

Vector<int> OperatorDefinition::kinds_of_parts(const Degrees& degrees) const {
  // In the order in which sizes first appear.
  const auto number_of = [](int64_t size, Vector<int64_t>& sizes) {
    const auto found = std::find(sizes.begin(), sizes.end(), size);
    const int number = static_cast<int>(found - sizes.begin());
    if (found == sizes.end()) sizes.push_back(size);
    return number;
  };
  Vector<int> kinds = {0};
  for (const int d : degrees.indices()) {
    Vector<int> kinds_here;  // [index]
    Vector<int64_t> sizes;   // distinct
    for (int i = 0; i < degrees[d]; ++i) {
      // Alike ones are equal in size, or one element larger.
      if (position_matters(d)) kinds_here.push_back(i);
      else kinds_here.push_back(number_of(degrees.interval(d, dimensions_[d].size, i).size(), sizes));
    }
    const int count = position_matters(d) ? degrees[d] : sizes.count();
    Vector<int> finer;
    finer.reserve(kinds.size() * kinds_here.size());
    for (const int kind : kinds)
      for (const int here : kinds_here) finer.push_back(kind * count + here);
    kinds = std::move(finer);
  }
  return kinds;
}

Block OperatorDefinition::whole() const {
  Block part;
  for (const ParallelDimension& dimension : dimensions_) part.append({0, dimension.size});
  return part;
}

bool OperatorDefinition::has_statistics(const Degrees& degrees, bool backward) const {
  return statistics_bytes(part(degrees, 0), backward) > 0;
}

bool OperatorDefinition::may_have_statistics() const {
  Block smallest = whole();
  for (int d = 0; d < smallest.rank(); ++d) smallest[d].end = 1;
  return statistics_bytes(whole(), false) > 0 || statistics_bytes(smallest, false) > 0;
}

int OperatorDefinition::statistics_group(const Degrees& degrees, int part) const {
  int group = 0, stride = 1;
  for (size_t d = degrees.size(); d-- > 0;) {
    if (!statistics_span(static_cast<int>(d))) {
      group += part % degrees[d] * stride;
      stride *= degrees[d];
    }
    part /= degrees[d];
  }
  return group;
}

int OperatorDefinition::statistics_groups(const Degrees& degrees) const {
  int groups = 1;
  for (size_t d = 0; d < degrees.size(); ++d)
    if (!statistics_span(static_cast<int>(d))) groups *= degrees[d];
  return groups;
}

Vector<int> OperatorDefinition::statistics_members(const Degrees& degrees, int part) const {
  Vector<int> members{0};
  int stride = 1;
  for (int d = degrees.count() - 1; d >= 0; --d) {
    const bool spans = statistics_span(d);
    const int own = part % degrees[d], first = spans ? 0 : own, last = spans ? degrees[d] - 1 : own;
    Vector<int> wider;
    for (int index = first; index <= last; ++index)
      for (const int behind : members) wider.push_back(index * stride + behind);
    members = std::move(wider);
    stride *= degrees[d];
    part /= degrees[d];
  }
  return members;
}

Block OperatorDefinition::parameter_block(int parameter, const Block&) const {
  return Block(parameters_[parameter].shape);
}

std::string OperatorDefinition::signature(const Block& part) const {
  std::string text = type_;
  if (const std::string attributes = attribute_text(); !attributes.empty()) text += " " + attributes;
  for (size_t i = 0; i < inputs_.size(); ++i) text += " " + to_string(input_block(static_cast<int>(i), part).shape());
  text += " ->";
  for (size_t o = 0; o < outputs_.size(); ++o) text += " " + to_string(output_block(static_cast<int>(o), part).shape());
  return text;
}

double OperatorDefinition::touched_bytes(const Block& part) const {
  int64_t bytes = 0;
  for (const int i : inputs_.indices()) bytes += bytes_of(inputs_[i].type, input_block(i, part));
  for (const int o : outputs_.indices()) bytes += bytes_of(outputs_[o].type, output_block(o, part));
  for (const int p : parameters_.indices()) bytes += bytes_of(parameter_type(p), parameter_block(p, part));
  return static_cast<double>(bytes);
}

void OperatorDefinition::set_types(const Vector<DataType>& inputs, DataType activations) {
  activation_type_ = activations;
  for (const int i : inputs_.indices()) inputs_[i].type = inputs[i];
  if (is_loss()) return;
  for (TensorSpec& output : outputs_)
    if (is_floating(output.type)) output.type = activations;
}

Work OperatorDefinition::forward_work(const Block& part) const {
  return {static_cast<double>(output_block(0, part).volume()), touched_bytes(part)};
}

double OperatorDefinition::gradient_addition_bytes(const Block& part) const {
  double bytes = 0;
  for (int p = 0; p < static_cast<int>(parameters_.size()); ++p)
    if (parameters_[p].trained) bytes += static_cast<double>(parameter_block(p, part).volume() * element_bytes);
  return bytes;
}

Work OperatorDefinition::backward_work(const Block& part, bool) const {
  return {2.0 * static_cast<double>(output_block(0, part).volume()), 1.5 * touched_bytes(part)};
}

void OperatorRequest::expect_inputs(size_t count) const { expect_inputs_between(count, count); }

void OperatorRequest::expect_inputs_between(size_t least, size_t most) const {
  if (inputs.size() >= least && inputs.size() <= most) return;
  const std::string expected = least == most              ? std::to_string(least)
                               : most > (size_t{1} << 20) ? "at least " + std::to_string(least)
                                                          : std::to_string(least) + " to " + std::to_string(most);
  place.at("inputs").fail(type + " has " + std::to_string(inputs.size()) + " inputs, expected " + expected);
}

void OperatorRequest::expect_rank(size_t input, size_t least, size_t most) const {
  const size_t rank = inputs[input].shape.size();
  if (rank >= least && rank <= most) return;
  place.at("inputs").items()[input].fail(
      "has shape " + to_string(inputs[input].shape) + ", " + type + " expects " +
      (least == most ? std::to_string(least) : std::to_string(least) + " to " + std::to_string(most)) + " axes");
}

void OperatorRequest::expect_type(size_t input, DataType expected) const {
  if (inputs[input].type != expected)
    place.at("inputs").items()[input].fail("has type " + std::string(to_string(inputs[input].type)) + ", " + type +
                                           " expects " + std::string(to_string(expected)));
}

void OperatorRequest::expect_one_input(size_t least_rank, size_t most_rank, DataType type) const {
  expect_inputs(1);
  expect_rank(0, least_rank, most_rank);
  expect_type(0, type);
}

void OperatorRequest::allow_attributes(const Vector<std::string>& keys) const {
  if (attributes) attributes->allow_keys(keys, "attribute of " + type);
}

std::optional<JsonPlace> OperatorRequest::attribute(const std::string& key) const {
  return attributes ? attributes->find(key) : std::nullopt;
}

JsonPlace OperatorRequest::required_attribute(const std::string& key) const {
  if (auto found = attribute(key)) return *found;
  (attributes ? *attributes : place).fail(type + " needs the attribute \"" + key + "\"");
}

int64_t OperatorRequest::integer(const std::string& key, int64_t otherwise, int64_t least, int64_t most) const {
  const auto found = attribute(key);
  return found ? found->as_integer(least, most) : otherwise;
}

double OperatorRequest::number(const std::string& key, double otherwise, double least, double most) const {
  const auto found = attribute(key);
  return found ? found->as_number(least, most) : otherwise;
}

bool OperatorRequest::flag(const std::string& key, bool otherwise) const {
  const auto found = attribute(key);
  return found ? found->as_bool() : otherwise;
}

std::string OperatorRequest::choice(const std::string& key, const std::string& otherwise,
                                    const Vector<std::string>& choices) const {
  const auto found = attribute(key);
  if (!found) return otherwise;
  const std::string value = found->as_string();
  for (const std::string& choice : choices)
    if (choice == value) return value;
  std::string text = "found \"" + value + "\", expected ";
  for (const std::string& choice : choices)
    text += (choice == choices[0] ? "\"" : choice == choices.back() ? " or \"" : ", \"") + choice + "\"";
  const auto& types = operator_types();
  if (key == "activation" && std::find(types.begin(), types.end(), value) != types.end())
    text += "; an operator of type \"" + value + "\" can follow this one";
  else if (const std::string nearest = nearest_name(value, choices); !nearest.empty())
    text += "; did you mean \"" + nearest + "\"?";
  found->fail(text);
}

Array<int64_t, 2> OperatorRequest::pair(const std::string& key, Array<int64_t, 2> otherwise, int64_t least,
                                        int64_t most) const {
  const auto found = attribute(key);
  if (!found) return otherwise;
  if (!found->value().is_array()) {
    const int64_t both = found->as_integer(least, most);
    return {both, both};
  }
  const auto items = found->items();
  if (items.size() != 2) found->fail("has " + std::to_string(items.size()) + " elements, expected 2 (height, width)");
  return {items[0].as_integer(least, most), items[1].as_integer(least, most)};
}

Vector<std::string> axis_names(size_t rank) {
  switch (rank) {
    case 1: return {"sample"};
    case 2: return {"sample", "channel"};
    case 3: return {"sample", "length", "channel"};
    case 4: return {"sample", "channel", "height", "width"};
  }
  Vector<std::string> names{"sample"};
  for (size_t axis = 1; axis < rank; ++axis) names.push_back("axis" + std::to_string(axis));
  return names;
}

Vector<ParallelDimension> every_axis(const Shape& shape, int but) {
  const Vector<std::string> names = axis_names(shape.size());
  Vector<ParallelDimension> dimensions;
  for (int axis = 0; axis < static_cast<int>(shape.size()); ++axis)
    if (axis != but)
      dimensions.push_back({names[axis], axis == 0 ? DimensionKind::sample : DimensionKind::attribute, shape[axis]});
  return dimensions;
}

static constexpr OperatorFunction<std::unique_ptr<OperatorDefinition>(const OperatorRequest&)> factories[] = {
#define FF_ROW(type, name) {#type, make_##name},
    FF_OPERATORS(FF_ROW)
#undef FF_ROW
};

const Vector<std::string>& operator_types() {
  static const Vector<std::string> types = [] {
    Vector<std::string> names;
    for (const auto& factory : factories) names.emplace_back(factory.type);
    return names;
  }();
  return types;
}

std::unique_ptr<OperatorDefinition> make_operator(const OperatorRequest& request) {
  if (const auto make = function_of(request.type, factories)) return make(request);
  // What is no misspelt type, or too short to tell, may be meant as a loss; the list of all types would not show them.
  constexpr size_t telling = 5;
  const bool near = request.type.size() >= telling && !nearest_name(request.type, operator_types()).empty();
  request.place.at("type").fail("unknown operator type \"" + request.type + "\"" +
                                suggestion(request.type, operator_types()) +
                                (near ? "" : " (losses: softmax_cross_entropy, load_balancing_loss)"));
}

}  // namespace ff
