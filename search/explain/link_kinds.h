// Links as people speak of them: "gpu-host", "host-network".
#pragma once

#include <string>

#include "common/topology.h"
#include "search/cost/duration.h"

namespace ff {

// A channel's kind is the names of both its ends, without the node and without numbers, in alphabetical order:
// thousands of channels of a cluster are a handful of kinds.
class LinkKinds {
 public:
  explicit LinkKinds(const Topology& topology);

  const Vector<std::string>& names() const { return names_; }  // [kind], in order of the first channel
  int of_channel(ChannelId channel) const { return kind_of_[channel]; }
  Vector<ChannelId> channels_of(int kind) const;
  // The kind of this name, or all that have an end of this name; empty: there are none.
  Vector<int> matching(const std::string& word) const;
  // Of the channel that a task occupies longest; -1: it occupies none.
  int binding_kind(const TaskCosts& costs, int task) const;

 private:
  Vector<std::string> names_;
  Vector<std::pair<std::string, std::string>> ends_;  // [kind]
  Vector<int> kind_of_;                               // [channel]
};

}  // namespace ff
