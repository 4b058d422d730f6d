#include "search/optimizer/baselines/layerwise_costs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/first_devices.h"
#include "common/task_graph/edge_copies.h"
#include "common/task_graph/wiring.h"
#include "search/optimizer/operator_groups.h"

namespace ff {
namespace {

bool same_dimensions(const OperatorDefinition& a, const OperatorDefinition& b) {
  if (a.type() != b.type() || a.dimensions().size() != b.dimensions().size()) return false;
  for (size_t d = 0; d < a.dimensions().size(); ++d)
    if (a.dimensions()[d].name != b.dimensions()[d].name) return false;
  return true;
}

// OptCNN puts part p on device p.
Configuration on_first_devices(const Degrees& degrees) { return {degrees, first_devices(parts_of(degrees))}; }

}  // namespace

// What one phase puts on every link. Empties the shared array when done.
class LayerwiseCosts::Loads {
 public:
  explicit Loads(LayerwiseCosts& costs) : costs_(costs) {}
  ~Loads() {
    for (int32_t resource : costs_.loaded_) costs_.load_ns_[resource] = 0;
    costs_.loaded_.clear();
  }
  void add(int32_t resource, double ns) {
    double& load = costs_.load_ns_[resource];
    if (load == 0) costs_.loaded_.push_back(resource);
    load += ns;
    most_ = std::max(most_, load);
  }
  void add(const CommunicationCost& communication) {
    most_ = std::max(most_, static_cast<double>(communication.duration));
    for (const ResourceUse& use : communication.uses) add(use.resource, static_cast<double>(use.occupancy));
  }
  Nanoseconds most() const { return std::llround(most_); }

 private:
  LayerwiseCosts& costs_;
  double most_ = 0;
};

LayerwiseCosts::LayerwiseCosts(Evaluator& evaluator, const SearchSpace& space, const SearchControl* control)
    : graph_(evaluator.problem().graph), topology_(evaluator.problem().topology), builder_(evaluator.builder()),
      costs_(evaluator.cost_model()), device_count_(topology_.devices.count()),
      load_ns_(device_count_ + topology_.channels.count(), 0) {
  make_layers(space);
  const auto blocks_of = [&](OperatorId op, bool written, const auto& block) {
    BlockLists lists;
    const OperatorDefinition& definition = *graph_.operators[op].definition;
    for (const Degrees& degrees : layers_[layer_of_[op]].degrees) {
      lists.writers.push_back(written ? definition.partial_results(degrees) : 1);
      Vector<Block>& list = lists.of_parts.emplace_back();
      for (int part = 0; part < parts_of(degrees); ++part)
        list.push_back(block(definition, definition.part(degrees, part)));
    }
    return blocks_number(std::move(lists));
  };
  for (int e : builder_.edges().indices()) {
    if (control && control->ended()) return;
    const Edge& edge = builder_.edges()[e];
    const int output = graph_.tensors[edge.tensor].output;
    const int written = blocks_of(edge.producer, true, [&](const OperatorDefinition& d, const Block& part) {
      return d.output_block(output, part);
    });
    const int read = blocks_of(edge.consumer, false, [&](const OperatorDefinition& d, const Block& part) {
      return d.input_block(edge.input, part);
    });
    uses_.push_back({e, written, read, has_gradient(graph_, edge), layer_of_[edge.producer], layer_of_[edge.consumer]});
  }
}

void LayerwiseCosts::make_layers(const SearchSpace& space) {
  layer_of_.assign(graph_.operators.size(), -1);
  for (const Vector<OperatorId>& sharing : parameter_sharing_layers(graph_)) {
    Vector<int> kinds;  // layers made of this set, one for each kind of operator
    for (OperatorId op : sharing) {
      const OperatorDefinition& definition = *graph_.operators[op].definition;
      const auto same = std::find_if(kinds.begin(), kinds.end(), [&](int layer) {
        return same_dimensions(*graph_.operators[layers_[layer].operators[0]].definition, definition);
      });
      const int layer = same != kinds.end() ? *same : layers_.count();
      if (same == kinds.end()) {
        kinds.push_back(layer);
        layers_.push_back({{}, space.soap_degrees(op)});
      }
      layers_[layer].operators.push_back(op);
      layer_of_[op] = layer;
      const auto& allowed = space.soap_degrees(op);
      std::erase_if(layers_[layer].degrees, [&](const auto& degrees) {
        return std::find(allowed.begin(), allowed.end(), degrees) == allowed.end();
      });
    }
    groups_are_split_ = groups_are_split_ || kinds.size() > 1;
  }
}

int LayerwiseCosts::blocks_number(BlockLists blocks) {
  Vector<int64_t> key(blocks.writers.begin(), blocks.writers.end());
  for (const auto& list : blocks.of_parts) {
    key.push_back(static_cast<int64_t>(list.size()));
    for (const Block& block : list) {
      key.push_back(block.rank());
      for (int axis = 0; axis < block.rank(); ++axis) key.insert(key.end(), {block[axis].begin, block[axis].end});
    }
  }
  const auto [it, added] = block_numbers_.emplace(std::move(key), block_lists_.count());
  if (added) block_lists_.push_back(std::move(blocks));
  return it->second;
}

Nanoseconds LayerwiseCosts::compute_ns(OperatorId op, const Degrees& degrees) {
  const OperatorDefinition& definition = *graph_.operators[op].definition;
  Nanoseconds forward = 0, backward = 0, reductions = 0;
  for (int part = 0; part < parts_of(degrees); ++part) {
    const TaskCostModel::PartCost& cost = costs_.part_cost(op, degrees, part, topology_.devices[part].model);
    forward = std::max(forward, cost.all_forward());
    backward = std::max(backward, cost.all_backward());
  }
  CommunicationCost communication;
  for (Direction direction : directions) {
    if (direction == Direction::backward && !graph_.operators[op].has_backward) continue;
    Nanoseconds slowest = 0;
    for (const StatisticsReduction& reduction :
         statistics_reductions(definition, on_first_devices(degrees), direction)) {
      costs_.communication().all_reduce(reduction.holders, reduction.bytes, communication);
      slowest = std::max(slowest, communication.duration);
    }
    reductions += slowest;
  }
  return forward + backward + reductions;
}

Nanoseconds LayerwiseCosts::synchronization_ns(int layer, const Degrees& degrees) {
  Strategy strategy = single_device(graph_);
  for (OperatorId op : layers_[layer].operators) strategy[op] = on_first_devices(degrees);
  Loads collectives(*this);
  Vector<Nanoseconds> updates(device_count_, 0);
  CommunicationCost communication;
  for (int g : builder_.groups().indices()) {
    const ParameterGroup& group = builder_.groups()[g];
    if (!group.trained || std::none_of(group.operators.begin(), group.operators.end(),
                                       [&](OperatorId op) { return layer_of_[op] == layer; }))
      continue;
    const auto pieces = builder_.pieces(g, strategy);
    for (const SynchronizationUnit& unit : synchronization_units(g, *pieces, strategy, builder_.synchronization())) {
      const Vector<DeviceId>& holders = unit.holders;
      if (unit.owner != no_owner) {
        for (const DeviceId holder : holders) {
          if (holder == unit.owner) continue;
          for (const auto& [from, to] : {std::pair(holder, unit.owner), std::pair(unit.owner, holder)}) {
            costs_.communication().transfer(from, to, unit.bytes, communication);
            collectives.add(communication);
          }
        }
      } else if (holders.size() > 1) {
        costs_.communication().all_reduce(holders, unit.bytes, communication);
        collectives.add(communication);
      }
      const Vector<int64_t> sums = gradient_sum_bytes(unit, graph_, strategy);
      for (int h : holders.indices()) {
        const int model = topology_.devices[holders[h]].model;
        updates[holders[h]] +=
            costs_.update_ns(work_of_holder(holders[h], unit.owner, holders.count(), unit.bytes, sums[h]), model);
      }
    }
  }
  return collectives.most() + *std::max_element(updates.begin(), updates.end());
}

Nanoseconds LayerwiseCosts::slowest_copy(const Vector<int64_t>& bytes) {
  Vector<int64_t> most(topology_.models.size(), 0);
  for (int part : bytes.indices()) {
    int64_t& of_model = most[topology_.devices[part].model];
    of_model = std::max(of_model, bytes[part]);
  }
  Nanoseconds slowest = 0;
  for (int model : most.indices()) slowest = std::max(slowest, costs_.copy_ns(most[model], model));
  return slowest;
}

Nanoseconds LayerwiseCosts::exchange_ns(const EdgeBlocks& blocks, bool gradient) {
  const Vector<DeviceId> producers = first_devices(blocks.written.count()),
                         consumers = first_devices(blocks.read.count());
  const EdgeExchanges exchanges = find_exchanges(blocks);
  const Vector<Collective> collectives =
      exchanges.exchanges.empty() ? Vector<Collective>() : collectives_of(exchanges, producers, consumers);
  BlockPairs pairs;
  EdgeCopyBytes copies;
  if (collectives.empty()) {
    pairs = intersect_blocks(blocks);
    copies.set(pairs, producers, consumers, gradient);
  } else {
    copies.set(exchanges, collectives, gradient);
  }
  CommunicationCost communication;
  const auto busiest = [&](Direction direction) {
    const bool forward = direction == Direction::forward;
    Loads loads(*this);
    for (const Collective& one : collectives) {
      costs_.communication().collective(forward ? one.kind : reversed(one.kind), one.holders, one.bytes, communication);
      loads.add(communication);
    }
    for (const BlockPair& pair : pairs) {
      const DeviceId sender = sender_of(pair, direction), receiver = receiver_of(pair, direction);
      if (sender == receiver) continue;
      costs_.communication().transfer(sender, receiver, pair.bytes, communication);
      loads.add(communication);
    }
    return loads.most();
  };
  Nanoseconds time = busiest(Direction::forward) + slowest_copy(copies.packed) + slowest_copy(copies.assembled);
  if (!gradient) return time;
  Vector<int64_t> gathered;
  for (const GradientSum& sum : copies.gradients) gathered.push_back(sum.copied_bytes());
  return time + busiest(Direction::backward) + slowest_copy(copies.packed_gradient) + slowest_copy(gathered);
}

Nanoseconds LayerwiseCosts::edge_cost(const EdgeUse& use, int producer_choice, int consumer_choice) {
  const BlockLists& written = block_lists_[use.written];
  scratch_.written = written.of_parts[producer_choice];
  scratch_.read = block_lists_[use.read].of_parts[consumer_choice];
  scratch_.writers = written.writers[producer_choice];
  scratch_.type = graph_.tensors[builder_.edges()[use.edge].tensor].type;
  return exchange_ns(scratch_, use.gradient);
}

double LayerwiseCosts::steps() const {
  std::map<std::tuple<int, int, bool>, double> different;
  for (const EdgeUse& use : uses_) {
    double written = 0, read = 0;
    for (const auto& blocks : block_lists_[use.written].of_parts) written += static_cast<double>(blocks.size());
    for (const auto& blocks : block_lists_[use.read].of_parts) read += static_cast<double>(blocks.size());
    different[{use.written, use.read, use.gradient}] = written * read;
  }
  double steps = 0;
  for (const auto& [key, count] : different) steps += count;
  return steps;
}

CostTables LayerwiseCosts::tables(const SearchControl* control) {
  CostTables tables;
  for (int layer : layers_.indices()) {
    if (control && control->ended()) return tables;
    tables.node_costs.emplace_back();
    for (const Degrees& degrees : layers_[layer].degrees) {
      Nanoseconds cost = synchronization_ns(layer, degrees);
      for (OperatorId op : layers_[layer].operators) cost += compute_ns(op, degrees);
      tables.node_costs.back().push_back(cost);
    }
  }
  // by blocks: unrolled steps and repeated layers have the same
  std::map<std::tuple<int, int, DataType, bool>, Vector<Nanoseconds>> between, within;
  std::map<std::pair<int, int>, Vector<Nanoseconds>> edges;  // by layers
  for (const EdgeUse& use : uses_) {
    const int choices = layers_[use.producer].degrees.count(), others = layers_[use.consumer].degrees.count();
    const bool inside = use.producer == use.consumer;
    const DataType type = graph_.tensors[builder_.edges()[use.edge].tensor].type;
    Vector<Nanoseconds>& costs = (inside ? within : between)[{use.written, use.read, type, use.gradient}];
    if (costs.empty())
      for (int a = 0; a < choices && !(control && control->ended()); ++a)
        for (int b = inside ? a : 0; b < (inside ? a + 1 : others); ++b) costs.push_back(edge_cost(use, a, b));
    Vector<Nanoseconds>& sum = inside ? tables.node_costs[use.producer] : edges[{use.producer, use.consumer}];
    if (control && control->ended()) return tables;
    sum.resize(costs.size(), 0);
    for (size_t i = 0; i < costs.size(); ++i) sum[i] += costs[i];
  }
  for (auto& [layers, costs] : edges) tables.edges.push_back({layers.first, layers.second, std::move(costs)});
  return tables;
}

Strategy LayerwiseCosts::strategy(const Vector<int>& choice) const {
  Strategy strategy(graph_.operators.size());
  for (int layer : layers_.indices())
    for (OperatorId op : layers_[layer].operators)
      strategy[op] = on_first_devices(layers_[layer].degrees[choice[layer]]);
  return strategy;
}

}  // namespace ff
