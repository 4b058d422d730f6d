// A transformer with fewer layers: enough to know what each of them costs.
#pragma once

#include <map>
#include <optional>

#include "common/graph.h"

namespace ff {

// The same network without the last layers of the given number of them. Nothing where layers are not alike: other
// operators, or other shapes, or parameters that several layers share; inputs that are not of the layer itself, of the
// one before it, or of what is in front of all; what is behind the last layer and reads others.
std::optional<Graph> with_fewer_layers(const Graph& graph, int layers);

// Those that were asked for, of one network. Not thread-safe.
class FewerLayers {
 public:
  explicit FewerLayers(const Graph& graph) : graph_(graph) {}
  const Graph& graph() const { return graph_; }
  const Graph* with(int layers);  // null: there are none

 private:
  const Graph& graph_;
  std::map<int, std::optional<Graph>> known_;
};

}  // namespace ff
