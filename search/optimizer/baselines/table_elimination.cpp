#include "search/optimizer/baselines/table_elimination.h"

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>

namespace ff {
namespace {

constexpr Nanoseconds no_cost = std::numeric_limits<Nanoseconds>::max();

// A cost for every combination of choices of some nodes, row-major in the order of `nodes` (ascending).
struct Table {
  Vector<int> nodes;
  Vector<Nanoseconds> costs;
};

class Elimination {
 public:
  Elimination(const CostTables& tables, double most_steps) : most_steps_(most_steps) {
    for (int node : tables.node_costs.indices()) {
      sizes_.push_back(tables.node_costs[node].count());
      add({{node}, tables.node_costs[node]});
    }
    for (const CostTables::Edge& edge : tables.edges) {
      if (edge.a < edge.b) add({{edge.a, edge.b}, edge.costs});
      else add({{edge.b, edge.a}, transposed(edge)});
    }
    alive_.assign(sizes_.size(), true);
    choice_.assign(sizes_.size(), 0);
    steps_.assign(sizes_.size(), 0);
    for (const int node : sizes_.indices()) queue(node);
  }

  TableMinimum run(const CostTables& tables) {
    TableMinimum minimum;
    minimum.choice.assign(sizes_.size(), 0);
    int left = sizes_.count();
    while (left > 0) {
      const int node = cheapest();
      if (node < 0) break;
      eliminate(node);
      --left;
    }
    minimum.not_eliminated = left;
    if (left > 0) improve_rest(minimum.choice);
    for (size_t i = decisions_.size(); i-- > 0;) {
      const Decision& decision = decisions_[i];
      minimum.choice[decision.node] = decision.best[index_of(decision.neighbours, minimum.choice)];
    }
    minimum.cost = tables.cost(minimum.choice);
    return minimum;
  }

 private:
  struct Decision {
    int node;
    Vector<int> neighbours, best;  // best choice for each combination of the neighbours'
  };

  Vector<Nanoseconds> transposed(const CostTables::Edge& edge) const {
    const int64_t a = sizes_[edge.a], b = sizes_[edge.b];
    Vector<Nanoseconds> costs(a * b);
    for (int64_t i = 0; i < a; ++i)
      for (int64_t j = 0; j < b; ++j) costs[j * a + i] = edge.costs[i * b + j];
    return costs;
  }

  // Of a combination of choices in a table of these nodes.
  int64_t index_of(const Vector<int>& nodes, const Vector<int>& choice) const {
    int64_t index = 0;
    for (int node : nodes) index = index * sizes_[node] + choice[node];
    return index;
  }

  // Edge elimination: tables of the same nodes are added up.
  void add(Table table) {
    const auto [known, added] = table_of_nodes_.try_emplace(table.nodes, tables_.count());
    if (!added) {
      Vector<Nanoseconds>& costs = tables_[known->second].costs;
      for (size_t i = 0; i < table.costs.size(); ++i) costs[i] += table.costs[i];
      return;
    }
    for (const int node : table.nodes) {
      if (node >= tables_with_.count()) tables_with_.resize(static_cast<size_t>(node) + 1);
      tables_with_[node].push_back(known->second);
    }
    tables_.push_back(std::move(table));
  }

  Vector<int> neighbours(int node) const {
    Vector<int> result;
    for (const int table : tables_with_[node])
      for (int other : tables_[table].nodes)
        if (other != node) result.push_back(other);
    sort_and_unique(result);
    return result;
  }

  // By the steps that its elimination takes now.
  void queue(int node) {
    by_steps_.erase({steps_[node], node});
    steps_[node] = sizes_[node];
    for (const int other : neighbours(node)) steps_[node] *= sizes_[other];
    by_steps_.emplace(steps_[node], node);
  }

  // Of the nodes left; the first of several. -1: none takes few enough steps.
  int cheapest() const {
    if (by_steps_.empty() || by_steps_.begin()->first > most_steps_) return -1;
    return by_steps_.begin()->second;
  }

  // The node's tables, which are no longer among the others.
  Vector<Table> taken_tables(int node) {
    Vector<Table> own;
    for (const int number : Vector<int>(tables_with_[node])) {
      Table& table = tables_[number];
      table_of_nodes_.erase(table.nodes);
      for (const int other : table.nodes) std::erase(tables_with_[other], number);
      own.push_back(std::move(table));
      table = {};
    }
    return own;
  }

  void eliminate(int node) {
    Decision decision{node, neighbours(node), {}};
    const Vector<Table> own = taken_tables(node);
    int64_t combinations = 1;
    for (int other : decision.neighbours) combinations *= sizes_[other];
    Table merged{decision.neighbours, Vector<Nanoseconds>(combinations, no_cost)};
    decision.best.assign(combinations, 0);
    Vector<Nanoseconds> sums(sizes_[node]);
    Vector<int>& choice = choice_;
    for (const int other : decision.neighbours) choice[other] = 0;
    for (int64_t combination = 0; combination < combinations; ++combination) {
      std::fill(sums.begin(), sums.end(), 0);
      for (const Table& table : own) {
        int64_t base = 0, stride = 0;  // of the node's own axis
        for (int other : table.nodes) {
          base = base * sizes_[other] + (other == node ? 0 : choice[other]);
          stride = other == node ? 1 : stride * sizes_[other];
        }
        for (int c : sums.indices()) sums[c] += table.costs[base + c * stride];
      }
      const auto least = std::min_element(sums.begin(), sums.end());
      merged.costs[combination] = *least;
      decision.best[combination] = static_cast<int>(least - sums.begin());
      for (size_t axis = decision.neighbours.size(); axis-- > 0;) {
        const int other = decision.neighbours[axis];
        if (++choice[other] < sizes_[other]) break;
        choice[other] = 0;
      }
    }
    alive_[node] = false;
    by_steps_.erase({steps_[node], node});
    if (!merged.nodes.empty()) add(std::move(merged));
    for (const int other : decision.neighbours) queue(other);
    decisions_.push_back(std::move(decision));
  }

  Nanoseconds rest_cost(const Vector<int>& choice) const {
    Nanoseconds cost = 0;
    for (const auto& [nodes, number] : table_of_nodes_) cost += tables_[number].costs[index_of(nodes, choice)];
    return cost;
  }

  // One node after the other takes its best choice, until none changes; from 32 starts.
  void improve_rest(Vector<int>& best) const {
    std::mt19937 random(1);  // raw values alone: the same everywhere
    Nanoseconds least = no_cost;
    for (int start = 0; start < 32; ++start) {
      Vector<int> choice(sizes_.size(), 0);
      for (int node : sizes_.indices())
        if (alive_[node] && start > 0) choice[node] = static_cast<int>(random() % static_cast<uint32_t>(sizes_[node]));
      for (bool changed = true; changed;) {
        changed = false;
        for (int node : sizes_.indices())
          if (alive_[node]) changed = improve(node, choice) || changed;
      }
      const Nanoseconds cost = rest_cost(choice);
      if (cost < least) {
        least = cost;
        best = choice;
      }
    }
  }

  bool improve(int node, Vector<int>& choice) const {
    const int before = choice[node];
    int best = before;
    Nanoseconds least = rest_cost(choice);
    for (choice[node] = 0; choice[node] < sizes_[node]; ++choice[node]) {
      const Nanoseconds cost = rest_cost(choice);
      if (cost >= least) continue;
      least = cost;
      best = choice[node];
    }
    choice[node] = best;
    return best != before;
  }

  double most_steps_;
  Vector<int> sizes_;
  Vector<bool> alive_;
  Vector<Table> tables_;                       // those that are taken have no nodes
  std::map<Vector<int>, int> table_of_nodes_;  // number of the table of these nodes
  Vector<Vector<int>> tables_with_;            // [node]: their numbers
  Vector<double> steps_;                       // [node]: that its elimination takes
  std::set<std::pair<double, int>> by_steps_;  // nodes left
  Vector<int> choice_;                         // of the neighbours, while one is eliminated
  Vector<Decision> decisions_;
};

}  // namespace

Nanoseconds CostTables::cost(const Vector<int>& choice) const {
  Nanoseconds sum = 0;
  for (int node : node_costs.indices()) sum += node_costs[node][choice[node]];
  for (const Edge& edge : edges)
    sum += edge.costs[int64_t{choice[edge.a]} * node_costs[edge.b].count() + choice[edge.b]];
  return sum;
}

TableMinimum minimize(const CostTables& tables, double most_steps) {
  return Elimination(tables, most_steps).run(tables);
}

}  // namespace ff
