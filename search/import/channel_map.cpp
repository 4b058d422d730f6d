#include "search/import/channel_map.h"

namespace ff::importing {

const ChannelMap* ChannelMaps::of(const std::string& tensor, int depth) {
  constexpr int deepest = 32;
  if (const auto it = known_.find(tensor); it != known_.end()) return it->second ? &*it->second : nullptr;
  const auto producer = producers_.find(tensor);
  if (producer == producers_.end() || depth > deepest) return nullptr;
  auto map = found(tensor, *producer->second, depth);
  const auto& kept = known_[tensor] = std::move(map);
  return kept ? &*kept : nullptr;
}

bool ChannelMaps::cut(const Shape& shape, int axis, int64_t& outer, int64_t& inner) const {
  int64_t before = 1;
  for (int other = 1; other < axis; ++other) before *= shape[other];
  inner = 1;
  for (int other = axis + 1; other < shape.count(); ++other) inner *= shape[other];
  outer = before / length_;
  return before % length_ == 0;
}

std::optional<ChannelMap> ChannelMaps::found(const std::string& tensor, const Operator& op, int depth) {
  if (op.type == "linear") {
    const Shape& shape = builder_.shape(tensor);
    if (shape.size() != 3 || op.attributes.contains("activation") || (length_ != 0 && length_ != shape[1]))
      return std::nullopt;
    length_ = shape[1];
    ChannelMap map{&op, {}};
    for (int64_t row = 0; row < shape[2]; ++row) map.channels.push_back({{ChannelTerm{row}}, 1});
    return map;
  }
  if (op.type == "concat") return joined(op, depth);
  if (op.type == "add" || op.type == "sub") return summed(op, depth);
  static const std::set<std::string> of_one = {"reshape", "affine", "slice", "split", "transpose", "broadcast_mul"};
  const ChannelMap* from = of_one.count(op.type) && op.inputs.size() == 1 ? of(op.inputs[0], depth + 1) : nullptr;
  if (!from) return std::nullopt;
  const Shape& shape = builder_.shape(op.inputs[0]);
  if (op.type == "reshape") return *from;
  if (op.type == "broadcast_mul") return scaled(*from, op);
  if (op.type == "transpose") return transposed(*from, op);
  if (op.type == "affine") {
    if (op.attributes.value("offset", 0.0) != 0) return std::nullopt;
    ChannelMap map = *from;
    for (ChannelSum& sum : map.channels)
      for (int i = 0; i < sum.count; ++i)
        sum.terms[static_cast<size_t>(i)].factor *= op.attributes.value("factor", 1.0);
    return map;
  }
  const int axis = op.attributes["axis"].get<int>();
  if (op.type == "slice")
    return sliced(*from, shape, axis, op.attributes["begin"].get<int64_t>(), op.attributes["end"].get<int64_t>());
  int64_t begin = 0;
  for (const int output : op.outputs.indices()) {
    const int64_t end = begin + op.attributes["sizes"][static_cast<size_t>(output)].get<int64_t>();
    if (op.outputs[output] == tensor) return sliced(*from, shape, axis, begin, end);
    begin = end;
  }
  return std::nullopt;
}

std::optional<ChannelMap> ChannelMaps::sliced(const ChannelMap& map, const Shape& shape, int axis, int64_t begin,
                                              int64_t end) {
  int64_t outer, inner;
  if (!cut(shape, axis, outer, inner)) return std::nullopt;
  ChannelMap result{map.linear, {}};
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = begin * inner; i < end * inner; ++i)
      result.channels.push_back(map.channels[o * shape[axis] * inner + i]);
  return result;
}

std::optional<ChannelMap> ChannelMaps::joined(const Operator& op, int depth) {
  const int axis = op.attributes["axis"].get<int>();
  Vector<const ChannelMap*> parts;
  for (const std::string& input : op.inputs) {
    parts.push_back(of(input, depth + 1));
    if (!parts.back() || parts.back()->linear != parts[0]->linear) return std::nullopt;
  }
  ChannelMap result{parts[0]->linear, {}};
  int64_t outer, inner;
  if (!cut(builder_.shape(op.inputs[0]), axis, outer, inner)) return std::nullopt;
  for (int64_t o = 0; o < outer; ++o)
    for (const int part : parts.indices()) {
      const int64_t run = parts[part]->channels.count() / outer;
      for (int64_t i = o * run; i < (o + 1) * run; ++i) result.channels.push_back(parts[part]->channels[i]);
    }
  return result;
}

std::optional<ChannelMap> ChannelMaps::summed(const Operator& op, int depth) {
  std::optional<ChannelMap> result;
  for (const int input : op.inputs.indices()) {
    const ChannelMap* part = of(op.inputs[input], depth + 1);
    if (!part || (result && part->linear != result->linear)) return std::nullopt;
    if (!result) {
      result = *part;
      continue;
    }
    for (const int channel : result->channels.indices()) {
      ChannelSum& sum = result->channels[channel];
      const ChannelSum& other = part->channels[channel];
      if (sum.count + other.count > 2) return std::nullopt;
      for (int i = 0; i < other.count; ++i) {
        ChannelTerm term = other.terms[static_cast<size_t>(i)];
        if (op.type == "sub") term.factor *= -1;
        sum.terms[static_cast<size_t>(sum.count++)] = term;
      }
    }
  }
  return result;
}

std::optional<ChannelMap> ChannelMaps::scaled(const ChannelMap& map, const Operator& op) {
  const auto weight = builder_.parameters().find(op.name + ".weight");
  if (op.attributes.value("trained", true) || weight == builder_.parameters().end()) return std::nullopt;
  const Shape& shape = builder_.shape(op.inputs[0]);
  if (shape[1] % length_ != 0) return std::nullopt;
  // Of an index into the tensor, row-major without the batch, that into the constant.
  const Shape& sizes = weight->second.constant.shape;
  Vector<int64_t> strides(shape.size(), 0);
  int64_t stride = 1;
  for (int i = sizes.count() - 1; i >= 0; --i) {
    strides[op.attributes["axes"][static_cast<size_t>(i)].get<int>()] = stride;
    stride *= sizes[i];
  }
  const int64_t rows = shape[1] / length_;  // of the second axis that are of one position
  ChannelMap result = map;
  for (int64_t channel = 0; channel < result.channels.count(); ++channel) {
    int64_t rest = channel, offset = 0;
    for (int axis = shape.count() - 1; axis > 1; rest /= shape[axis--]) offset += rest % shape[axis] * strides[axis];
    offset += rest * strides[1];
    ChannelSum& sum = result.channels[channel];
    for (int i = 0; i < sum.count; ++i) {
      ChannelTerm& term = sum.terms[static_cast<size_t>(i)];
      if (strides[1] == 0) {
        term.factor *= (*weight->second.constant.floats)[offset];
        continue;
      }
      if (term.table) return std::nullopt;
      term.table = &*weight->second.constant.floats;
      term.stride = rows * strides[1];
      term.offset = offset;
    }
  }
  return result;
}

// Positions stay first.
std::optional<ChannelMap> ChannelMaps::transposed(const ChannelMap& map, const Operator& op) {
  const Shape& shape = builder_.shape(op.inputs[0]);
  const Vector<int> order = op.attributes["axes"].get<std::vector<int>>();
  if (order[0] != 1 || shape[1] % length_ != 0) return std::nullopt;
  Shape sizes, own = shape;  // of one position
  own[1] /= length_;
  Vector<int64_t> strides(shape.size(), 1);
  for (int axis = shape.count() - 2; axis > 0; --axis) strides[axis] = strides[axis + 1] * own[axis + 1];
  for (const int axis : order) sizes.push_back(own[axis]);
  ChannelMap result{map.linear, {}};
  for (int64_t channel = 0; channel < map.channels.count(); ++channel) {
    int64_t rest = channel, from = 0;
    for (int i = order.count() - 1; i >= 0; rest /= sizes[i--]) from += rest % sizes[i] * strides[order[i]];
    result.channels.push_back(map.channels[from]);
  }
  return result;
}

}  // namespace ff::importing
