#include "search/simulator/delta/bounds/synchronization_order.h"

#include <algorithm>
#include <bit>

namespace ff::delta {
namespace {

void unite(BitSet& set, const BitSet& other) {
  for (size_t word = 0; word < set.size(); ++word) set[word] |= other[word];
}
bool intersects(const BitSet& a, const BitSet& b) {
  for (size_t word = 0; word < a.size(); ++word)
    if ((a[word] & b[word]) != 0) return true;
  return false;
}

// Some of the smallest parts that the operator can be split into, but for shares of sums.
Vector<Block> smallest_parts(const OperatorDefinition& definition) {
  Degrees degrees;
  int64_t count = 1;
  for (const ParallelDimension& dimension : definition.dimensions()) {
    const int64_t size = dimension.kind == DimensionKind::reduction ? 1 : dimension.size;
    degrees.push_back(static_cast<int>(size));
    count *= size;
  }
  Vector<Block> parts{definition.part(degrees, 0), definition.part(degrees, count - 1)};
  uint64_t random = 1;
  for (int probe = 0; probe < 64; ++probe) {
    random = random * 6364136223846793005ULL + 1442695040888963407ULL;
    parts.push_back(definition.part(degrees, static_cast<int64_t>((random >> 16) % static_cast<uint64_t>(count))));
  }
  return parts;
}

// What an operator reads of its inputs.
struct Reading {
  bool by_sample = false;  // each part reads and writes its own samples
  bool shares = false;     // several parts may share what is summed over
  // and may write shares of one sum, instead of waiting for each other's statistics
  bool sums = false;
  Vector<bool> whole_samples;  // [input]: all of them, however the operator is split: a part, or those that share
};

Reading reading_of(const OperatorDefinition& definition) {
  Reading reading;
  reading.whole_samples.assign(definition.inputs().size(), true);
  if (definition.dimensions().empty() || definition.dimensions()[0].kind != DimensionKind::sample) return reading;
  reading.by_sample = true;
  for (int d = 0; d < definition.dimensions().count(); ++d) {
    if (definition.dimensions()[d].kind != DimensionKind::reduction) continue;
    reading.shares = true;
    reading.sums = reading.sums || !definition.may_have_statistics() || !definition.statistics_span(d);
  }
  for (const Block& part : smallest_parts(definition)) {
    for (size_t output = 0; output < definition.outputs().size(); ++output)
      if (definition.output_block(static_cast<int>(output), part)[0] != part[0]) reading.by_sample = false;
    for (size_t input = 0; input < definition.inputs().size(); ++input) {
      const Block block = definition.input_block(static_cast<int>(input), part);
      const Shape& shape = definition.inputs()[input].shape;
      if (block.empty()) {
        reading.whole_samples[input] = false;
        continue;
      }
      if (block[0] != part[0]) reading.by_sample = false;
      for (int axis = 1; axis < block.rank(); ++axis)
        if (block[axis].begin != 0 || block[axis].end != shape[axis]) reading.whole_samples[input] = false;
    }
  }
  return reading;
}

struct Relations {
  explicit Relations(const TaskGraphBuilder& builder);
  // [operator a]: operators b such that each forward part of b waits for all forward parts of a with a sample in
  // common.
  Vector<BitSet> forward;
  // [operator a]: operators b such that each backward part of b waits for all backward parts of a with a sample in
  // common.
  Vector<BitSet> backward;
  // [operator a]: a and the operators b such that each backward part of a waits, for each of its samples, for some
  // backward part of b with it.
  Vector<BitSet> some_backward;
};

Relations::Relations(const TaskGraphBuilder& builder) {
  const Graph& graph = builder.graph();
  const OperatorId count = static_cast<OperatorId>(graph.operators.size());
  const BitSet none(words_for(graph.operators.size()), 0);
  struct Use {
    OperatorId producer, consumer;
    bool whole_samples, shares, sums, every_part_reads, every_element_read, gradient;
  };
  Vector<Reading> readings;
  for (const Operator& op : graph.operators) readings.push_back(reading_of(*op.definition));
  Vector<Vector<Use>> into(count), out_of(count);  // [operator]
  for (const Edge& edge : builder.edges()) {
    if (!readings[edge.producer].by_sample || !readings[edge.consumer].by_sample) continue;
    const OperatorDefinition& consumer = *graph.operators[edge.consumer].definition;
    const Use use{edge.producer,
                  edge.consumer,
                  readings[edge.consumer].whole_samples[edge.input],
                  readings[edge.consumer].shares,
                  readings[edge.consumer].sums,
                  consumer.every_part_reads(edge.input),
                  consumer.reads_every_element(edge.input),
                  has_gradient(graph, edge)};
    into[use.consumer].push_back(use);
    out_of[use.producer].push_back(use);
  }
  // [a]: a and operators of which each part waits for some part of a
  Vector<BitSet> some_forward(count, none);
  Vector<BitSet> behind_forward(count, none);  // the same without a
  // [a]: a and operators of which each backward part waits for some backward part of a
  Vector<BitSet> before_backward(count, none);
  forward.assign(count, none);
  backward = some_backward = forward;
  for (OperatorId op = count; op-- > 0;) {  // consumers first
    insert(some_forward[op], op);
    insert(some_backward[op], op);
    for (const Use& use : out_of[op]) {
      if (use.every_part_reads) unite(behind_forward[op], some_forward[use.consumer]);
      if (use.whole_samples) unite(forward[op], use.sums ? behind_forward[use.consumer] : some_forward[use.consumer]);
      if (use.every_element_read) unite(forward[op], forward[use.consumer]);
      if (use.every_element_read && use.gradient) unite(some_backward[op], some_backward[use.consumer]);
    }
    unite(some_forward[op], behind_forward[op]);
  }
  for (OperatorId op = 0; op < count; ++op) {  // producers first
    insert(before_backward[op], op);
    for (const Use& use : into[op]) {
      if (!use.gradient) continue;
      if (use.every_element_read) unite(before_backward[op], before_backward[use.producer]);
      if (use.whole_samples && !use.shares) unite(backward[op], before_backward[use.producer]);
      if (use.every_part_reads) unite(backward[op], backward[use.producer]);
    }
  }
}

}  // namespace

SynchronizationOrder::SynchronizationOrder(const TaskGraphBuilder& builder) {
  const Graph& graph = builder.graph();
  const Relations relations(builder);
  const OperatorId count = static_cast<OperatorId>(graph.operators.size());
  const BitSet none(words_for(graph.operators.size()), 0);
  for (Direction direction : directions) before_[direction].assign(builder.groups().size(), none);
  Vector<int64_t> sizes(builder.groups().size(), 0);
  for (size_t g = 0; g < builder.groups().size(); ++g) {
    const ParameterGroup& group = builder.groups()[g];
    if (!group.trained) continue;
    groups_.push_back(static_cast<int>(g));
    BitSet forward(none.size(), ~uint64_t{0}), backward = forward;  // before the pieces of all parameters
    for (ParameterId parameter : group.parameters) {
      BitSet users = none, waited_for = none;  // whose parts hold all of the parameter between them
      for (const auto& [user, which] : graph.parameters[parameter].uses) {
        const OperatorDefinition& definition = *graph.operators[user].definition;
        if (!graph.operators[user].has_backward) continue;
        if (definition.parameter_block(which, definition.whole()) != Block(definition.parameters()[which].shape))
          continue;
        insert(users, user);
        unite(waited_for, relations.some_backward[user]);
      }
      BitSet forward_of_parameter = none, backward_of_parameter = none;
      for (OperatorId op = 0; op < count; ++op) {
        if (intersects(relations.forward[op], waited_for)) insert(forward_of_parameter, op);
        if (graph.operators[op].has_backward && intersects(relations.backward[op], users))
          insert(backward_of_parameter, op);
      }
      for (size_t word = 0; word < none.size(); ++word) {
        forward[word] &= forward_of_parameter[word];
        backward[word] &= backward_of_parameter[word];
      }
    }
    for (size_t word = 0; word < none.size(); ++word)
      sizes[g] += std::popcount(forward[word]) + std::popcount(backward[word]);
    before_[Direction::forward][g] = std::move(forward);
    before_[Direction::backward][g] = std::move(backward);
  }
  std::stable_sort(groups_.begin(), groups_.end(), [&](int a, int b) { return sizes[a] < sizes[b]; });
}

}  // namespace ff::delta
