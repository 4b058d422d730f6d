#include "search/import/attention_heads.h"

#include <algorithm>
#include <cmath>

namespace ff::importing {
namespace {

// What a head's channel is: a row alone, or turned with another one.
struct Channel {
  int64_t row = 0, other = -1;
  double factor = 1;  // of the row at position 0
  double angle = 0;   // for each position
  double sign = 0;    // of the other row: -1 in the first channel of a pair, 1 in the second
  const ChannelTerm *cosine = nullptr, *sine = nullptr;
};

std::optional<Channel> channel_of(const ChannelSum& sum) {
  Channel channel;
  const ChannelTerm *first = &sum.terms[0], *second = &sum.terms[1];
  if (sum.count == 1) {
    if (first->table) return std::nullopt;
    channel.row = first->row;
    channel.factor = first->factor;
    return channel;
  }
  if (sum.count != 2 || first->row == second->row || !first->table || !second->table) return std::nullopt;
  if (first->at(0) == 0) std::swap(first, second);
  if (first->at(0) == 0 || second->at(0) != 0) return std::nullopt;
  channel.row = first->row;
  channel.other = second->row;
  channel.factor = first->at(0);
  const double cosine = first->at(1) / channel.factor, sine = second->at(1) / channel.factor;
  channel.angle = std::atan2(std::abs(sine), cosine);
  channel.sign = sine < 0 ? -1 : 1;
  channel.cosine = first;
  channel.sine = second;
  return channel.angle > 0 ? std::optional(channel) : std::nullopt;
}

// The factors of two channels are those of one table, or the same numbers.
bool are_equal(const ChannelTerm& a, const ChannelTerm& b, int64_t length) {
  if (a.table == b.table && a.stride == b.stride && a.offset == b.offset) return a.factor == b.factor;
  for (int64_t position = 0; position < length; ++position)
    if (a.at(position) != b.at(position)) return false;
  return true;
}

// The base of which the angles are powers: 10000 rather than 9999.998, which single precision makes of it.
double base_of(double last_angle, int64_t pairs) {
  constexpr double usual = 10000;
  if (pairs == 1) return usual;
  const double base = std::pow(last_angle, -static_cast<double>(pairs) / static_cast<double>(pairs - 1));
  const double whole = std::round(base);
  return std::abs(base - whole) < 1e-3 * whole ? whole : base;
}

// Are the factors the cosines and sines of all positions? Tables hold products of single precision, whose error grows
// with the angle.
bool are_turned_by(const Channel& channel, double angle, int64_t length) {
  for (int64_t position = 0; position < length; ++position) {
    const double turned = angle * static_cast<double>(position), error = 3e-6 + 6e-7 * turned;
    const double cosine = channel.cosine->at(position) / channel.factor,
                 sine = channel.sine->at(position) / channel.factor;
    if (!(std::abs(cosine - std::cos(turned)) <= error) || !(std::abs(sine - channel.sign * std::sin(turned)) <= error))
      return false;
  }
  return true;
}

// Finds the pairs of the first head, and with them `turned`, `base` and `order`.
bool find_rotation(const Vector<Channel>& head, int64_t length, HeadRows& result) {
  Vector<std::pair<int, int>> pairs;  // of channels
  for (const int first : head.indices()) {
    if (head[first].other < 0 || head[first].sign > 0) continue;
    int second = -1;
    for (const int channel : head.indices())
      if (head[channel].row == head[first].other && head[channel].other == head[first].row && head[channel].sign > 0)
        second = channel;
    if (second < 0) return false;
    pairs.emplace_back(first, second);
  }
  std::stable_sort(pairs.begin(), pairs.end(),
                   [&](const auto& a, const auto& b) { return head[a.first].angle > head[b.first].angle; });
  result.turned = 2 * pairs.count();
  if (!pairs.empty()) {
    if (length < 2) return false;
    result.base = base_of(head[pairs.back().first].angle, pairs.count());
    if (!(result.base >= 1 && result.base < 1e12)) return false;
  }
  for (const int i : pairs.indices()) {
    const double angle = std::pow(result.base, -2.0 * i / static_cast<double>(result.turned));
    if (!are_turned_by(head[pairs[i].first], angle, length) || !are_turned_by(head[pairs[i].second], angle, length))
      return false;
    result.order.push_back(pairs[i].first);
  }
  for (const auto& [first, second] : pairs) result.order.push_back(second);
  for (const int channel : head.indices())
    if (head[channel].other < 0) result.order.push_back(channel);
  return result.order.size() == head.size();
}

}  // namespace

std::optional<HeadRows> head_rows(const ChannelMap& map, int64_t length, int64_t heads) {
  const int64_t size = map.channels.count() / heads;
  if (map.channels.count() != heads * size || size == 0) return std::nullopt;
  HeadRows result;
  result.linear = map.linear;
  result.heads = heads;
  result.head_channels = size;
  Vector<Channel> first;
  for (int64_t h = 0; h < heads; ++h) {
    Vector<Channel> head;
    for (int64_t i = 0; i < size; ++i) {
      const auto channel = channel_of(map.channels[h * size + i]);
      if (!channel) return std::nullopt;
      head.push_back(*channel);
    }
    if (h == 0) {
      first = head;
      result.factor = head[0].factor;
      if (!find_rotation(head, length, result)) return std::nullopt;
    }
    // Pairs are rows of the same channels in each head.
    for (const int i : head.indices()) {
      const Channel &own = head[i], &model = first[i];
      if (own.factor != result.factor || (own.other < 0) != (model.other < 0)) return std::nullopt;
      if (own.other < 0 || h == 0) continue;
      if (!are_equal(*own.cosine, *model.cosine, length) || !are_equal(*own.sine, *model.sine, length))
        return std::nullopt;
      for (const int partner : first.indices())
        if (first[partner].row == model.other && head[partner].row != own.other) return std::nullopt;
    }
    for (const int channel : result.order) result.rows.push_back(head[channel].row);
  }
  return result;
}

std::optional<SharedHeads> shared_heads(const HeadRows& heads) {
  const auto begin = heads.rows.begin();
  const auto same_as_first = [&](int64_t head) {
    return std::equal(begin, begin + heads.head_channels, begin + head * heads.head_channels);
  };
  SharedHeads result;
  while (result.group < heads.heads && same_as_first(result.group)) ++result.group;
  if (heads.heads % result.group != 0) return std::nullopt;
  for (int64_t head = 0; head < heads.heads; ++head) {
    const auto own = begin + head * heads.head_channels;
    if (head % result.group == 0) result.rows.insert(result.rows.end(), own, own + heads.head_channels);
    else if (!std::equal(own, own + heads.head_channels, own - head % result.group * heads.head_channels))
      return std::nullopt;
  }
  return result;
}

}  // namespace ff::importing
