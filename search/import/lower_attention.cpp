// Operators of transformers that newer operator sets have (23 and later), in terms of older ones.
#include <algorithm>
#include <cmath>

#include "search/import/lowering.h"

namespace ff::importing {
namespace {

constexpr float hidden = -1e30f;  // what a mask adds

bool is_read(const Lowering& l, size_t output) {
  if (!l.node.has_output(output)) return false;
  const std::string& name = l.node.outputs[output];
  if (std::find(l.model.outputs.begin(), l.model.outputs.end(), name) != l.model.outputs.end()) return true;
  return std::any_of(l.model.nodes.begin(), l.model.nodes.end(), [&](const Node& node) {
    return std::find(node.inputs.begin(), node.inputs.end(), name) != node.inputs.end();
  });
}

// [batch, heads, length, channels of a head], also of [batch, length, channels].
std::string by_heads(Lowering& l, const std::string& x, const char* attribute) {
  const Shape shape = l.shape(x);
  if (shape.size() == 4) return x;
  const int64_t heads = l.model.integer(l.node, attribute, 0);
  if (shape.size() != 3 || heads < 1 || shape[2] % heads != 0)
    l.fail("has an input of shape " + to_string(shape) + " and " + std::to_string(heads) + " heads");
  return l.transpose(l.reshape(x, {shape[0], shape[1], heads, shape[2] / heads}), {0, 2, 1, 3});
}

// Each head of keys or values for as many heads of queries, which follow one another.
std::string for_queries(Lowering& l, const std::string& x, int64_t heads) {
  const Shape shape = l.shape(x);
  if (shape[1] == heads) return x;
  if (shape[1] == 0 || heads % shape[1] != 0)
    l.fail("has " + std::to_string(heads) + " heads of queries for " + std::to_string(shape[1]));
  Shape apart = shape;
  apart.insert(apart.begin() + 2, 1);
  const std::string one = l.reshape(x, apart);
  apart[2] = heads / shape[1];
  const std::string all = l.emit("Expand", {one, l.add_constant(Constant::of_integers({apart.count()}, apart))});
  return l.reshape(all, {shape[0], heads, shape[2], shape[3]});
}

std::string causal_mask(Lowering& l, int64_t queries, int64_t keys) {
  constexpr int64_t most_elements = int64_t{1} << 30;
  if (keys > 0 && queries > most_elements / keys)
    l.fail("has a causal mask of " + std::to_string(queries) + " x " + std::to_string(keys) + " elements");
  Vector<float> values;
  for (int64_t query = 0; query < queries; ++query)
    for (int64_t key = 0; key < keys; ++key) values.push_back(key > query ? hidden : 0);
  return l.add_constant(Constant::of_floats({queries, keys}, std::move(values)));
}

bool is_condition(const Lowering& l, const std::string& x) {
  if (const Constant* constant = l.constant(x)) return constant->type == ElementType::boolean;
  const auto type = l.model.types.find(x);
  return type != l.model.types.end() && type->second == ElementType::boolean;
}

}  // namespace

// Softmax(scale query key^T + masks) value. What it keeps from call to call is not understood, nor is a limit of the
// scores, which operator sets apply before or after the masks.
bool lower_attention(Lowering& l) {
  if (l.node.has_input(4) || l.node.has_input(5) || l.node.has_input(6))
    l.fail("has past keys and values, or lengths, which are not understood");
  if (l.model.number(l.node, "softcap", 0) != 0) l.fail("has the attribute softcap, which is not understood");
  for (const char* window : {"left_window_size", "right_window_size"})
    if (l.model.integer(l.node, window, -1) >= 0)
      l.fail("has the attribute " + std::string(window) + ", which is not understood");
  for (const size_t output : {1u, 2u, 3u})
    if (is_read(l, output)) l.fail("has its output " + std::to_string(output) + " read, which is not understood");
  const std::string query = by_heads(l, l.input(0), "q_num_heads");
  const Shape shape = l.shape(query);
  const std::string key = for_queries(l, by_heads(l, l.input(1), "kv_num_heads"), shape[1]),
                    value = for_queries(l, by_heads(l, l.input(2), "kv_num_heads"), shape[1]);
  const double scale = l.model.number(l.node, "scale", 1 / std::sqrt(static_cast<double>(shape[3])));
  std::string scores = l.emit("Mul", {l.emit("MatMul", {query, l.transpose(key, {0, 1, 3, 2})}), l.number(scale)});
  if (l.node.has_input(3)) {
    if (is_condition(l, l.input(3))) scores = l.emit("Where", {l.input(3), scores, l.number(hidden)});
    else scores = l.emit("Add", {scores, l.input(3)});
  }
  if (l.model.integer(l.node, "is_causal", 0) != 0)
    scores = l.emit("Add", {scores, causal_mask(l, shape[2], l.shape(key)[2])});
  const std::string weights = l.emit("Softmax", {scores}, {{"axis", int64_t{3}}});
  const std::string y = l.emit("MatMul", {weights, value});
  l.give(0, l.reshape(l.shape(l.input(0)).size() == 4 ? y : l.transpose(y, {0, 2, 1, 3}),
                      l.model.shapes.at(l.node.outputs[0])));
  return true;
}

// Pairs of channels turned by the cosines and sines of their positions: channels i and i + n / 2, or neighbours.
bool lower_rotary_embedding(Lowering& l) {
  const Shape whole = l.shape(l.input(0));
  if (whole.size() != 3 && whole.size() != 4) l.fail("turns a tensor of shape " + to_string(whole));
  std::string cosine = l.input(1), sine = l.input(2);
  if (l.node.has_input(3)) {
    if (!l.constant(l.input(3))) l.fail("has positions that are not constant");
    for (std::string* table : {&cosine, &sine}) *table = l.emit("Gather", {*table, l.input(3)}, {{"axis", int64_t{0}}});
  }
  const Shape table = l.shape(cosine);
  if (table.size() != 3 || l.shape(sine) != table) l.fail("has tables of shape " + to_string(table));
  const int64_t heads = l.model.integer(l.node, "num_heads", 0), pairs = table[2], turned = 2 * pairs;
  std::string x = l.input(0);
  if (whole.size() == 3) {
    if (heads < 1 || whole[2] % heads != 0) l.fail("has " + std::to_string(heads) + " heads");
    x = l.reshape(x, {whole[0], whole[1], heads, whole[2] / heads});
  }
  const int64_t channels = l.shape(x)[3], asked = l.model.integer(l.node, "rotary_embedding_dim", 0);
  if (turned > channels || (asked != 0 && asked != turned))
    l.fail("turns " + std::to_string(asked) + " of " + std::to_string(channels) + " channels by tables of shape " +
           to_string(table));
  // Positions are the third axis, or the second of what has been cut into heads here.
  const Shape along = whole.size() == 4 ? Shape{table[0], 1, table[1], pairs} : Shape{table[0], table[1], 1, pairs};
  cosine = l.reshape(cosine, along);
  sine = l.reshape(sine, along);
  const std::string part = l.slice(x, 3, 0, turned);
  const bool neighbours = l.model.integer(l.node, "interleaved", 0) != 0;
  Shape shape = l.shape(part), apart = shape;
  apart.back() = pairs;
  apart.insert(apart.begin() + (neighbours ? 4 : 3), 2);
  const int pair_axis = neighbours ? 4 : 3;
  const std::string both = l.reshape(part, apart);
  shape.back() = pairs;
  const std::string first = l.reshape(l.slice(both, pair_axis, 0, 1), shape),
                    second = l.reshape(l.slice(both, pair_axis, 1, 2), shape);
  std::string left = l.emit("Sub", {l.emit("Mul", {first, cosine}), l.emit("Mul", {second, sine})}),
              right = l.emit("Add", {l.emit("Mul", {first, sine}), l.emit("Mul", {second, cosine})});
  if (neighbours) {
    shape.push_back(1);
    left = l.reshape(left, shape);
    right = l.reshape(right, shape);
    shape.pop_back();
  }
  shape.back() = turned;
  std::string y = l.reshape(l.concat({left, right}, neighbours ? 4 : 3), shape);
  if (turned < channels) y = l.concat({y, l.slice(x, 3, turned, channels)}, 3);
  l.give(0, l.reshape(y, whole));
  return true;
}

// After a softmax alone: rows of which everything is hidden. (PyTorch's exporter makes zeros of them.)
bool lower_is_nan(Lowering& l) {
  const auto producers = l.model.producers();
  std::string from = l.input(0);
  while (producers.count(from) && producers.at(from)->op == "Identity") from = producers.at(from)->inputs[0];
  const auto softmax = producers.find(from);
  if (softmax == producers.end() || softmax->second->op != "Softmax") return false;
  const Node& node = *softmax->second;
  const int64_t axis = l.model.axis(node, l.model.integer(node, "axis", -1), l.shape(node.inputs[0]).size());
  const std::string largest = l.emit("ReduceMax", {node.inputs[0]}, {{"axes", Vector<int64_t>{axis}}});
  const std::string nothing = l.emit("Less", {largest, l.number(hidden / 2)});
  l.model.types[nothing] = ElementType::boolean;
  l.give(0,
         l.emit("Expand",
                {nothing, l.add_constant(Constant::of_integers({l.shape(l.input(0)).count()}, l.shape(l.input(0))))}));
  return true;
}

}  // namespace ff::importing
