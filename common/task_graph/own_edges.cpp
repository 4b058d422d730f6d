#include "common/task_graph/own_edges.h"

#include <algorithm>

#include "common/task_graph/part_blocks.h"

namespace ff {
namespace {

using Role = PartBlocks::Role;

PartBlocks written_blocks(const Graph& graph, const Edge& edge, const Strategy& strategy) {
  return {*graph.operators[edge.producer].definition, strategy[edge.producer].degrees, Role::output,
          graph.tensors[edge.tensor].output};
}
PartBlocks read_blocks(const Graph& graph, const Edge& edge, const Strategy& strategy) {
  return {*graph.operators[edge.consumer].definition, strategy[edge.consumer].degrees, Role::input, edge.input};
}

bool contains(const Vector<int32_t>& ascending, int32_t part) {
  return std::binary_search(ascending.begin(), ascending.end(), part);
}

}  // namespace

BlockPairs pairs_of_parts(const Graph& graph, const Edge& edge, const Strategy& strategy, const EdgeParts& own) {
  const PartBlocks written = written_blocks(graph, edge, strategy), read = read_blocks(graph, edge, strategy);
  const bool partial = graph.operators[edge.producer].definition->partial_results(strategy[edge.producer].degrees) > 1;
  const DataType type = graph.tensors[edge.tensor].type;
  BlockPairs pairs;
  const auto add = [&](int32_t p, const Block& output, int32_t c, const Block& input) {
    const Block region = intersect(output, input);
    pairs.push_back({p, c, bytes_of(type, region), region == output, region == input, partial});
  };
  for (const int32_t c : own.consumers) {
    const Block input = read.of(c);
    if (!input.empty())
      written.for_each(written.overlapping(input), [&](int32_t p) { add(p, written.of(p), c, input); });
  }
  for (const int32_t p : own.producers) {
    const Block output = written.of(p);
    read.for_each(read.overlapping(output), [&](int32_t c) {
      if (!contains(own.consumers, c)) add(p, output, c, read.of(c));
    });
  }
  std::sort(pairs.begin(), pairs.end(), [](const BlockPair& a, const BlockPair& b) {
    return std::pair(a.consumer_part, a.producer_part) < std::pair(b.consumer_part, b.producer_part);
  });
  return pairs;
}

bool may_have_collectives(const Graph& graph, const Edge& edge, const Strategy& strategy, const EdgeParts& own,
                          int least_size) {
  const PartBlocks written = written_blocks(graph, edge, strategy), read = read_blocks(graph, edge, strategy);
  // In an exchange every consumer reads of every producer: those that read of one producer's block are all consumers,
  // and those whose blocks one consumer reads are all producers.
  PartBlocks::Parts producers, consumers;
  if (!own.producers.empty()) {
    consumers = read.overlapping(written.of(own.producers[0]));
    if (read.count(consumers) == 0) return own.producers.size() > 1 || !own.consumers.empty();
    producers = written.overlapping(read.of(read.first(consumers)));
  } else {
    const Block input = read.of(own.consumers[0]);
    if (input.empty()) return own.consumers.size() > 1;
    producers = written.overlapping(input);
    consumers = read.overlapping(written.of(written.first(producers)));
  }
  const bool sums = graph.operators[edge.producer].definition->partial_results(strategy[edge.producer].degrees) > 1;
  return may_be_collective(written.count(producers), read.count(consumers), sums, least_size);
}

bool EdgeCollectives::alike(const Edge& a, const Edge& b) const {
  return alike_[a.producer] == alike_[b.producer] && alike_[a.consumer] == alike_[b.consumer] && a.input == b.input &&
         graph_.tensors[a.tensor].output == graph_.tensors[b.tensor].output &&
         graph_.tensors[a.tensor].type == graph_.tensors[b.tensor].type &&
         strategy_[a.producer] == strategy_[b.producer] && strategy_[a.consumer] == strategy_[b.consumer];
}

const EdgeCollectives::Found& EdgeCollectives::of(const Edge& edge) {
  for (const auto& [known, found] : found_)
    if (alike(known, edge)) return *found;
  const Configuration &producer = strategy_[edge.producer], &consumer = strategy_[edge.consumer];
  auto found = std::make_unique<Found>();
  found->exchanges = std::make_shared<const EdgeExchanges>(
      find_exchanges(blocks_of(graph_, edge, producer.degrees, consumer.degrees), least_size_));
  found->collectives = collectives_of(*found->exchanges, producer.devices, consumer.devices);
  found_.emplace_back(edge, std::move(found));
  return *found_.back().second;
}

}  // namespace ff
