#include "common/task_graph/task_graph.h"

#include <map>

#include "common/hash.h"
#include "common/task_graph/edge_copies.h"

namespace ff {
TaskGraphBuilder::TaskGraphBuilder(const Graph& graph)
    : graph_(graph), edges_(edges_of(graph)), groups_(parameter_groups(graph)) {
  pair_cache_.resize(edges_.size());
  exchange_cache_.resize(edges_.size());
  piece_cache_.resize(groups_.size());
}

std::shared_ptr<const BlockPairs> TaskGraphBuilder::pairs(int edge, const Strategy& strategy) {
  return pairs(edge, strategy[edges_[edge].producer].degrees, strategy[edges_[edge].consumer].degrees);
}

std::shared_ptr<const BlockPairs> TaskGraphBuilder::pairs(int edge, const Degrees& producer, const Degrees& consumer) {
  Degrees key = producer;
  key.insert(key.end(), consumer.begin(), consumer.end());
  const auto found = pair_cache_[edge].find(key);
  if (found != pair_cache_[edge].end()) return found->second;
  const auto result = shared(intersect_blocks(graph_, edges_[edge], producer, consumer));
  pair_cache_[edge].emplace(std::move(key), result);
  return result;
}

std::shared_ptr<const BlockPairs> TaskGraphBuilder::shared(BlockPairs pairs) {
  uint64_t hash = hash_basis;
  for (const BlockPair& pair : pairs)
    for (uint64_t value : {static_cast<uint64_t>(pair.producer_part), static_cast<uint64_t>(pair.consumer_part),
                           static_cast<uint64_t>(pair.bytes)})
      hash = hash_step(hash, value);
  const auto [begin, end] = distinct_pairs_.equal_range(hash);
  for (auto it = begin; it != end; ++it)
    if (*it->second == pairs) return it->second;
  if (cached_pairs_ > most_cached_pairs) {
    for (auto& cache : pair_cache_) cache.clear();
    distinct_pairs_.clear();
    cached_pairs_ = 0;
  }
  cached_pairs_ += pairs.size();
  return distinct_pairs_.emplace(hash, std::make_shared<const BlockPairs>(std::move(pairs)))->second;
}

std::shared_ptr<const EdgeExchanges> TaskGraphBuilder::exchanges(int edge, const Degrees& producer,
                                                                 const Degrees& consumer) {
  Degrees key = producer;
  key.insert(key.end(), consumer.begin(), consumer.end());
  const auto found = exchange_cache_[edge].find(key);
  if (found != exchange_cache_[edge].end()) return found->second;
  if (cached_exchange_parts_ > most_cached_users) {
    for (auto& cache : exchange_cache_) cache.clear();
    cached_exchange_parts_ = 0;
  }
  auto result = std::make_shared<const EdgeExchanges>(find_exchanges(graph_, edges_[edge], producer, consumer));
  cached_exchange_parts_ += 8 + result->of_producer.size() + result->of_consumer.size();
  return exchange_cache_[edge].emplace(std::move(key), std::move(result)).first->second;
}

Vector<Collective> TaskGraphBuilder::collectives(int edge, const Strategy& strategy) {
  const Configuration &producer = strategy[edges_[edge].producer], &consumer = strategy[edges_[edge].consumer];
  return collectives_of(*exchanges(edge, producer.degrees, consumer.degrees), producer.devices, consumer.devices);
}

Block TaskGraphBuilder::region(int edge, const BlockPair& pair, const Strategy& strategy) const {
  const Edge& e = edges_[edge];
  return region_of(graph_, e, pair, strategy[e.producer].degrees, strategy[e.consumer].degrees);
}

std::shared_ptr<const Vector<ParameterPiece>> TaskGraphBuilder::pieces(int group, const Strategy& strategy) {
  Degrees key;
  for (OperatorId op : groups_[group].operators)
    key.insert(key.end(), strategy[op].degrees.begin(), strategy[op].degrees.end());
  const auto found = piece_cache_[group].find(key);
  if (found != piece_cache_[group].end()) return found->second;
  auto result = std::make_shared<const Vector<ParameterPiece>>(parameter_pieces(graph_, groups_[group], strategy));
  if (cached_users_ > most_cached_users) {
    for (auto& cache : piece_cache_) cache.clear();
    cached_users_ = 0;
  }
  for (const ParameterPiece& piece : *result) cached_users_ += piece.users.size();
  return piece_cache_[group].emplace(std::move(key), std::move(result)).first->second;
}

namespace {

// A task graph under construction.
class Assembly {
 public:
  Assembly(TaskGraphBuilder& builder, const Strategy& strategy)
      : builder_(builder), graph_(builder.graph()), strategy_(strategy) {}

  TaskGraph build() {
    for (size_t op = 0; op < graph_.operators.size(); ++op)
      for (Direction direction : directions) add_compute_tasks(static_cast<OperatorId>(op), direction);
    for (size_t edge = 0; edge < builder_.edges().size(); ++edge) add_transfers(static_cast<int>(edge));
    for (size_t op = 0; op < graph_.operators.size(); ++op) add_gradient_sums(static_cast<OperatorId>(op));
    for (size_t group = 0; group < builder_.groups().size(); ++group)
      if (builder_.groups()[group].trained) add_synchronization(static_cast<int>(group));
    link_successors();
    return std::move(result_);
  }

 private:
  int32_t add(const Task& task) {
    result_.tasks.push_back(task);
    return static_cast<int32_t>(result_.tasks.size()) - 1;
  }
  void add_order(int32_t before, int32_t after) { order_.emplace_back(before, after); }
  Task& task(int32_t index) { return result_.tasks[index]; }

  // A task for each part; the index of the first.
  int32_t add_parts(OperatorId op, TaskKind kind) {
    const int32_t begin = static_cast<int32_t>(result_.tasks.size());
    for (int part = 0; part < strategy_[op].parts(); ++part) {
      Task task{make_task_key(kind, op, part, 0), kind};
      task.op = op;
      task.part = part;
      task.device = strategy_[op].devices[part];
      add(task);
    }
    return begin;
  }

  void add_compute_tasks(OperatorId op, Direction direction) {
    const bool backward = direction == Direction::backward;
    if (backward && !graph_.operators[op].has_backward) {
      first_[direction].push_back(-1);
      last_[direction].push_back(-1);
      return;
    }
    const bool statistics = graph_.operators[op].definition->has_statistics(strategy_[op].degrees, backward);
    if (statistics) first_[direction].push_back(add_parts(op, statistics_kind(direction)));
    last_[direction].push_back(add_parts(op, compute_kind(direction)));
    if (statistics) add_reductions(op, direction);
    else first_[direction].push_back(last_[direction].back());
    if (backward)
      for (int part = 0; part < strategy_[op].parts(); ++part)
        add_order(last_[Direction::forward][op] + part, first_[Direction::backward][op] + part);
  }

  void add_reductions(OperatorId op, Direction direction) {
    const TaskKind kind = reduction_kind(direction);
    int number = 0;
    for (StatisticsReduction& reduction :
         statistics_reductions(*graph_.operators[op].definition, strategy_[op], direction)) {
      Task task{make_task_key(kind, op, number, 0), kind};
      task.op = op;
      task.part = number++;
      task.reduction = static_cast<int32_t>(result_.reductions.size());
      task.bytes = reduction.bytes;
      const int32_t index = add(task);
      for (int part : reduction.parts) {
        add_order(first_[direction][op] + part, index);
        add_order(index, last_[direction][op] + part);
      }
      result_.reductions.push_back(std::move(reduction));
    }
  }

  // The way of one block: an ordering edge on one device, a transfer between two.
  void connect(TaskKind kind, int e, const BlockPair& pair, int32_t before, int32_t after) {
    const DeviceId source = task(before).device, destination = task(after).device;
    if (source == destination) return add_order(before, after);
    Task transfer{make_task_key(kind, e, pair.consumer_part, pair.producer_part), kind};
    transfer.edge = e;
    transfer.device = source;
    transfer.destination = destination;
    transfer.pair = &pair;
    transfer.bytes = pair.bytes;
    const int32_t index = add(transfer);
    result_.transfer_bytes += pair.bytes;
    add_order(before, index);
    add_order(index, after);
  }

  void add_transfers(int e) {
    const Edge& edge = builder_.edges()[e];
    const bool gradient = has_gradient(graph_, edge);
    EdgeCopyBytes copies;
    if (Vector<Collective> collectives = builder_.collectives(e, strategy_); !collectives.empty()) {
      const auto exchanges = builder_.exchanges(e, strategy_[edge.producer].degrees, strategy_[edge.consumer].degrees);
      copies.set(*exchanges, collectives, gradient);
      for (int number : collectives.indices())
        add_collective({e, number, std::move(collectives[number]), exchanges}, gradient);
      return add_copies(edge, copies, gradient);
    }
    const auto pairs = builder_.pairs(e, strategy_);
    result_.kept.push_back(pairs);
    for (const BlockPair& pair : *pairs) {
      connect(TaskKind::activation, e, pair, last_[Direction::forward][edge.producer] + pair.producer_part,
              first_[Direction::forward][edge.consumer] + pair.consumer_part);
      if (gradient)
        connect(TaskKind::gradient, e, pair, last_[Direction::backward][edge.consumer] + pair.consumer_part,
                first_[Direction::backward][edge.producer] + pair.producer_part);
    }
    copies.set(*pairs, strategy_[edge.producer].devices, strategy_[edge.consumer].devices, gradient);
    add_copies(edge, copies, gradient);
  }

  void add_collective(EdgeCollective moved, bool gradient) {
    const Edge& edge = builder_.edges()[moved.edge];
    const Exchange& exchange = moved.exchange();
    const int64_t others = std::ssize(moved.collective.holders) - 1;
    const CollectiveKind kind = moved.collective.kind;
    const int64_t bytes =
        kind == CollectiveKind::all_reduce ? 2 * others * moved.collective.bytes : others * moved.collective.bytes;
    for (Direction direction : directions) {
      if (direction == Direction::backward && !gradient) break;
      const bool forward = direction == Direction::forward;
      Task task{make_task_key(collective_kind(direction), moved.edge, moved.number, 0), collective_kind(direction)};
      task.edge = moved.edge;
      task.part = moved.number;
      task.collective = static_cast<int32_t>(result_.collectives.size());
      task.bytes = moved.collective.bytes;
      const int32_t index = add(task);
      const auto parts = [&](OperatorId op, const Vector<int32_t>& numbers, bool before) {
        const int32_t first = before ? last_[direction][op] : first_[direction][op];
        for (int32_t part : numbers)
          if (before) add_order(first + part, index);
          else add_order(index, first + part);
      };
      parts(edge.producer, exchange.producers, forward);
      parts(edge.consumer, exchange.consumers, !forward);
      result_.transfer_bytes += bytes;
    }
    result_.collectives.push_back(std::move(moved));
  }

  void add_copies(const Edge& edge, const EdgeCopyBytes& copies, bool gradient) {
    for (int part = 0; part < strategy_[edge.consumer].parts(); ++part) {
      task(first_[Direction::forward][edge.consumer] + part).copy_bytes += copies.assembled[part];
      if (gradient) task(last_[Direction::backward][edge.consumer] + part).copy_bytes += copies.packed_gradient[part];
    }
    for (int part = 0; part < strategy_[edge.producer].parts(); ++part)
      task(last_[Direction::forward][edge.producer] + part).copy_bytes += copies.packed[part];
    if (!gradient) return;
    Vector<GradientSum>& sums = gradients_[edge.tensor];
    sums.resize(copies.gradients.size());
    for (size_t part = 0; part < sums.size(); ++part) sums[part].add(copies.gradients[part]);
  }

  void add_gradient_sums(OperatorId op) {
    for (TensorId tensor : graph_.operators[op].outputs) {
      const auto found = gradients_.find(tensor);
      if (found == gradients_.end()) continue;
      for (size_t part = 0; part < found->second.size(); ++part)
        task(first_[Direction::backward][op] + static_cast<int32_t>(part)).copy_bytes +=
            found->second[part].copied_bytes();
    }
  }

  void add_synchronization(int group) {
    const auto pieces = builder_.pieces(group, strategy_);
    result_.kept.push_back(pieces);
    for (SynchronizationUnit& unit : synchronization_units(group, *pieces, strategy_)) {
      const int32_t index = static_cast<int32_t>(result_.units.size());
      Vector<int32_t> before;  // the tasks that the updates wait for
      for (const auto& [op, part] : contributors_of(unit))
        before.push_back(
            (graph_.operators[op].has_backward ? last_[Direction::backward][op] : last_[Direction::forward][op]) +
            part);
      if (unit.holders.size() > 1) {
        Task task{make_task_key(TaskKind::synchronization, group, unit.number, 0), TaskKind::synchronization};
        task.unit = index;
        task.bytes = unit.bytes;
        const int32_t collective = add(task);
        for (int32_t contributor : before) add_order(contributor, collective);
        before = {collective};
        result_.synchronization_bytes += 2 * (std::ssize(unit.holders) - 1) * unit.bytes;
      }
      const Vector<int64_t> sums = gradient_sum_bytes(unit, graph_, strategy_);
      for (size_t h = 0; h < unit.holders.size(); ++h) {
        Task task{make_task_key(TaskKind::update, group, unit.number, unit.holders[h]), TaskKind::update};
        task.unit = index;
        task.device = unit.holders[h];
        task.bytes = unit.bytes;
        task.copy_bytes = sums[h];
        const int32_t update = add(task);
        for (int32_t earlier : before) add_order(earlier, update);
      }
      result_.units.push_back(std::move(unit));
    }
  }

  void link_successors() {
    const size_t count = result_.tasks.size();
    result_.successor_begin.assign(count + 1, 0);
    result_.predecessor_count.assign(count, 0);
    for (const auto& [before, after] : order_) {
      ++result_.successor_begin[before + 1];
      ++result_.predecessor_count[after];
    }
    for (size_t t = 0; t < count; ++t) result_.successor_begin[t + 1] += result_.successor_begin[t];
    result_.successors.resize(order_.size());
    Vector<int32_t> next(result_.successor_begin.begin(), result_.successor_begin.end() - 1);
    for (const auto& [before, after] : order_) result_.successors[next[before]++] = after;
  }

  TaskGraphBuilder& builder_;
  const Graph& graph_;
  const Strategy& strategy_;
  TaskGraph result_;
  // [operator]: index of part 0's first and last task of the direction, which are one but for operators with
  // statistics; -1 where there is none.
  PerDirection<Vector<int32_t>> first_, last_;
  std::map<TensorId, Vector<GradientSum>> gradients_;  // [part]
  Vector<std::pair<int32_t, int32_t>> order_;          // (before, after)
};

}  // namespace

TaskGraph TaskGraphBuilder::build(const Strategy& strategy) { return Assembly(*this, strategy).build(); }

}  // namespace ff
