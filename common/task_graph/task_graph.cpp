#include "common/task_graph/task_graph.h"
#include "common/vector.h"

#include <algorithm>
#include <cassert>

namespace ff {
namespace {

// The blocks that an operator's parts write of one output: a grid of cells. Finds the few that a block overlaps without
// looking at all.
class OutputGrid {
 public:
  OutputGrid(const OperatorDefinition& producer, int output, const Degrees& degrees, int parts) {
    for (int p = 0; p < parts; ++p) blocks_.push_back(producer.output_block(output, producer.part(degrees, p)));
    const int rank = blocks_[0].rank();
    begins_.resize(rank);
    for (int axis = 0; axis < rank; ++axis) {
      Vector<int64_t>& begins = begins_[axis];
      for (const Block& block : blocks_) begins.push_back(block[axis].begin);
      std::sort(begins.begin(), begins.end());
      begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
    }
    size_t cells = 1;
    for (const auto& begins : begins_) cells *= begins.size();
    assert(cells == blocks_.size());
    part_of_cell_.resize(cells);
    for (int p = 0; p < parts; ++p) {
      size_t cell = 0;
      for (int axis = 0; axis < rank; ++axis)
        cell = cell * begins_[axis].size() + index_of(axis, blocks_[p][axis].begin);
      part_of_cell_[cell] = p;
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
      const int32_t part = part_of_cell_[cell];
      visit(part, blocks_[part]);
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

  Vector<Block> blocks_;
  Vector<Vector<int64_t>> begins_;  // by axis
  Vector<int32_t> part_of_cell_;
};

BlockPairs intersect_blocks(const Graph& graph, const Edge& edge, const Degrees& producer_degrees,
                            const Degrees& consumer_degrees) {
  const OperatorDefinition& producer = *graph.operators[edge.producer].definition;
  const OperatorDefinition& consumer = *graph.operators[edge.consumer].definition;
  const int output = graph.tensors[edge.tensor].output;
  const OutputGrid grid(producer, output, producer_degrees, parts_of(producer_degrees));
  BlockPairs pairs;
  for (int c = 0; c < parts_of(consumer_degrees); ++c) {
    const Block read = consumer.input_block(edge.input, consumer.part(consumer_degrees, c));
    if (read.empty()) continue;
    const size_t first = pairs.size();
    grid.for_each_overlapping(read, [&](int32_t p, const Block& written) {
      const Block region = intersect(written, read);
      pairs.push_back({p, c, region.volume() * element_bytes, region == written, region == read});
    });
    std::sort(pairs.begin() + static_cast<int64_t>(first), pairs.end(),
              [](const BlockPair& a, const BlockPair& b) { return a.producer_part < b.producer_part; });
  }
  return pairs;
}

// Cuts each axis of the parameter wherever some user's block begins or ends; the cells of that grid are the pieces.
void cut_parameter(const Graph& graph, ParameterId id, const Strategy& strategy, Vector<ParameterPiece>& pieces) {
  const Parameter& parameter = graph.parameters[id];
  struct Use {
    OperatorId op;
    int part;
    Block block;
    int block_number;
  };
  Vector<Use> uses;
  Vector<Block> distinct;
  for (const auto& [op, which] : parameter.uses)
    for (int part = 0; part < strategy[op].parts(); ++part) {
      const OperatorDefinition& definition = *graph.operators[op].definition;
      const Block block = definition.parameter_block(which, definition.part(strategy[op].degrees, part));
      const auto found = std::find(distinct.begin(), distinct.end(), block);
      const int number = static_cast<int>(found - distinct.begin());
      if (found == distinct.end()) distinct.push_back(block);
      uses.push_back({op, part, block, number});
    }
  const int rank = static_cast<int>(parameter.spec.shape.size());
  Vector<Vector<int64_t>> cuts(rank);
  for (int axis = 0; axis < rank; ++axis) {
    for (const Use& use : uses) {
      cuts[axis].push_back(use.block[axis].begin);
      cuts[axis].push_back(use.block[axis].end);
    }
    std::sort(cuts[axis].begin(), cuts[axis].end());
    cuts[axis].erase(std::unique(cuts[axis].begin(), cuts[axis].end()), cuts[axis].end());
  }
  Vector<size_t> cell(rank, 0);
  while (true) {
    Block block;
    for (int axis = 0; axis < rank; ++axis) block.append({cuts[axis][cell[axis]], cuts[axis][cell[axis] + 1]});
    ParameterPiece piece{id, block, {}, {}};
    for (const Use& use : uses)
      if (use.block.contains(block)) {
        piece.users.emplace_back(use.op, use.part);
        piece.user_blocks.push_back(use.block_number);
      }
    if (!piece.users.empty()) pieces.push_back(std::move(piece));
    int axis = rank - 1;
    while (axis >= 0 && ++cell[axis] + 1 == cuts[axis].size()) cell[axis--] = 0;
    if (axis < 0) break;
  }
}

}  // namespace

Vector<DeviceId> reduction_holders(const OperatorDefinition& definition, const Configuration& configuration,
                                   int number) {
  Vector<DeviceId> holders;
  for (int part = 0; part < configuration.parts(); ++part)
    if (definition.statistics_group(configuration.degrees, part) == number)
      holders.push_back(configuration.devices[part]);
  std::sort(holders.begin(), holders.end());
  holders.erase(std::unique(holders.begin(), holders.end()), holders.end());
  return holders;
}

Vector<int64_t> gradient_sum_bytes(const SynchronizationUnit& unit, const Graph& graph, const Strategy& strategy) {
  Vector<int64_t> sums(unit.holders.size(), 0);
  Vector<Vector<int>> blocks(unit.holders.size());
  for (const ParameterPiece* piece : unit.pieces) {
    for (Vector<int>& numbers : blocks) numbers.clear();
    for (size_t u = 0; u < piece->users.size(); ++u) {
      const auto& [op, part] = piece->users[u];
      if (!graph.operators[op].has_backward) continue;
      const size_t holder =
          static_cast<size_t>(std::lower_bound(unit.holders.begin(), unit.holders.end(), strategy[op].devices[part]) -
                              unit.holders.begin());
      Vector<int>& numbers = blocks[holder];
      if (std::find(numbers.begin(), numbers.end(), piece->user_blocks[u]) == numbers.end())
        numbers.push_back(piece->user_blocks[u]);
    }
    const int64_t bytes = piece->block.volume() * element_bytes;
    for (size_t h = 0; h < sums.size(); ++h)
      if (blocks[h].size() > 1) sums[h] += static_cast<int64_t>(blocks[h].size() - 1) * bytes * 3 / 2;
  }
  return sums;
}

TaskGraphBuilder::TaskGraphBuilder(const Graph& graph) : graph_(graph) {
  for (OperatorId op = 0; op < static_cast<OperatorId>(graph.operators.size()); ++op)
    for (size_t input = 0; input < graph.operators[op].inputs.size(); ++input) {
      const TensorId tensor = graph.operators[op].inputs[input];
      if (graph.tensors[tensor].producer >= 0)
        edges_.push_back({tensor, graph.tensors[tensor].producer, op, static_cast<int>(input)});
    }
  std::map<std::pair<Vector<OperatorId>, bool>, int> by_operators;
  for (ParameterId id = 0; id < static_cast<ParameterId>(graph.parameters.size()); ++id) {
    Vector<OperatorId> operators;
    for (const auto& [op, which] : graph.parameters[id].uses) operators.push_back(op);
    const auto [it, added] =
        by_operators.emplace(std::pair(operators, graph.parameters[id].spec.trained), static_cast<int>(groups_.size()));
    const std::string& name = graph.parameters[id].name;
    if (added) groups_.push_back({name.substr(0, name.rfind('.')), {}, operators, false});
    ParameterGroup& group = groups_[it->second];
    group.parameters.push_back(id);
    if (!graph.parameters[id].spec.trained) continue;
    for (OperatorId op : operators) group.trained = group.trained || graph.operators[op].has_backward;
  }
  pair_cache_.resize(edges_.size());
  piece_cache_.resize(groups_.size());
}

TaskGraphBuilder::~TaskGraphBuilder() = default;

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

Block TaskGraphBuilder::region(int edge, const BlockPair& pair, const Strategy& strategy) const {
  const Edge& e = edges_[edge];
  const OperatorDefinition& producer = *graph_.operators[e.producer].definition;
  const OperatorDefinition& consumer = *graph_.operators[e.consumer].definition;
  return intersect(producer.output_block(graph_.tensors[e.tensor].output,
                                         producer.part(strategy[e.producer].degrees, pair.producer_part)),
                   consumer.input_block(e.input, consumer.part(strategy[e.consumer].degrees, pair.consumer_part)));
}

std::shared_ptr<const Vector<ParameterPiece>> TaskGraphBuilder::pieces(int group, const Strategy& strategy) {
  Degrees key;
  for (OperatorId op : groups_[group].operators)
    key.insert(key.end(), strategy[op].degrees.begin(), strategy[op].degrees.end());
  const auto found = piece_cache_[group].find(key);
  if (found != piece_cache_[group].end()) return found->second;
  auto result = std::make_shared<Vector<ParameterPiece>>();
  for (ParameterId id : groups_[group].parameters) cut_parameter(graph_, id, strategy, *result);
  if (cached_users_ > most_cached_users) {
    for (auto& cache : piece_cache_) cache.clear();
    cached_users_ = 0;
  }
  for (const ParameterPiece& piece : *result) cached_users_ += piece.users.size();
  return piece_cache_[group].emplace(std::move(key), std::move(result)).first->second;
}

// A task graph under construction.
struct TaskGraphBuilder::Assembly {
  const Strategy& strategy;
  TaskGraph graph;
  Vector<int32_t> forward_base, backward_base;  // by operator: index of part 0's task; backward -1 without one
  // the same of the tasks that come first: the statistics tasks, or the tasks themselves
  Vector<int32_t> forward_first, backward_first;
  Vector<std::pair<int32_t, int32_t>> order;  // (before, after)

  int32_t add(const Task& task) {
    graph.tasks.push_back(task);
    return static_cast<int32_t>(graph.tasks.size()) - 1;
  }
  void link_successors() {
    const size_t count = graph.tasks.size();
    graph.successor_begin.assign(count + 1, 0);
    graph.predecessor_count.assign(count, 0);
    for (const auto& [before, after] : order) {
      ++graph.successor_begin[before + 1];
      ++graph.predecessor_count[after];
    }
    for (size_t t = 0; t < count; ++t) graph.successor_begin[t + 1] += graph.successor_begin[t];
    graph.successors.resize(order.size());
    Vector<int32_t> next(graph.successor_begin.begin(), graph.successor_begin.end() - 1);
    for (const auto& [before, after] : order) graph.successors[next[before]++] = after;
  }
};

TaskGraph TaskGraphBuilder::build(const Strategy& strategy) {
  Assembly assembly{strategy, {}, {}, {}, {}, {}, {}};
  add_compute_tasks(assembly);
  add_transfers(assembly);
  add_synchronization(assembly);
  assembly.link_successors();
  return std::move(assembly.graph);
}

void TaskGraphBuilder::add_compute_tasks(Assembly& assembly) {
  for (OperatorId op = 0; op < static_cast<OperatorId>(graph_.operators.size()); ++op) {
    const Configuration& configuration = assembly.strategy[op];
    for (TaskKind kind : {TaskKind::forward, TaskKind::backward}) {
      const bool forward = kind == TaskKind::forward;
      auto& base = forward ? assembly.forward_base : assembly.backward_base;
      auto& first = forward ? assembly.forward_first : assembly.backward_first;
      if (!forward && !graph_.operators[op].has_backward) {
        base.push_back(-1);
        first.push_back(-1);
        continue;
      }
      const auto add_parts = [&](TaskKind added) {
        const int32_t begin = static_cast<int32_t>(assembly.graph.tasks.size());
        for (int part = 0; part < configuration.parts(); ++part) {
          Task task{make_task_key(added, op, part, 0), added};
          task.op = op;
          task.part = part;
          task.device = configuration.devices[part];
          assembly.add(task);
        }
        return begin;
      };
      const bool statistics = graph_.operators[op].definition->has_statistics();
      if (statistics)
        first.push_back(add_parts(forward ? TaskKind::forward_statistics : TaskKind::backward_statistics));
      base.push_back(add_parts(kind));
      if (statistics) add_reductions(assembly, op, forward);
      else first.push_back(base.back());
      if (!forward)
        for (int part = 0; part < configuration.parts(); ++part)
          assembly.order.emplace_back(assembly.forward_base[op] + part, assembly.backward_first[op] + part);
    }
  }
}

void TaskGraphBuilder::add_reductions(Assembly& assembly, OperatorId op, bool forward) {
  const OperatorDefinition& definition = *graph_.operators[op].definition;
  const Configuration& configuration = assembly.strategy[op];
  const TaskKind kind = forward ? TaskKind::forward_reduction : TaskKind::backward_reduction;
  const int32_t begin = static_cast<int32_t>(assembly.graph.tasks.size());
  for (int group = 0; group < definition.statistics_groups(configuration.degrees); ++group) {
    Task task{make_task_key(kind, op, group, 0), kind};
    task.op = op;
    task.part = group;
    assembly.add(task);
  }
  const int32_t first = (forward ? assembly.forward_first : assembly.backward_first).back();
  const int32_t last = (forward ? assembly.forward_base : assembly.backward_base).back();
  for (int part = 0; part < configuration.parts(); ++part) {
    Task& reduction = assembly.graph.tasks[begin + definition.statistics_group(configuration.degrees, part)];
    reduction.bytes = definition.statistics_bytes(definition.part(configuration.degrees, part));
    const int32_t index = static_cast<int32_t>(&reduction - assembly.graph.tasks.data());
    assembly.order.emplace_back(first + part, index);
    assembly.order.emplace_back(index, last + part);
  }
}

void TaskGraphBuilder::add_transfers(Assembly& assembly) {
  Vector<Task>& tasks = assembly.graph.tasks;
  // Contributions to the gradient of each part of each tensor: how many, how many bytes, and whether a single one needs
  // no copy.
  struct Contributions {
    int count = 0;
    int64_t bytes = 0;
    bool in_place = false;
  };
  std::map<TensorId, Vector<Contributions>> contributions;

  for (size_t e = 0; e < edges_.size(); ++e) {
    const Edge& edge = edges_[e];
    const Configuration& producer = assembly.strategy[edge.producer];
    const Configuration& consumer = assembly.strategy[edge.consumer];
    const auto shared_pairs = pairs(static_cast<int>(e), assembly.strategy);
    assembly.graph.kept.push_back(shared_pairs);
    const BlockPairs& block_pairs = *shared_pairs;
    const bool has_gradient =
        graph_.input_has_gradient(edge.consumer, edge.input) && graph_.operators[edge.consumer].has_backward;
    Vector<Contributions>* received = nullptr;
    if (has_gradient) {
      received = &contributions[edge.tensor];
      received->resize(producer.devices.size());
    }
    for (size_t i = 0; i < block_pairs.size(); ++i) {
      const BlockPair& pair = block_pairs[i];
      const int32_t forward_producer = assembly.forward_base[edge.producer] + pair.producer_part;
      const int32_t forward_consumer = assembly.forward_first[edge.consumer] + pair.consumer_part;
      const DeviceId source = producer.devices[pair.producer_part], destination = consumer.devices[pair.consumer_part];
      const bool local = source == destination;
      const auto connect = [&](TaskKind kind, int32_t before, int32_t after, DeviceId from, DeviceId to) {
        if (local) {
          assembly.order.emplace_back(before, after);
          return;
        }
        Task task{make_task_key(kind, static_cast<int64_t>(e), pair.consumer_part, pair.producer_part), kind};
        task.edge = static_cast<int32_t>(e);
        task.device = from;
        task.destination = to;
        task.pair = &pair;
        task.bytes = pair.bytes;
        const int32_t transfer = assembly.add(task);
        assembly.graph.transfer_bytes += pair.bytes;
        assembly.order.emplace_back(before, transfer);
        assembly.order.emplace_back(transfer, after);
      };
      connect(TaskKind::activation, forward_producer, forward_consumer, source, destination);
      const bool in_place = pair.whole_input && (!local || pair.whole_output);
      if (!in_place) tasks[forward_consumer].copy_bytes += pair.bytes;
      if (!local && !pair.whole_output) tasks[forward_producer].copy_bytes += pair.bytes;  // packing
      if (!has_gradient) continue;
      const int32_t backward_producer = assembly.backward_first[edge.producer] + pair.producer_part;
      const int32_t backward_consumer = assembly.backward_base[edge.consumer] + pair.consumer_part;
      connect(TaskKind::gradient, backward_consumer, backward_producer, destination, source);
      if (!local && !pair.whole_input) tasks[backward_consumer].copy_bytes += pair.bytes;  // packing
      Contributions& sum = (*received)[pair.producer_part];
      ++sum.count;
      sum.bytes += pair.bytes;
      sum.in_place = pair.whole_output && (!local || pair.whole_input);
    }
  }
  for (const auto& [tensor, parts] : contributions)
    for (size_t part = 0; part < parts.size(); ++part)
      if (parts[part].count > 1 || !parts[part].in_place)
        tasks[assembly.backward_first[graph_.tensors[tensor].producer] + static_cast<int32_t>(part)].copy_bytes +=
            parts[part].bytes;
}

void TaskGraphBuilder::add_synchronization(Assembly& assembly) {
  TaskGraph& graph = assembly.graph;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (!groups_[g].trained) continue;
    const auto shared_pieces = pieces(static_cast<int>(g), assembly.strategy);
    graph.kept.push_back(shared_pieces);
    const Vector<ParameterPiece>& group_pieces = *shared_pieces;
    std::map<Vector<DeviceId>, size_t> by_holders;
    const size_t first_unit = graph.units.size();
    Vector<size_t> first_piece;  // of each unit: its number in keys and names
    for (size_t p = 0; p < group_pieces.size(); ++p) {
      Vector<DeviceId> holders;
      for (const auto& [op, part] : group_pieces[p].users) holders.push_back(assembly.strategy[op].devices[part]);
      std::sort(holders.begin(), holders.end());
      holders.erase(std::unique(holders.begin(), holders.end()), holders.end());
      const auto [it, added] = by_holders.emplace(holders, graph.units.size());
      if (added) {
        graph.units.push_back({static_cast<int>(g), std::move(holders), {}, 0});
        first_piece.push_back(p);
      }
      SynchronizationUnit& unit = graph.units[it->second];
      unit.pieces.push_back(&group_pieces[p]);
      unit.bytes += group_pieces[p].block.volume() * element_bytes;
    }
    for (size_t u = first_unit; u < graph.units.size(); ++u) {
      const SynchronizationUnit& unit = graph.units[u];
      const int64_t number = static_cast<int64_t>(first_piece[u - first_unit]);
      Vector<int32_t> contributors;
      for (const ParameterPiece* piece : unit.pieces)
        for (const auto& [op, part] : piece->users)
          contributors.push_back(
              (graph_.operators[op].has_backward ? assembly.backward_base[op] : assembly.forward_base[op]) + part);
      std::sort(contributors.begin(), contributors.end());
      contributors.erase(std::unique(contributors.begin(), contributors.end()), contributors.end());
      int32_t collective = -1;
      if (unit.holders.size() > 1) {
        Task task{make_task_key(TaskKind::synchronization, static_cast<int64_t>(g), number, 0),
                  TaskKind::synchronization};
        task.unit = static_cast<int32_t>(u);
        task.bytes = unit.bytes;
        collective = assembly.add(task);
        graph.synchronization_bytes += 2 * static_cast<int64_t>(unit.holders.size() - 1) * unit.bytes;
        for (int32_t contributor : contributors) assembly.order.emplace_back(contributor, collective);
      }
      const Vector<int64_t> sums = gradient_sum_bytes(unit, graph_, assembly.strategy);
      for (size_t h = 0; h < unit.holders.size(); ++h) {
        const DeviceId holder = unit.holders[h];
        Task task{make_task_key(TaskKind::update, static_cast<int64_t>(g), number, holder), TaskKind::update};
        task.unit = static_cast<int32_t>(u);
        task.device = holder;
        task.bytes = unit.bytes;
        task.copy_bytes = sums[h];
        const int32_t update = assembly.add(task);
        if (collective >= 0) assembly.order.emplace_back(collective, update);
        else
          for (int32_t contributor : contributors) assembly.order.emplace_back(contributor, update);
      }
    }
  }
}

}  // namespace ff
