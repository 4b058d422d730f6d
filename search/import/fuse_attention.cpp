// Softmax(query key^T / sqrt(head channels) + mask) value, with the projections of one sequence to queries, keys and
// values in front, is multi_head_attention. What exporters write for it differs from model to model in reshapes and
// transpositions; as the layouts are tracked, what the converters give does not:
//
//   q, k, v     [batch, length, heads, head channels]: channels of linear operators on one tensor, perhaps turned by
//               their positions, perhaps the same for several heads (channel_map.h, attention_heads.h)
//   scores      einsum "blhk,bmhk->bhlm" of q and k
//   weights     softmax over the last axis; before it perhaps a causal mask
//   context     einsum "bhlk,bkhm->bhlm" of the weights and v, joined to [batch, length, channels]
//
// and factors anywhere before the softmax, whose product must be 1 / sqrt(head channels). Each row of the projections
// is used once, and by nothing else.
#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <tuple>

#include "search/import/attention_heads.h"
#include "search/import/graph_passes.h"

namespace ff::importing {
namespace {

using Operator = Builder::Operator;

struct Found {
  HeadRows query, key, value;
  Vector<int64_t> key_rows, value_rows;  // of each head of theirs
  int64_t group;                         // heads of queries that share one of keys and values
  std::string input;                     // what is projected
  std::string output;                    // the tensor that becomes the attention's output
  bool causal;
  bool bias;
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
    found.output = joined->outputs[0];
    return heads_fit(found, scores->inputs[0], scores->inputs[1], context->inputs[1], scale) && is_alone(found)
               ? std::optional(found)
               : std::nullopt;
  }

 private:
  // Finds the projections.
  bool heads_fit(Found& found, const std::string& query, const std::string& key, const std::string& value,
                 double scale) const {
    const Shape& split = builder_.shape(query);  // [batch, length, heads, head channels]
    if (builder_.shape(key) != split || builder_.shape(value) != split) return false;
    ChannelMaps maps(builder_, producers_);
    const auto rows = [&](const std::string& tensor) {
      const ChannelMap* map = maps.of(tensor);
      return map ? head_rows(*map, split[1], split[2]) : std::nullopt;
    };
    const auto q = rows(query), k = rows(key), v = rows(value);
    if (!q || !k || !v || v->factor != 1 || v->turned > 0 || q->order != k->order || q->turned != k->turned ||
        q->base != k->base || std::abs(scale * q->factor * k->factor * std::sqrt(split[3]) - 1) > 1e-5)
      return false;
    const auto keys = shared_heads(*k), values = shared_heads(*v);
    if (!keys || !values || keys->group != values->group) return false;
    found.query = *q;
    found.key = *k;
    found.value = *v;
    found.key_rows = keys->rows;
    found.value_rows = values->rows;
    found.group = keys->group;
    found.input = q->linear->inputs[0];
    found.bias = has_bias(*q->linear);
    const Shape &all = builder_.shape(found.output), &input = builder_.shape(found.input);
    return all == input && all[2] == split[2] * split[3] && uses_each_row_once(found);
  }

  // A row that two of them use, or none, is no parameter of an attention of its own.
  bool uses_each_row_once(const Found& found) const {
    std::map<const Operator*, std::set<int64_t>> used;
    for (const auto& [heads, rows] :
         {std::pair(&found.query, &found.query.rows), std::pair(&found.key, &found.key_rows),
          std::pair(&found.value, &found.value_rows)}) {
      const Operator& linear = *heads->linear;
      if (linear.inputs[0] != found.input || has_bias(linear) != found.bias || groups_.at(linear.group) != 1)
        return false;
      for (const int64_t row : *rows)
        if (!used[&linear].insert(row).second) return false;
    }
    return std::all_of(used.begin(), used.end(), [&](const auto& entry) {
      return static_cast<int64_t>(entry.second.size()) == builder_.shape(entry.first->outputs[0]).back();
    });
  }

  // Does nothing but the output need the projections?
  bool is_alone(const Found& found) const {
    std::set<std::string> needed(builder_.outputs.begin(), builder_.outputs.end());
    const auto& operators = builder_.operators();
    for (int i = operators.count() - 1; i >= 0; --i) {
      const Operator& op = operators[i];
      const bool used =
          op.is_loss() || std::any_of(op.outputs.begin(), op.outputs.end(),
                                      [&](const std::string& output) { return needed.count(output) > 0; });
      if (!used) continue;
      if (&op == found.query.linear || &op == found.key.linear || &op == found.value.linear) return false;
      if (op.outputs[0] == found.output) needed.insert(found.input);
      else needed.insert(op.inputs.begin(), op.inputs.end());
    }
    return true;
  }

  static bool has_bias(const Operator& linear) { return linear.parameters.size() > 1; }

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

using Rows = Vector<std::pair<const Operator*, const Vector<int64_t>*>>;

// Rows of linear operators' weights (or biases), one after the other.
Builder::Parameter joined(const Builder& builder, const Rows& rows, const std::string& parameter, const Shape& shape) {
  Vector<float> values;
  Progressions numbers;
  values.reserve(static_cast<size_t>(volume(shape)));
  for (const auto& [linear, chosen] : rows) {
    const Constant& from = builder.parameters().at(linear->group + "." + parameter).constant;
    const int64_t size = from.elements() / from.shape[0];
    const auto all = from.floats.once();
    for (const int64_t row : *chosen) {
      values.insert(values.end(), all->begin() + row * size, all->begin() + (row + 1) * size);
      numbers.add(*from.origin.numbers, row * size, size);
    }
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

Json attributes_of(const Found& found) {
  Json attributes = {{"heads", found.query.heads}};
  if (found.group > 1) attributes["key_value_heads"] = found.query.heads / found.group;
  if (found.causal) attributes["causal"] = true;
  if (found.query.turned > 0) attributes["rotary_base"] = found.query.base;
  if (found.query.turned > 0 && found.query.turned < found.query.head_channels)
    attributes["rotary_channels"] = found.query.turned;
  if (!found.bias) attributes["bias"] = false;
  return attributes;
}

// The operator, with its parameters in the builder.
Operator attention_of(Builder& builder, const Found& found) {
  const int64_t channels = builder.shape(found.output)[2], shared = channels / found.group;
  const std::string name = builder.unique_name(attention_module(found.query.linear->name));
  Operator op{
      name, "multi_head_attention",    {found.input}, attributes_of(found), name, {name}, {builder.shape(found.output)},
      {},   found.query.linear->origin};
  const Rows query{{found.query.linear, &found.query.rows}},
      key_value{{found.key.linear, &found.key_rows}, {found.value.linear, &found.value_rows}};
  const auto add = [&](const std::string& own, const Rows& rows, const std::string& parameter, const Shape& shape) {
    builder.set_parameter(name + "." + own, joined(builder, rows, parameter, shape));
    op.parameters.push_back({own, shape});
  };
  if (found.group == 1) {
    const Rows all{query[0], key_value[0], key_value[1]};
    add("weight", all, "weight", {3, channels, channels});
    if (found.bias) add("bias", all, "bias", {3, channels});
    return op;
  }
  add("query", query, "weight", {channels, channels});
  add("key_value", key_value, "weight", {2, shared, channels});
  if (found.bias) add("query_bias", query, "bias", {channels});
  if (found.bias) add("key_value_bias", key_value, "bias", {2, shared});
  return op;
}

}  // namespace

void fuse_attention(Builder& builder) {
  Vector<Found> all;
  std::map<std::string, const Found*> by_output;
  {
    const Finder finder(builder);
    for (const Operator& op : builder.operators())
      if (op.type == "softmax")
        if (auto found = finder.at(op)) all.push_back(std::move(*found));
  }
  for (const Found& found : all) by_output[found.output] = &found;
  Vector<Operator> attentions;
  for (const Found& found : all) attentions.push_back(attention_of(builder, found));
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
