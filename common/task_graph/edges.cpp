#include "common/task_graph/edges.h"

#include <algorithm>

namespace ff {
namespace {

// The blocks that an operator's parts write of one output: a grid of cells, each written by one part or, as shares of a
// sum, by several. Finds the few that a block overlaps without looking at all.
class OutputGrid {
 public:
  OutputGrid(const Vector<Block>& blocks, int writers) : blocks_(blocks), writers_(static_cast<size_t>(writers)) {
    const int rank = blocks_[0].rank();
    begins_.resize(rank);
    for (int axis = 0; axis < rank; ++axis) {
      Vector<int64_t>& begins = begins_[axis];
      for (const Block& block : blocks_) begins.push_back(block[axis].begin);
      sort_and_unique(begins);
    }
    size_t cells = 1;
    for (const auto& begins : begins_) cells *= begins.size();
    assert(cells * writers_ == blocks_.size());
    part_of_cell_.resize(cells * writers_);
    Vector<size_t> found(cells, 0);
    for (int p : blocks_.indices()) {
      size_t cell = 0;
      for (int axis = 0; axis < rank; ++axis)
        cell = cell * begins_[axis].size() + index_of(axis, blocks_[p][axis].begin);
      part_of_cell_[cell * writers_ + found[cell]++] = p;
    }
  }

  // Calls visit(part, its block).
  template <class Visit>
  void for_each_overlapping(const Block& read, const Visit& visit) const {
    Array<size_t, Block::max_rank> first{}, last{}, at{};
    const int rank = read.rank();
    for (int axis = 0; axis < rank; ++axis) {
      first[axis] = at[axis] = index_of(axis, read[axis].begin);
      last[axis] = index_of(axis, read[axis].end - 1);
    }
    while (true) {
      size_t cell = 0;
      for (size_t axis = 0; axis < static_cast<size_t>(rank); ++axis) cell = cell * begins_[axis].size() + at[axis];
      for (size_t writer = 0; writer < writers_; ++writer) {
        const int32_t part = part_of_cell_[cell * writers_ + writer];
        visit(part, blocks_[part]);
      }
      int axis = rank - 1;
      while (axis >= 0 && at[axis] == last[axis]) {
        at[axis] = first[axis];
        --axis;
      }
      if (axis < 0) return;
      ++at[axis];
    }
  }

 private:
  // The interval of this axis that holds the position.
  size_t index_of(int axis, int64_t position) const {
    const Vector<int64_t>& begins = begins_[axis];
    return static_cast<size_t>(std::upper_bound(begins.begin(), begins.end(), position) - begins.begin()) - 1;
  }

  const Vector<Block>& blocks_;
  Vector<Vector<int64_t>> begins_;  // by axis
  size_t writers_;                  // of each cell
  Vector<int32_t> part_of_cell_;    // [cell, writer]
};

}  // namespace

Vector<Edge> edges_of(const Graph& graph) {
  Vector<Edge> edges;
  for (size_t op = 0; op < graph.operators.size(); ++op)
    for (size_t input = 0; input < graph.operators[op].inputs.size(); ++input) {
      const TensorId tensor = graph.operators[op].inputs[input];
      if (const OperatorId producer = graph.tensors[tensor].producer; producer >= 0)
        edges.push_back({tensor, producer, static_cast<OperatorId>(op), static_cast<int>(input)});
    }
  return edges;
}

bool has_gradient(const Graph& graph, const Edge& edge) { return graph.input_has_gradient(edge.consumer, edge.input); }

EdgeBlocks blocks_of(const Graph& graph, const Edge& edge, const Degrees& producer_degrees,
                     const Degrees& consumer_degrees) {
  const OperatorDefinition& producer = *graph.operators[edge.producer].definition;
  const OperatorDefinition& consumer = *graph.operators[edge.consumer].definition;
  const int output = graph.tensors[edge.tensor].output;
  EdgeBlocks blocks{{}, {}, producer.partial_results(producer_degrees), graph.tensors[edge.tensor].type};
  for (int p = 0, parts = parts_of(producer_degrees); p < parts; ++p)
    blocks.written.push_back(producer.output_block(output, producer.part(producer_degrees, p)));
  for (int c = 0, parts = parts_of(consumer_degrees); c < parts; ++c)
    blocks.read.push_back(consumer.input_block(edge.input, consumer.part(consumer_degrees, c)));
  return blocks;
}

BlockPairs intersect_blocks(const EdgeBlocks& blocks) {
  const OutputGrid grid(blocks.written, blocks.writers);
  const bool partial = blocks.writers > 1;
  BlockPairs pairs;
  for (int c : blocks.read.indices()) {
    const Block& read = blocks.read[c];
    if (read.empty()) continue;
    const size_t first = pairs.size();
    grid.for_each_overlapping(read, [&](int32_t p, const Block& written) {
      const Block region = intersect(written, read);
      pairs.push_back({p, c, bytes_of(blocks.type, region), region == written, region == read, partial});
    });
    std::sort(pairs.begin() + static_cast<int64_t>(first), pairs.end(),
              [](const BlockPair& a, const BlockPair& b) { return a.producer_part < b.producer_part; });
  }
  return pairs;
}

Block region_of(const Graph& graph, const Edge& edge, const BlockPair& pair, const Degrees& producer_degrees,
                const Degrees& consumer_degrees) {
  const OperatorDefinition& producer = *graph.operators[edge.producer].definition;
  const OperatorDefinition& consumer = *graph.operators[edge.consumer].definition;
  return intersect(
      producer.output_block(graph.tensors[edge.tensor].output, producer.part(producer_degrees, pair.producer_part)),
      consumer.input_block(edge.input, consumer.part(consumer_degrees, pair.consumer_part)));
}

}  // namespace ff
