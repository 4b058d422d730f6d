// What the graph says, whatever the strategy: who follows whom, and who shares parameters.
#pragma once

#include "common/task_graph/task_graph.h"
#include "common/vector.h"

namespace ff::delta {

struct NetworkStructure {
  explicit NetworkStructure(TaskGraphBuilder& builder);

  OperatorId count() const { return static_cast<OperatorId>(graph.operators.size()); }
  bool has_backward(OperatorId op) const { return graph.operators[op].has_backward; }
  const Edge& edge(int e) const { return builder.edges()[e]; }

  TaskGraphBuilder& builder;
  const Graph& graph;
  Vector<Vector<int>> in_edges, out_edges;  // [operator]; out_edges tensor by tensor
  // [direction][operator]: where its results go: forward to consumers, backward as gradients to producers
  struct Successor {
    int edge;
    OperatorId op;
  };
  PerDirection<Vector<Vector<Successor>>> successors;
  Vector<Vector<OperatorId>> around;                 // [operator]: itself and its neighbours
  Vector<Vector<std::pair<int, size_t>>> groups_of;  // [operator]: (trained group, position in it)
  Vector<uint8_t> may_have_statistics;               // [operator]: under some degrees
  Vector<OperatorId> with_statistics;                // those of which that is true
  // Backward: operators that alone have their parameters, and the next ones after them that may have statistics. Each
  // part of the former comes before some part of the latter.
  struct NextStatistics {
    OperatorId op, next;
  };
  Vector<NextStatistics> next_statistics;
  Vector<Vector<int>> next_statistics_of, next_statistics_for;  // [operator]: as the former, as the latter
  Vector<uint8_t> edge_has_gradient;                            // [edge]
  Vector<uint8_t> every_part_reads, every_part_is_read;         // [edge]

 private:
  void find_next_statistics();
};

}  // namespace ff::delta
