// Queries, keys and values as multi_head_attention has them: which rows of a linear operator each head's channels are,
// and by which angles they are turned.
#pragma once

#include "search/import/channel_map.h"

namespace ff::importing {

// A tensor [batch, length, heads, head channels] as rows of a linear operator, all times one factor.
struct HeadRows {
  const Builder::Operator* linear = nullptr;
  int64_t heads = 0, head_channels = 0;
  Vector<int64_t> rows;  // of each head, channel by channel
  double factor = 1;
  // Rotary positions (Su et al. 2021): the first `turned` channels, in pairs of i and i + turned / 2, by position *
  // base^(-2 i / turned).
  int64_t turned = 0;
  double base = 0;
  // The tensor's channels in the order of `rows`: rotation may pair others, such as neighbours. Scores do not depend
  // on the order where queries and keys have the same one.
  Vector<int> order;
};

// Nothing where the channels are anything else.
std::optional<HeadRows> head_rows(const ChannelMap& map, int64_t length, int64_t heads);

// Keys and values that several heads of queries have in common: one of each, and how many use it. Nothing where heads
// that use the same one do not follow one another.
struct SharedHeads {
  int64_t group = 1;
  Vector<int64_t> rows;  // of each different head
};
std::optional<SharedHeads> shared_heads(const HeadRows& heads);

}  // namespace ff::importing
