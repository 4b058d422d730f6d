#include "search/optimizer/baselines/propagate.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <unordered_map>

#include "common/task_graph/edges.h"
#include "search/optimizer/tensor_axes.h"

namespace ff {
namespace {

// Does it split the batch and nothing else?
bool splits_batch_alone(const OperatorDefinition& definition, const Configuration& configuration) {
  for (const int d : configuration.degrees.indices())
    if (configuration.degrees[d] > 1 && definition.dimensions()[d].kind != DimensionKind::sample) return false;
  return true;
}

// Bytes of parameters that are held more than once.
int64_t repeated_parameter_bytes(const OperatorDefinition& definition, const Configuration& configuration) {
  int64_t elements = 0;
  for (const int p : definition.parameters().indices()) {
    for (int64_t part = 0; part < configuration.parts(); ++part)
      elements += definition.parameter_block(p, definition.part(configuration.degrees, part)).volume();
    elements -= volume(definition.parameters()[p].shape);
  }
  return elements * element_bytes;
}

// [dimension of one operator]: the dimension of its neighbour that splits the same axis of the tensor between them; -1.
using Links = Vector<int>;

// A neighbour's configuration as one of an operator: linked dimensions have its degrees. What the neighbour is split in
// apart from these (partial sums, say) becomes a further split of the batch, and if that is too small, of attributes.
// Parts are where the neighbour's are that they belong to. `allowed`: which dimensions may be split.
class Projection {
 public:
  Projection(const OperatorDefinition& definition, const Links& links, const Configuration& theirs,
             const Vector<bool>& allowed)
      : definition_(definition), links_(links), theirs_(theirs), allowed_(allowed),
        linked_(definition.dimensions().size(), 1), filled_(definition.dimensions().size(), 1),
        is_linked_(theirs.degrees.size(), false) {
    link();
    fill();
  }

  Configuration configuration() const {
    Configuration result;
    for (const int d : linked_.indices()) result.degrees.push_back(linked_[d] * filled_[d]);
    for (int part = 0, parts = parts_of(result.degrees); part < parts; ++part)
      result.devices.push_back(theirs_.devices[their_part(result.degrees, part)]);
    return result;
  }

 private:
  void link() {
    for (const int d : linked_.indices()) {
      const int theirs = links_[d];
      if (theirs < 0 || is_linked_[theirs] || !allowed_[d]) continue;
      if (theirs_.degrees[theirs] > definition_.dimensions()[d].size) continue;
      linked_[d] = theirs_.degrees[theirs];
      is_linked_[theirs] = true;
    }
    for (const int theirs : is_linked_.indices())
      if (!is_linked_[theirs]) unlinked_ *= theirs_.degrees[theirs];
  }

  void fill() {
    int rest = unlinked_;
    for (const DimensionKind kind : {DimensionKind::sample, DimensionKind::attribute})
      for (const int d : linked_.indices()) {
        const ParallelDimension& dimension = definition_.dimensions()[d];
        if (dimension.kind != kind || !allowed_[d]) continue;
        int degree = static_cast<int>(std::min<int64_t>(rest, dimension.size / linked_[d]));
        while (rest % degree != 0) --degree;
        filled_[d] = degree;
        rest /= degree;
        order_.push_back(d);
      }
  }

  int their_part(const Degrees& degrees, int part) const {
    Vector<int> linked(links_.size(), 0), filled(links_.size(), 0);  // coordinates
    for (int d = degrees.count() - 1; d >= 0; part /= degrees[d], --d) {
      linked[d] = part % degrees[d] / filled_[d];
      filled[d] = part % degrees[d] % filled_[d];
    }
    int rest = 0, fills = 1;
    for (const int d : order_) {
      rest = rest * filled_[d] + filled[d];
      fills *= filled_[d];
    }
    rest *= unlinked_ / fills;  // where the fill is smaller, every so many of their parts have none here
    int result = 0, stride = 1;
    for (int theirs = theirs_.degrees.count() - 1; theirs >= 0; --theirs) {
      const int degree = theirs_.degrees[theirs];
      int coordinate = 0;
      if (is_linked_[theirs]) {
        for (const int d : links_.indices())
          if (links_[d] == theirs && linked_[d] == degree) coordinate = linked[d];
      } else {
        coordinate = rest % degree;
        rest /= degree;
      }
      result += coordinate * stride;
      stride *= degree;
    }
    return result;
  }

  const OperatorDefinition& definition_;
  const Links& links_;
  const Configuration& theirs_;
  const Vector<bool>& allowed_;
  Degrees linked_, filled_;  // the degree of a dimension is their product
  Vector<bool> is_linked_;   // [dimension of the neighbour]
  Vector<int> order_;        // of filled dimensions
  int unlinked_ = 1;         // parts of the neighbour for one combination of linked coordinates
};

class Propagation {
 public:
  explicit Propagation(const Problem& problem)
      : problem_(problem), graph_(problem.graph), edges_(edges_of(graph_)), edges_of_(graph_.operators.size()),
        decided_(graph_.operators.size()), distance_(graph_.operators.size(), 0), best_(graph_.operators.size()) {
    for (const int e : edges_.indices()) {
      edges_of_[edges_[e].producer].push_back(e);
      edges_of_[edges_[e].consumer].push_back(e);
    }
  }

  Strategy run() {
    const Topology& topology = problem_.topology;
    if (problem_.annotations)
      for (const OperatorId op : graph_.operator_ids())
        if (const Annotation* annotation = problem_.annotations->find(op); annotation && annotation->decides())
          decide(op, completed(*annotation, definition(op), topology.devices.count()), 0);
    while (true) {
      const OperatorId next = cheapest();
      if (next < 0) break;
      decide(next, best_[next]->configuration, best_[next]->distance);
    }
    Strategy strategy = problem_.keeping_annotations(data_parallel(graph_, topology));
    for (const OperatorId op : decided_.indices())
      if (decided_[op]) strategy[op] = *decided_[op];
    return strategy;
  }

 private:
  struct Choice {
    int64_t moved_bytes = 0;
    int64_t repeated_parameter_bytes = 0;
    bool not_batch = true;  // else it splits the batch alone
    int distance = 0;       // of the operator from an annotation, along edges between decided operators
    Configuration configuration;
  };
  // Among the candidates of an operator.
  static bool better(const Choice& a, const Choice& b) {
    const auto key = [](const Choice& choice) {
      return std::tuple(choice.moved_bytes, choice.repeated_parameter_bytes, choice.not_batch,
                        -choice.configuration.parts());
    };
    return std::pair(key(a), a.configuration.degrees) < std::pair(key(b), b.configuration.degrees);
  }
  // Among operators, with their best candidates: who is decided first?
  static bool before(const Choice& a, const Choice& b) {
    return std::tie(a.moved_bytes, a.distance, a.not_batch) < std::tie(b.moved_bytes, b.distance, b.not_batch);
  }

  const OperatorDefinition& definition(OperatorId op) const { return *graph_.operators[op].definition; }

  void decide(OperatorId op, Configuration configuration, int distance) {
    decided_[op] = std::move(configuration);
    distance_[op] = distance;
    best_[op].reset();
    for (const int e : edges_of_[op])
      for (const OperatorId neighbour : {edges_[e].producer, edges_[e].consumer})
        if (!decided_[neighbour]) best_[neighbour] = best_choice(neighbour);
  }

  // The undecided operator with the best choice; of equal ones the first in the graph. -1: no neighbour of a decided
  // one is left.
  OperatorId cheapest() const {
    OperatorId result = -1;
    for (const OperatorId op : best_.indices())
      if (best_[op] && (result < 0 || before(*best_[op], *best_[result]))) result = op;
    return result;
  }

  std::optional<Choice> best_choice(OperatorId op) const {
    std::optional<Choice> best;
    Vector<Configuration> seen;
    const auto consider = [&](Configuration configuration) {
      if (configuration.parts() < 2 || std::find(seen.begin(), seen.end(), configuration) != seen.end()) return;
      seen.push_back(configuration);
      Choice choice = evaluated(op, std::move(configuration));
      if (!best || better(choice, *best)) best = std::move(choice);
    };
    const Vector<bool> allowed = allowed_dimensions(op);
    int distance = std::numeric_limits<int>::max();
    for (const int e : edges_of_[op]) {
      const Edge& edge = edges_[e];
      const OperatorId neighbour = edge.producer == op ? edge.consumer : edge.producer;
      // Operators that are not split say nothing about others.
      if (!decided_[neighbour] || decided_[neighbour]->parts() < 2) continue;
      distance = std::min(distance, distance_[neighbour] + 1);
      const Links links = links_of(edge, op), none(links.size(), -1);
      for (const Links& each : {links, none})
        consider(Projection(definition(op), each, *decided_[neighbour], allowed).configuration());
    }
    if (best) best->distance = distance;
    return best;
  }

  Choice evaluated(OperatorId op, Configuration configuration) const {
    Choice choice;
    for (const int e : edges_of_[op]) {
      const Edge& edge = edges_[e];
      const OperatorId neighbour = edge.producer == op ? edge.consumer : edge.producer;
      if (!decided_[neighbour]) continue;
      const bool produces = edge.producer == op;
      choice.moved_bytes +=
          moved_bytes(graph_, edge.tensor, edge.input, edge.consumer, produces ? configuration : *decided_[neighbour],
                      produces ? *decided_[neighbour] : configuration);
    }
    choice.repeated_parameter_bytes = repeated_parameter_bytes(definition(op), configuration);
    choice.not_batch = !splits_batch_alone(definition(op), configuration);
    choice.configuration = std::move(configuration);
    return choice;
  }

  // An annotation may say that some are not to be split.
  Vector<bool> allowed_dimensions(OperatorId op) const {
    const Annotation* annotation = problem_.annotations ? problem_.annotations->find(op) : nullptr;
    Vector<bool> allowed;
    for (const int d : definition(op).dimensions().indices())
      allowed.push_back(!annotation || annotation->degrees[d] == 0);
    return allowed;
  }

  Links links_of(const Edge& edge, OperatorId op) const {
    const OperatorDefinition &producer = definition(edge.producer), &consumer = definition(edge.consumer);
    const int output = graph_.tensors[edge.tensor].output;
    Vector<int> written, read;
    for (const int d : producer.dimensions().indices()) written.push_back(axis_of_output(producer, output, d));
    for (const int d : consumer.dimensions().indices()) read.push_back(axis_of_input(consumer, edge.input, d));
    const Vector<int>&own = edge.producer == op ? written : read, &theirs = edge.producer == op ? read : written;
    Links links;
    for (const int axis : own) {
      const auto found = axis < 0 ? theirs.end() : std::find(theirs.begin(), theirs.end(), axis);
      links.push_back(found == theirs.end() ? -1 : static_cast<int>(found - theirs.begin()));
    }
    return links;
  }

  const Problem& problem_;
  const Graph& graph_;
  const Vector<Edge> edges_;
  Vector<Vector<int>> edges_of_;  // [operator]
  Vector<std::optional<Configuration>> decided_;
  Vector<int> distance_;                // of decided operators
  Vector<std::optional<Choice>> best_;  // of undecided operators next to decided ones
};

}  // namespace

int64_t moved_bytes(const Graph& graph, TensorId tensor, int input, OperatorId consumer,
                    const Configuration& producer_configuration, const Configuration& consumer_configuration) {
  const OperatorDefinition& writer = *graph.operators[graph.tensors[tensor].producer].definition;
  const OperatorDefinition& reader = *graph.operators[consumer].definition;
  std::unordered_map<DeviceId, Vector<Block>> written;
  for (int64_t p = 0; p < producer_configuration.parts(); ++p)
    written[producer_configuration.devices[p]].push_back(
        writer.output_block(graph.tensors[tensor].output, writer.part(producer_configuration.degrees, p)));
  const int64_t shares = writer.partial_results(producer_configuration.degrees);
  int64_t read = 0, received = 0;
  for (int64_t c = 0; c < consumer_configuration.parts(); ++c) {
    const Block block = reader.input_block(input, reader.part(consumer_configuration.degrees, c));
    if (block.empty()) continue;
    read += block.volume();
    received += shares * block.volume();
    if (const auto here = written.find(consumer_configuration.devices[c]); here != written.end())
      for (const Block& own : here->second) received -= intersect(own, block).volume();
  }
  if (shares > 1) {
    // A reduce-scatter of what is read, then an all-gather of what several read.
    const int64_t summed = std::min(read, volume(graph.tensors[tensor].shape));
    received = std::min(received, (shares - 1) * summed + read - summed);
  }
  return bytes_of(graph.tensors[tensor].type, received) * (graph.input_has_gradient(consumer, input) ? 2 : 1);
}

Strategy propagate(const Problem& problem) { return Propagation(problem).run(); }

}  // namespace ff
