#include "search/simulator/delta/bounds/synchronization_order.h"

#include <algorithm>
#include <bit>

namespace ff::delta {
namespace {

void unite(BitSet& set, const BitSet& other) {
  for (size_t word = 0; word < set.size(); ++word) set[word] |= other[word];
}
// Some of the smallest parts that the operator can be split into, without partial sums.
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
  // and may write partial sums, instead of waiting for each other's statistics
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

// For an operator u, the operators a such that all tasks of a in a direction come before what waits for u's backward
// tasks of every sample. Found operator by operator from those next to it: in front of it, or after it.
class TasksBefore {
 public:
  explicit TasksBefore(const TaskGraphBuilder& builder)
      : graph_(builder.graph()), none_(words_for(graph_.operators.size()), 0) {
    find_uses(builder);
    find_forward();
    find_backward();
  }

  const BitSet& before(Direction direction, OperatorId u) const { return before_[direction][u]; }

 private:
  // An edge between operators that read and write their own samples.
  struct Use {
    OperatorId producer, consumer;
    bool whole_samples, shares, sums, every_part_reads, every_element_read, gradient;
  };

  void find_uses(const TaskGraphBuilder& builder);
  void find_forward();
  void find_backward();
  Vector<BitSet> singletons() const {
    Vector<BitSet> sets(graph_.operators.size(), none_);
    for (const OperatorId op : graph_.operator_ids()) insert(sets[op], op);
    return sets;
  }

  const Graph& graph_;
  const BitSet none_;
  Vector<Vector<Use>> into_, out_of_;    // [operator]
  PerDirection<Vector<BitSet>> before_;  // [direction][operator]
};

void TasksBefore::find_uses(const TaskGraphBuilder& builder) {
  Vector<Reading> readings;
  for (const Operator& op : graph_.operators) readings.push_back(reading_of(*op.definition));
  into_.resize(graph_.operators.size());
  out_of_.resize(graph_.operators.size());
  for (const Edge& edge : builder.edges()) {
    if (!readings[edge.producer].by_sample || !readings[edge.consumer].by_sample) continue;
    const OperatorDefinition& consumer = *graph_.operators[edge.consumer].definition;
    const Use use{edge.producer,
                  edge.consumer,
                  readings[edge.consumer].whole_samples[edge.input],
                  readings[edge.consumer].shares,
                  readings[edge.consumer].sums,
                  consumer.every_part_reads(edge.input),
                  consumer.reads_every_element(edge.input),
                  has_gradient(graph_, edge)};
    into_[use.consumer].push_back(use);
    out_of_[use.producer].push_back(use);
  }
}

void TasksBefore::find_forward() {
  const OperatorId count = graph_.operators.count();
  // [b]: b and the operators of whose parts each is read, through others, by some part of b
  Vector<BitSet> read = singletons();
  // [b]: operators a such that each forward part of b waits for all forward parts of a with a sample in common; and
  // also those of which b reads partial sums
  Vector<BitSet> waited_for(count, none_), read_or_waited_for;
  for (OperatorId op = 0; op < count; ++op) {  // producers first
    for (const Use& use : into_[op]) {
      if (use.every_element_read) unite(read[op], read[use.producer]);
      if (use.every_part_reads) unite(waited_for[op], read_or_waited_for[use.producer]);
      if (use.whole_samples && !use.sums) unite(waited_for[op], read[use.producer]);
    }
    BitSet& both = read_or_waited_for.emplace_back(waited_for[op]);
    for (const Use& use : into_[op])
      if (use.whole_samples) unite(both, read[use.producer]);
  }
  // A backward part of op waits, for each of its samples, for some backward part of these consumers with it.
  for (OperatorId op = count; op-- > 0;)
    for (const Use& use : out_of_[op])
      if (use.every_element_read && use.gradient) unite(waited_for[op], waited_for[use.consumer]);
  before_[Direction::forward] = std::move(waited_for);
}

void TasksBefore::find_backward() {
  // [b]: b and the operators of which each backward part comes before some backward part of b
  Vector<BitSet> contributing = singletons();
  Vector<BitSet>& before = before_[Direction::backward];
  before.assign(graph_.operators.size(), none_);
  for (OperatorId op = graph_.operators.count(); op-- > 0;)  // consumers first
    for (const Use& use : out_of_[op]) {
      if (!use.gradient) continue;
      if (use.every_part_reads) unite(contributing[op], contributing[use.consumer]);
      if (use.whole_samples && !use.shares) unite(before[op], contributing[use.consumer]);
      if (use.every_element_read) unite(before[op], before[use.consumer]);
    }
}

}  // namespace

SynchronizationOrder::SynchronizationOrder(const TaskGraphBuilder& builder) {
  const Graph& graph = builder.graph();
  const BitSet none(words_for(graph.operators.size()), 0);
  for (Direction direction : directions) before_[direction].assign(builder.groups().size(), none);
  if (graph.operators.count() > most_operators) return;
  const TasksBefore tasks(builder);
  BitSet with_backward = none;
  for (const OperatorId op : graph.operator_ids())
    if (graph.operators[op].has_backward) insert(with_backward, op);
  Vector<int64_t> sizes(builder.groups().size(), 0);
  for (size_t g = 0; g < builder.groups().size(); ++g) {
    const ParameterGroup& group = builder.groups()[g];
    if (!group.trained) continue;
    groups_.push_back(static_cast<int>(g));
    for (Direction direction : directions) {
      BitSet& before = before_[direction][g];  // the pieces of all parameters
      before = direction == Direction::backward ? with_backward : BitSet(none.size(), ~uint64_t{0});
      for (ParameterId parameter : group.parameters) {
        BitSet before_parameter = none;
        for (const auto& [user, which] : graph.parameters[parameter].uses) {
          const OperatorDefinition& definition = *graph.operators[user].definition;
          if (!graph.operators[user].has_backward) continue;
          // Its parts hold all of the parameter between them.
          if (definition.parameter_block(which, definition.whole()) == Block(definition.parameters()[which].shape))
            unite(before_parameter, tasks.before(direction, user));
        }
        for (size_t word = 0; word < none.size(); ++word) before[word] &= before_parameter[word];
      }
      for (const uint64_t word : before) sizes[g] += std::popcount(word);
    }
  }
  std::stable_sort(groups_.begin(), groups_.end(), [&](int a, int b) { return sizes[a] < sizes[b]; });
}

}  // namespace ff::delta
