#include "search/simulator/delta/network_structure.h"

#include <algorithm>

namespace ff::delta {

NetworkStructure::NetworkStructure(TaskGraphBuilder& builder_) : builder(builder_), graph(builder_.graph()) {
  const size_t operator_count = graph.operators.size();
  for (auto* edges : {&in_edges, &out_edges}) edges->resize(operator_count);
  for (Direction direction : directions) successors[direction].resize(operator_count);
  around.resize(operator_count);
  groups_of.resize(operator_count);
  for (size_t e = 0; e < builder.edges().size(); ++e) {
    const Edge& edge = builder.edges()[e];
    in_edges[edge.consumer].push_back(static_cast<int>(e));
    out_edges[edge.producer].push_back(static_cast<int>(e));
    around[edge.consumer].push_back(edge.producer);
    around[edge.producer].push_back(edge.consumer);
    const OperatorDefinition& consumer = *graph.operators[edge.consumer].definition;
    every_part_reads.push_back(consumer.every_part_reads(edge.input));
    every_part_is_read.push_back(consumer.reads_every_element(edge.input));
    edge_has_gradient.push_back(has_gradient(graph, edge));
  }
  for (OperatorId op = 0; op < count(); ++op) {
    // Contributions to gradients are counted tensor by tensor.
    std::stable_sort(out_edges[op].begin(), out_edges[op].end(),
                     [&](int a, int b) { return builder.edges()[a].tensor < builder.edges()[b].tensor; });
    for (int e : out_edges[op]) successors[Direction::forward][op].push_back({e, edge(e).consumer});
    for (int e : in_edges[op])
      if (edge_has_gradient[e]) successors[Direction::backward][op].push_back({e, edge(e).producer});
    around[op].push_back(op);
    sort_and_unique(around[op]);
    may_have_statistics.push_back(graph.operators[op].definition->may_have_statistics());
    if (may_have_statistics[op]) with_statistics.push_back(op);
  }
  for (size_t g = 0; g < builder.groups().size(); ++g)
    if (builder.groups()[g].trained)
      for (size_t position = 0; position < builder.groups()[g].operators.size(); ++position)
        groups_of[builder.groups()[g].operators[position]].push_back({static_cast<int>(g), position});
  find_next_statistics();
}

void NetworkStructure::find_next_statistics() {
  for (auto* numbers : {&next_statistics_of, &next_statistics_for}) numbers->resize(count());
  Vector<Vector<OperatorId>> next(count());  // [operator]: in front of it, through operators without statistics
  for (OperatorId op = 0; op < count(); ++op) {
    for (int e : in_edges[op]) {
      const OperatorId producer = edge(e).producer;
      if (!edge_has_gradient[e] || !every_part_reads[e]) continue;
      if (may_have_statistics[producer]) next[op].push_back(producer);
      else next[op].insert(next[op].end(), next[producer].begin(), next[producer].end());
    }
    sort_and_unique(next[op]);
    const bool alone = std::any_of(groups_of[op].begin(), groups_of[op].end(), [this](const auto& group) {
      return builder.groups()[group.first].operators.size() == 1;
    });
    if (!alone || !has_backward(op)) continue;
    for (const OperatorId producer : next[op]) {
      const int number = next_statistics.count();
      next_statistics.push_back({op, producer});
      next_statistics_of[op].push_back(number);
      next_statistics_for[producer].push_back(number);
    }
  }
}

}  // namespace ff::delta
