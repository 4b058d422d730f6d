// What parts of one device exchange over an edge, found without looking at all other parts.
#pragma once

#include <cstdint>
#include <memory>

#include "common/strategy.h"
#include "common/task_graph/collectives.h"
#include "common/task_graph/edges.h"
#include "common/vector.h"

namespace ff {

// Some parts of both ends of an edge, ascending.
struct EdgeParts {
  const Vector<int32_t>&producers, &consumers;
};

// The pairs, of intersect_blocks, that have one of these parts at an end.
BlockPairs pairs_of_parts(const Graph& graph, const Edge& edge, const Strategy& strategy, const EdgeParts& own);

// False where the exchange of these parts, of which there is one at least, shows that the edge has no collectives.
bool may_have_collectives(const Graph& graph, const Edge& edge, const Strategy& strategy, const EdgeParts& own,
                          int least_size);

// The collectives of edges, found once for edges between equal operators in equal configurations, as layers are.
// `alike` gives operators with equal blocks (part_blocks.h) equal numbers; `least_size`: devices of a collective. All
// must outlive this.
class EdgeCollectives {
 public:
  EdgeCollectives(const Graph& graph, const Strategy& strategy, const Vector<int>& alike, int least_size)
      : graph_(graph), strategy_(strategy), alike_(alike), least_size_(least_size) {}

  struct Found {
    std::shared_ptr<const EdgeExchanges> exchanges;
    Vector<Collective> collectives;  // by exchange; empty: the edge has transfers
  };
  const Found& of(const Edge& edge);

 private:
  bool alike(const Edge& a, const Edge& b) const;

  const Graph& graph_;
  const Strategy& strategy_;
  const Vector<int>& alike_;
  const int least_size_;
  Vector<std::pair<Edge, std::unique_ptr<Found>>> found_;
};

}  // namespace ff
