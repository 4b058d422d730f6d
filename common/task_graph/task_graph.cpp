#include "common/task_graph/task_graph.h"

#include <array>
#include <map>

#include "common/hash.h"
#include "common/recomputation.h"
#include "common/sharding.h"
#include "common/task_graph/part_blocks.h"

namespace ff {

TaskGraphBuilder::TaskGraphBuilder(const Graph& graph, const StrategySettings& settings, int replicas,
                                   Vector<int> sharded_layers)
    : graph_(graph), synchronization_(settings.synchronization), by_group_(sharding_by_group(graph, settings.sharding)),
      recomputed_(settings.recompute.empty() ? Vector<bool>() : recomputed_operators(graph, settings.recompute)),
      computed_again_(recomputed_.empty() ? Vector<bool>() : ff::computed_again(graph, recomputed_)),
      micro_batches_(settings.micro_batches), replicas_(replicas), sharded_layers_(std::move(sharded_layers)),
      overlaps_reductions_(settings.overlaps_reductions), least_collective_size_(settings.least_collective_size),
      edges_(edges_of(graph)), groups_(parameter_groups(graph)) {
  const std::string of = "graph \"" + graph.name + '"';
  check_room_in_keys(of, "operators", graph.operators.count(), most_key_subjects);
  check_room_in_keys(of, "edges", edges_.count(), most_key_subjects);
  check_room_in_keys(of, "groups of parameters", groups_.count(), most_key_subjects);
  pair_cache_.resize(edges_.size());
  exchange_cache_.resize(edges_.size());
  piece_cache_.resize(groups_.size());
  std::unordered_map<std::string, int> numbers;
  for (const Operator& op : graph.operators)
    alike_.push_back(
        numbers.try_emplace(blocks_signature(*op.definition), static_cast<int>(numbers.size())).first->second);
  std::map<std::array<int, 5>, int> first;
  for (int e : edges_.indices()) {
    const Edge& edge = edges_[e];
    const Tensor& tensor = graph.tensors[edge.tensor];
    const std::array<int, 5> ends{alike_[edge.producer], tensor.output, alike_[edge.consumer], edge.input,
                                  static_cast<int>(tensor.type)};
    first_alike_.push_back(first.try_emplace(ends, e).first->second);
  }
}

std::shared_ptr<const BlockPairs> TaskGraphBuilder::pairs(int edge, const Strategy& strategy) {
  return pairs(edge, strategy[edges_[edge].producer].degrees, strategy[edges_[edge].consumer].degrees);
}

std::shared_ptr<const BlockPairs> TaskGraphBuilder::pairs(int edge, const Degrees& producer, const Degrees& consumer) {
  edge = first_alike_[edge];
  set_key(producer, consumer);
  const auto found = pair_cache_[edge].find(key_);
  if (found != pair_cache_[edge].end()) return found->second;
  const auto result = shared(intersect_blocks(blocks(edge, producer, consumer)));
  pair_cache_[edge].emplace(key_, result);
  return result;
}

void TaskGraphBuilder::set_key(const Degrees& producer, const Degrees& consumer) {
  key_.clear();
  producer.append_to(key_);
  consumer.append_to(key_);
}

const EdgeBlocks& TaskGraphBuilder::blocks(int edge, const Degrees& producer, const Degrees& consumer) {
  if (last_blocks_.edge != edge || last_blocks_.key != key_)
    last_blocks_ = {edge, key_, blocks_of(graph_, edges_[edge], producer, consumer)};
  return last_blocks_.blocks;
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
  edge = first_alike_[edge];
  set_key(producer, consumer);
  const auto found = exchange_cache_[edge].find(key_);
  if (found != exchange_cache_[edge].end()) return found->second;
  if (cached_exchange_parts_ > most_cached_users) {
    for (auto& cache : exchange_cache_) cache.clear();
    cached_exchange_parts_ = 0;
  }
  auto result =
      std::make_shared<const EdgeExchanges>(find_exchanges(blocks(edge, producer, consumer), least_collective_size_));
  cached_exchange_parts_ += 8 + result->of_producer.size() + result->of_consumer.size();
  return exchange_cache_[edge].emplace(key_, std::move(result)).first->second;
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
  Vector<int> key;
  for (OperatorId op : groups_[group].operators) strategy[op].degrees.append_to(key);
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

}  // namespace ff
