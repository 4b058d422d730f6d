// Softmax(query key^T / sqrt(head channels) + mask) value, with the projections of one sequence to queries, keys and
// values in front, is multi_head_attention. What exporters write for it differs from model to model in reshapes and
// transpositions; as the layouts are tracked, what the converters give does not:
//
//   q, k, v     [batch, length, channels]: linear operators on one tensor, or ranges of a single one's output
//   scores      einsum "blhk,bmhk->bhlm" of q and k as [batch, length, heads, head channels]
//   weights     softmax over the last axis; before it perhaps a causal mask
//   context     einsum "bhlk,bkhm->bhlm" of the weights and v, joined to [batch, length, channels]
//
// and factors (affine) anywhere before the softmax, whose product must be 1 / sqrt(head channels).
#include <cmath>
#include <optional>
#include <tuple>

#include "search/import/graph_passes.h"

namespace ff::importing {
namespace {

using Operator = Builder::Operator;

// A third of what is projected: rows [begin, end) of a linear operator's outputs.
struct Projection {
  const Operator* linear;
  int64_t begin, end;
};

class Finder {
 public:
  explicit Finder(const Builder& builder) : builder_(builder) {
    for (const Operator& op : builder.operators()) {
      for (const std::string& output : op.outputs) producers_[output] = &op;
      for (const std::string& input : op.inputs) readers_[input].push_back(&op);
      ++groups_[op.group];
    }
    for (const std::string& output : builder.outputs) readers_[output].push_back(nullptr);
  }

  struct Found {
    Projection query, key, value;
    std::string input;   // what is projected
    std::string output;  // the tensor that becomes the attention's output
    int64_t heads;
    bool causal;
  };

  // With its softmax at this operator?
  std::optional<Found> at(const Operator& softmax) const {
    double scale = 1;
    Found found{};
    const Operator* before = producer(softmax.inputs[0], "reshape");
    if (!before) return std::nullopt;
    std::string tensor = before->inputs[0];
    if (const Operator* mask = producer(tensor, "broadcast_add"); mask && is_causal(*mask)) {
      found.causal = true;
      tensor = mask->inputs[0];
    }
    tensor = through_factors(tensor, scale);
    const Operator* scores = producer(tensor, "einsum");
    if (!scores || equation(*scores) != "blhk,bmhk->bhlm") return std::nullopt;
    const Operator* context = nullptr;
    const Operator* split = reader(softmax.outputs[0], "reshape");
    if (split) context = reader(split->outputs[0], "einsum");
    if (!context || equation(*context) != "bhlk,bkhm->bhlm" || context->inputs[0] != split->outputs[0])
      return std::nullopt;
    const Operator* turned = reader(context->outputs[0], "transpose");
    const Operator* joined = turned ? reader(turned->outputs[0], "reshape") : nullptr;
    if (!joined || turned->attributes["axes"] != Json({2, 1, 3})) return std::nullopt;
    const auto query = projection(scores->inputs[0], scale), key = projection(scores->inputs[1], scale);
    double unscaled = 1;
    const auto value = projection(context->inputs[1], unscaled);
    if (!query || !key || !value || unscaled != 1) return std::nullopt;
    const Shape& split_query = builder_.shape(scores->inputs[0]);  // [batch, length, heads, head channels]
    const Shape &all = builder_.shape(joined->outputs[0]), &input = builder_.shape(query->linear->inputs[0]);
    if (std::abs(scale * std::sqrt(static_cast<double>(split_query[3])) - 1) > 1e-5 || all != input ||
        builder_.shape(scores->inputs[1]) != split_query || builder_.shape(context->inputs[1]) != split_query)
      return std::nullopt;
    found.query = *query;
    found.key = *key;
    found.value = *value;
    found.input = query->linear->inputs[0];
    found.output = joined->outputs[0];
    found.heads = split_query[2];
    const bool bias = has_bias(*query->linear);
    if (shares_rows(found)) return std::nullopt;
    for (const Projection& one : {found.query, found.key, found.value})
      if (one.linear->inputs[0] != found.input || has_bias(*one.linear) != bias || one.end - one.begin != all[2] ||
          groups_.at(one.linear->group) != 1)
        return std::nullopt;
    return found;
  }

  // Is a row of a weight projected to two of them, or to something else as well? Then it is no parameter of its own.
  bool shares_rows(const Found& found) const {
    const Projection* const all[] = {&found.query, &found.key, &found.value};
    for (const Projection* one : all) {
      int64_t rows = 0;
      size_t readers = 0;
      for (const Projection* other : all) {
        if (other->linear != one->linear) continue;
        rows += other->end - other->begin;
        ++readers;
        if (other != one && other->begin < one->end && one->begin < other->end) return true;
      }
      const std::string& tensor = one->linear->outputs[0];
      const Vector<const Operator*>& reading = readers_.at(tensor);
      if (reading[0] && reading[0]->type == "split") readers = 1;
      if (rows != builder_.shape(tensor).back() || reading.size() != readers) return true;
    }
    return false;
  }

  static bool has_bias(const Operator& linear) { return linear.parameters.size() > 1; }

 private:
  const Operator* producer(const std::string& tensor, const std::string& type) const {
    const auto it = producers_.find(tensor);
    if (it == producers_.end() || it->second->type != type || readers_.at(tensor).size() != 1) return nullptr;
    return it->second;
  }

  // The only reader of a tensor.
  const Operator* reader(const std::string& tensor, const std::string& type) const {
    const auto it = readers_.find(tensor);
    if (it == readers_.end() || it->second.size() != 1 || !it->second[0] || it->second[0]->type != type) return nullptr;
    return it->second[0];
  }

  static std::string equation(const Operator& op) { return op.attributes["equation"].get<std::string>(); }

  std::string through_factors(const std::string& tensor, double& scale) const {
    const Operator* factor = producer(tensor, "affine");
    if (!factor || factor->attributes.value("offset", 0.0) != 0) return tensor;
    scale *= factor->attributes.value("factor", 1.0);
    return through_factors(factor->inputs[0], scale);
  }

  // From [batch, length, heads, head channels] back to the linear operator.
  std::optional<Projection> projection(const std::string& tensor, double& scale) const {
    std::string from = through_factors(tensor, scale);
    if (const Operator* reshape = producer(from, "reshape")) from = through_factors(reshape->inputs[0], scale);
    const int64_t size = builder_.shape(from).back();
    int64_t begin = 0;
    if (const Operator* slice = producer(from, "slice"); slice && slice->attributes["axis"] == 2) {
      begin = slice->attributes["begin"].get<int64_t>();
      from = slice->inputs[0];
    } else if (const Operator* split = producer(from, "split"); split && split->attributes["axis"] == 2) {
      for (const int output : split->outputs.indices()) {
        if (split->outputs[output] == from) break;
        begin += split->attributes["sizes"][static_cast<size_t>(output)].get<int64_t>();
      }
      from = split->inputs[0];
    }
    const auto it = producers_.find(from);
    if (it == producers_.end() || it->second->type != "linear" || it->second->attributes.contains("activation") ||
        builder_.shape(from).size() != 3)
      return std::nullopt;
    return Projection{it->second, begin, begin + size};
  }

  // Nothing up to the diagonal, a very low number after it.
  bool is_causal(const Operator& mask) const {
    const auto weight = builder_.parameters().find(mask.name + ".weight");
    if (mask.attributes["axes"] != Json({2, 3}) || mask.attributes.value("trained", true) ||
        weight == builder_.parameters().end())
      return false;
    const auto& [shape, values] = std::tie(weight->second.constant.shape, weight->second.constant.floats);
    for (int64_t row = 0; row < shape[0]; ++row)
      for (int64_t column = 0; column < shape[1]; ++column) {
        const float value = (*values)[row * shape[1] + column];
        if (column <= row ? value != 0 : value > -1e4f) return false;
      }
    return shape[0] == shape[1];
  }

  const Builder& builder_;
  std::map<std::string, const Operator*> producers_;
  std::map<std::string, Vector<const Operator*>> readers_;
  std::map<std::string, int> groups_;
};

// The rows of queries, keys and values of a parameter, one after the other.
Builder::Parameter joined(const Builder& builder, const Finder::Found& found, const std::string& parameter,
                          const Shape& shape) {
  Vector<float> values;
  Vector<int64_t> numbers;
  for (const Projection& one : {found.query, found.key, found.value}) {
    const Constant& from = builder.parameters().at(one.linear->group + "." + parameter).constant;
    const int64_t row = from.elements() / from.shape[0];
    values.insert(values.end(), from.floats->begin() + one.begin * row, from.floats->begin() + one.end * row);
    for (int64_t i = one.begin * row; i < one.end * row; ++i) numbers.push_back(from.origin.at(i));
  }
  Builder::Parameter result{Constant::of_floats(shape, std::move(values))};
  result.constant.origin = Origin::of(std::move(numbers));
  return result;
}

// "layers.0.attention" of "layers.0.attention.query".
std::string attention_module(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos || dot == 0 ? "attention" : name.substr(0, dot);
}

}  // namespace

void fuse_attention(Builder& builder) {
  Vector<Finder::Found> all;
  std::map<std::string, const Finder::Found*> by_output;
  {
    const Finder finder(builder);
    for (const Operator& op : builder.operators())
      if (op.type == "softmax")
        if (auto found = finder.at(op)) all.push_back(std::move(*found));
  }
  for (const Finder::Found& found : all) by_output[found.output] = &found;
  Vector<Operator> attentions;
  for (const Finder::Found& found : all) {
    const int64_t channels = builder.shape(found.output)[2];
    const bool bias = Finder::has_bias(*found.query.linear);
    Json attributes = {{"heads", found.heads}};
    if (found.causal) attributes["causal"] = true;
    if (!bias) attributes["bias"] = false;
    const std::string name = builder.unique_name(attention_module(found.query.linear->name));
    builder.set_parameter(name + ".weight", joined(builder, found, "weight", {3, channels, channels}));
    if (bias) builder.set_parameter(name + ".bias", joined(builder, found, "bias", {3, channels}));
    Operator op{name,
                "multi_head_attention",
                {found.input},
                attributes,
                name,
                {name},
                {builder.shape(found.output)},
                {{"weight", {3, channels, channels}}},
                found.query.linear->origin};
    if (bias) op.parameters.push_back({"bias", {3, channels}});
    attentions.push_back(std::move(op));
  }
  std::map<std::string, std::string> renamed;
  Vector<Operator> operators;
  for (Operator& op : builder.operators()) {
    const auto it = by_output.find(op.outputs[0]);
    if (it == by_output.end()) {
      for (std::string& input : op.inputs)
        if (const auto name = renamed.find(input); name != renamed.end()) input = name->second;
      operators.push_back(std::move(op));
      continue;
    }
    Operator& attention = attentions[it->second - all.data()];
    renamed[op.outputs[0]] = attention.name;
    // Its own input may be what another attention gave.
    if (const auto name = renamed.find(attention.inputs[0]); name != renamed.end()) attention.inputs[0] = name->second;
    operators.push_back(std::move(attention));
  }
  builder.operators() = std::move(operators);
  for (std::string& output : builder.outputs)
    if (const auto it = renamed.find(output); it != renamed.end()) output = it->second;
}

}  // namespace ff::importing
