// What a tensor is of the output of one linear operator where only single positions count: slices, copies, joins,
// products with constants and sums of its channels. Attention's queries, keys and values are such tensors, in whatever
// way a model cuts the projections into heads, turns them by their positions (rotary embeddings) or repeats them for
// several heads. Each channel is followed on its own, so that nothing depends on the order of these operators.
#pragma once

#include <array>
#include <map>
#include <optional>

#include "search/import/builder.h"

namespace ff::importing {

// A row of the linear operator's weight, times a number that may depend on the position.
struct ChannelTerm {
  int64_t row = 0;
  double factor = 1;
  const Vector<float>* table = nullptr;  // times table[position * stride + offset]
  int64_t stride = 0, offset = 0;

  double at(int64_t position) const { return factor * (table ? (*table)[position * stride + offset] : 1.0f); }
};

// Rotation makes a channel of two.
struct ChannelSum {
  std::array<ChannelTerm, 2> terms;
  int count = 0;
};

struct ChannelMap {
  const Builder::Operator* linear = nullptr;  // [batch, length, rows]
  Vector<ChannelSum> channels;                // of one position, row-major
};

// The maps of one place in a graph; tensors that lead there on several ways are followed once.
class ChannelMaps {
 public:
  explicit ChannelMaps(const Builder& builder, const std::map<std::string, const Builder::Operator*>& producers)
      : builder_(builder), producers_(producers) {}

  // Of a tensor [batch, length, ...], or null where it is something else.
  const ChannelMap* of(const std::string& tensor, int depth = 0);

 private:
  using Operator = Builder::Operator;

  std::optional<ChannelMap> found(const std::string& tensor, const Operator& op, int depth);
  std::optional<ChannelMap> sliced(const ChannelMap& map, const Shape& shape, int axis, int64_t begin, int64_t end);
  std::optional<ChannelMap> joined(const Operator& op, int depth);
  std::optional<ChannelMap> summed(const Operator& op, int depth);
  std::optional<ChannelMap> scaled(const ChannelMap& map, const Operator& op);
  std::optional<ChannelMap> transposed(const ChannelMap& map, const Operator& op);
  // Axes [1, axis) without the positions, axis, and what is after it: false where the axis has the positions.
  bool cut(const Shape& shape, int axis, int64_t& outer, int64_t& inner) const;

  const Builder& builder_;
  const std::map<std::string, const Operator*>& producers_;
  int64_t length_ = 0;
  std::map<std::string, std::optional<ChannelMap>> known_;
};

}  // namespace ff::importing
