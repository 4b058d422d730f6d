// Minimizes a sum of cost tables over one choice a node: node and edge elimination (Jia et al. 2018, arXiv 1802.04924,
// section 5.2), carried on as bucket elimination where more than two neighbours remain.
#pragma once

#include "common/vector.h"
#include "search/cost/duration.h"

namespace ff {

// cost(choice) = sum of node_costs[n][choice[n]] + sum over edges of costs[choice[a] * (choices of b) + choice[b]].
struct CostTables {
  Vector<Vector<Nanoseconds>> node_costs;  // [node][choice]; every node has at least one choice
  struct Edge {
    int a, b;                   // different nodes; an edge may stand more than once
    Vector<Nanoseconds> costs;  // [choice of a][choice of b]
  };
  Vector<Edge> edges;

  Nanoseconds cost(const Vector<int>& choice) const;
};

struct TableMinimum {
  Vector<int> choice;  // by node
  Nanoseconds cost = 0;
  int not_eliminated = 0;  // nodes that were left when the next table would have been too large
  bool exact() const { return not_eliminated == 0; }
};

// Eliminates a node by making, for every combination of its neighbours' choices, its own best one: with one or two
// neighbours that is the paper's node elimination (and tables of the same nodes are added up: edge elimination); a
// series-parallel graph needs nothing else. With more neighbours the new table has as many axes. The node whose
// elimination takes the fewest steps comes first. When that is more than `most_steps`, the nodes left are improved one
// after the other from several starts, and the minimum is not proven.
TableMinimum minimize(const CostTables& tables, double most_steps = 1e9);

}  // namespace ff
