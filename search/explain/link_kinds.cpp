#include "search/explain/link_kinds.h"

#include <algorithm>

namespace ff {
namespace {

// "node0.gpu3" is a gpu.
std::string kind_of_end(const std::string& name) {
  const size_t dot = name.find_last_of('.');
  std::string kind;
  for (const char letter : name.substr(dot == std::string::npos ? 0 : dot + 1))
    if (letter < '0' || letter > '9') kind += letter;
  return kind.empty() ? name : kind;
}

std::pair<std::string, std::string> ends_of(const std::string& channel) {
  for (const std::string arrow : {" -> ", " <-> "}) {
    const size_t at = channel.find(arrow);
    if (at == std::string::npos) continue;
    std::pair<std::string, std::string> ends{kind_of_end(channel.substr(0, at)),
                                             kind_of_end(channel.substr(at + arrow.size()))};
    if (ends.first > ends.second) std::swap(ends.first, ends.second);
    return ends;
  }
  return {channel, channel};
}

}  // namespace

LinkKinds::LinkKinds(const Topology& topology) {
  for (const ChannelId channel : topology.channels.indices()) {
    const auto ends = ends_of(topology.channel_name(channel));
    const auto found = std::find(ends_.begin(), ends_.end(), ends);
    kind_of_.push_back(static_cast<int>(found - ends_.begin()));
    if (found != ends_.end()) continue;
    ends_.push_back(ends);
    names_.push_back(ends.first + "-" + ends.second);
  }
}

Vector<ChannelId> LinkKinds::channels_of(int kind) const {
  Vector<ChannelId> channels;
  for (const ChannelId channel : kind_of_.indices())
    if (kind_of_[channel] == kind) channels.push_back(channel);
  return channels;
}

Vector<int> LinkKinds::matching(const std::string& word) const {
  Vector<int> kinds;
  for (const int kind : names_.indices())
    if (names_[kind] == word) return {kind};
    else if (ends_[kind].first == word || ends_[kind].second == word) kinds.push_back(kind);
  return kinds;
}

int LinkKinds::binding_kind(const TaskCosts& costs, int task) const {
  int kind = -1;
  Nanoseconds longest = 0;
  for (const ResourceUse& use : costs.uses_of(task)) {
    if (costs.is_device(use.resource) || use.occupancy <= longest) continue;
    longest = use.occupancy;
    kind = kind_of_[costs.channel_of(use.resource)];
  }
  return kind;
}

}  // namespace ff
