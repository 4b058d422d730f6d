#include "search/simulator/delta/strategy_state.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace ff::delta {

StrategyState::StrategyState(TaskGraphBuilder& builder_, const Topology& topology_, TaskCostModel& costs_)
    : NetworkStructure(builder_), topology(topology_), costs(costs_), operators(graph.operators.size()),
      tasks(graph.operators.size()), edges(builder.edges().size()), groups(builder.groups().size()), plans_(builder_) {
  check_room_in_keys("topology", "devices", topology.devices.count(), most_key_parts);
  for (const ParameterGroup& group : builder.groups()) partitions_.emplace_back(graph, group);
}

void StrategyState::reset(const Strategy& new_strategy) {
  replaced_.operators.clear();
  strategy = new_strategy;
  parts_on.assign(topology.devices.size(), 0);
  for (OperatorId op = 0; op < count(); ++op) set_operator(op);
  for (const Configuration& configuration : strategy) count_parts(configuration.devices, 1);
  for (size_t e = 0; e < edges.size(); ++e) set_edge(static_cast<int>(e));
  for (OperatorId op = 0; op < count(); ++op) set_tasks(op);
  for (size_t g = 0; g < groups.size(); ++g)
    if (builder.groups()[g].trained) set_group(static_cast<int>(g));
}

void StrategyState::change(const Vector<Change>& changes) {
  for (auto* list : {&touched_, &touched_edges_, &touched_groups_}) list->clear();
  for (const Change& change : changes) {
    touched_.insert(touched_.end(), around[change.op].begin(), around[change.op].end());
    for (const auto* list : {&in_edges[change.op], &out_edges[change.op]})
      touched_edges_.insert(touched_edges_.end(), list->begin(), list->end());
    for (const auto& [g, position] : groups_of[change.op]) touched_groups_.push_back(g);
  }
  for (auto* list : {&touched_, &touched_edges_, &touched_groups_}) sort_and_unique(*list);

  replaced_.operators.clear();
  for (const Change& change : changes) {
    Replaced::Changed& before = replaced_.operators.add();
    before.op = change.op;
    before.configuration = strategy[change.op];
    before.state = operators[change.op];
    count_parts(strategy[change.op].devices, -1);
    count_parts(change.configuration.devices, 1);
    strategy[change.op] = change.configuration;
    set_operator(change.op);
  }
  replaced_.edges.clear();
  for (int e : touched_edges_) {
    auto& [edge, before] = replaced_.edges.add();
    edge = e;
    std::swap(before, edges[e]);
    set_edge(e);
  }
  replaced_.tasks.clear();
  for (OperatorId op : touched_) {
    Replaced::Tasks& before = replaced_.tasks.add();
    before.op = op;
    std::swap(before.tasks, tasks[op]);
    set_tasks(op);
  }
  replaced_.groups.clear();
  for (int g : touched_groups_) {
    auto& [group, before] = replaced_.groups.add();
    group = g;
    before = std::move(groups[g]);
    groups[g] = {};
    set_group(g);
  }
}

void StrategyState::undo() {
  for (Replaced::Changed& before : replaced_.operators) {
    count_parts(strategy[before.op].devices, -1);
    count_parts(before.configuration.devices, 1);
    strategy[before.op] = std::move(before.configuration);
    std::swap(operators[before.op], before.state);
  }
  for (Replaced::Tasks& before : replaced_.tasks) std::swap(tasks[before.op], before.tasks);
  for (auto& [e, before] : replaced_.edges) std::swap(edges[e], before);
  for (auto& [g, before] : replaced_.groups) groups[g] = std::move(before);
}

void StrategyState::count_parts(const Vector<DeviceId>& devices, int32_t sign) {
  for (const DeviceId device : devices) parts_on[device] += sign;
}

void StrategyState::set_operator(OperatorId op) {
  OperatorState& state = operators[op];
  const Configuration& configuration = strategy[op];
  state.devices = configuration.devices;
  state.degrees = configuration.degrees;
  const size_t parts = state.devices.size();
  check_parts_in_keys(graph.operators[op].name, state.parts());
  state.kernel[Direction::forward].resize(parts);
  state.kernel[Direction::backward].assign(parts, 0);
  const TaskCostModel::PartCosts* part_costs = nullptr;
  for (size_t part = 0, model = ~size_t{0}; part < parts; ++part) {
    if (const size_t own = static_cast<size_t>(model_of(state.devices[part])); own != model) {
      model = own;
      part_costs = &costs.part_costs(op, state.degrees, static_cast<int>(model));
    }
    const TaskCostModel::PartCost& cost = (*part_costs)[part];
    state.kernel[Direction::forward][part] = cost.all_forward();
    if (has_backward(op)) state.kernel[Direction::backward][part] = cost.all_backward();
  }
  if (!may_have_statistics[op]) return;
  for (Direction direction : directions) set_reductions(op, direction);
}

void StrategyState::set_reductions(OperatorId op, Direction direction) {
  OperatorState& state = operators[op];
  Vector<ReductionState>& reductions = state.reductions[direction];
  Vector<Nanoseconds>& kernel = state.statistics_kernel[direction];
  reductions.clear();
  kernel.clear();
  if (direction == Direction::backward && !has_backward(op)) return;
  const int parts = state.parts();
  state.reduction_of.resize(parts);
  for (StatisticsReduction& reduction :
       statistics_reductions(*graph.operators[op].definition, strategy[op], direction)) {
    for (int part : reduction.parts) state.reduction_of[part] = static_cast<int32_t>(reductions.size());
    ReductionState& its = reductions.emplace_back();
    its.parts = std::move(reduction.parts);
    costs.communication().all_reduce(reduction.holders, reduction.bytes, its.collective);
  }
  if (reductions.empty()) return;
  for (int part = 0; part < parts; ++part) {
    const auto& cost = costs.part_cost(op, state.degrees, part, model_of(state.devices[part]));
    kernel.push_back(direction == Direction::forward ? cost.forward_statistics.ns : cost.backward_statistics.ns);
  }
}

void StrategyState::set_edge(int e) {
  EdgeState& state = edges[e];
  if (set_collectives(e)) return;
  state.plan = plan_of(e, strategy[edge(e).producer].degrees, strategy[edge(e).consumer].degrees);
  state.copies.set(*state.plan->pairs, strategy[edge(e).producer].devices, strategy[edge(e).consumer].devices,
                   edge_has_gradient[e] != 0);
}

// False where blocks move by transfers.
bool StrategyState::set_collectives(int e) {
  EdgeState& state = edges[e];
  const Configuration &producer = strategy[edge(e).producer], &consumer = strategy[edge(e).consumer];
  state.collectives.clear();
  state.exchanges = builder.exchanges(e, producer.degrees, consumer.degrees);
  if (state.exchanges->exchanges.empty()) return false;
  const Vector<Collective> collectives = collectives_of(*state.exchanges, producer.devices, consumer.devices);
  if (collectives.empty()) return false;
  state.plan = nullptr;
  state.copies.set(*state.exchanges, collectives, edge_has_gradient[e] != 0);
  for (const Collective& collective : collectives) {
    PerDirection<CommunicationCost>& cost = state.collectives.emplace_back();
    costs.communication().collective(collective.kind, collective.holders, collective.bytes, cost[Direction::forward]);
    if (edge_has_gradient[e])
      costs.communication().collective(reversed(collective.kind), collective.holders, collective.bytes,
                                       cost[Direction::backward]);
  }
  return true;
}

void StrategyState::set_tasks(OperatorId op) {
  const OperatorState& state = operators[op];
  OperatorTasks& task = tasks[op];
  const size_t parts = state.devices.size();
  task.parts.resize(parts);
  for (Direction direction : directions) task.statistics[direction].resize(state.has_statistics(direction) ? parts : 0);
  task.has_copies = false;
  for (size_t part = 0; part < parts; ++part) {
    const int model = model_of(state.devices[part]);
    int64_t assembled = 0, packed = 0, gathered = 0, packed_back = 0;  // bytes
    PartTasks& result = task.parts[part];
    result = {{}, state.devices[part], {}};
    for (int e : in_edges[op]) {
      assembled += edges[e].copies.assembled[part];
      packed_back += edges[e].copies.packed_gradient[part];
      result.waits[Direction::forward] += edges[e].arrivals_at_consumer(part);
    }
    TensorId tensor = -1;
    GradientSum sum;  // of one tensor
    for (int e : out_edges[op]) {
      packed += edges[e].copies.packed[part];
      if (!edge_has_gradient[e]) continue;
      if (edge(e).tensor != tensor) {
        gathered += sum.copied_bytes();
        sum = {};
        tensor = edge(e).tensor;
      }
      sum.add(edges[e].copies.gradients[part]);
      result.waits[Direction::backward] += edges[e].copies.gradients[part].count;
    }
    gathered += sum.copied_bytes();
    if (!has_backward(op)) gathered = packed_back = 0;
    if (assembled + packed + gathered + packed_back > 0) task.has_copies = true;
    // What comes in belongs to the first task of a direction, what goes out to the last.
    const auto set_durations = [&](Direction direction, int64_t incoming, int64_t outgoing) {
      const Nanoseconds kernel = state.kernel[direction][part];
      if (!state.has_statistics(direction)) {
        result.duration[direction] = kernel + costs.copy_ns(incoming + outgoing, model);
        return;
      }
      const Nanoseconds statistics = state.statistics_kernel[direction][part];
      task.statistics[direction][part] = statistics + costs.copy_ns(incoming, model);
      result.duration[direction] = kernel - statistics + costs.copy_ns(outgoing, model);
    };
    set_durations(Direction::forward, assembled, packed);
    set_durations(Direction::backward, gathered, packed_back);
  }
}

void StrategyState::set_group(int g) {
  const ParameterGroup& group = builder.groups()[g];
  GroupState& state = groups[g];
  state.lists.resize(group.operators.size());
  for (size_t position = 0; position < group.operators.size(); ++position)
    state.lists[position] = partitions_[g].shards(position, operators[group.operators[position]].degrees);
  const ParameterPartition& partition = partitions_[g].partition(state.lists);
  if (partition.piece_bytes.count() > most_key_parts)
    check_room_in_keys("parameter group \"" + group.name + '"', "pieces", partition.piece_bytes.count(),
                       most_key_parts);
  find_holders(g, partition);

  // Pieces with the same holders, and the same owner, are one unit.
  const size_t words = words_for(topology.devices.size());
  state.units.clear();
  scratch_.units.clear();
  Vector<int32_t> unit_of_piece(partition.piece_bytes.size());
  for (size_t piece = 0; piece < partition.piece_bytes.size(); ++piece) {
    scratch_.piece_devices.assign(words, 0);
    const auto* first = &scratch_.shard_first[partition.classes_of_piece[piece][0][0]];
    for (const auto& shards : partition.classes_of_piece[piece])
      for (int32_t shard : shards) {
        if (const auto& other = scratch_.shard_first[shard]; other < *first) first = &other;
        for (size_t word = 0; word < words; ++word)
          scratch_.piece_devices[word] |= scratch_.shard_devices[static_cast<size_t>(shard) * words + word];
      }
    const DeviceId owner = has_owners() ? first->second : no_owner;
    const int32_t number = scratch_.units.number_of(scratch_.piece_devices, owner);
    if (number == std::ssize(state.units)) {
      UnitState& unit = state.units.emplace_back();
      unit.number = static_cast<int64_t>(piece);
      unit.holders = members(scratch_.piece_devices);
      unit.owner = owner;
    }
    state.units[number].bytes += partition.piece_bytes[piece];
    unit_of_piece[piece] = number;
  }
  state.units_of_shard.resize(partition.pieces_of_shard.size());
  int32_t parts_of_all = 0;
  state.each_part_has_a_unit = true;
  for (size_t shard = 0; shard < partition.pieces_of_shard.size(); ++shard) {
    Vector<int32_t>& units = state.units_of_shard[shard];
    units.clear();
    for (int32_t piece : partition.pieces_of_shard[shard]) units.push_back(unit_of_piece[piece]);
    sort_and_unique(units);
    if (units.empty() && scratch_.shard_parts[shard] > 0) state.each_part_has_a_unit = false;
    parts_of_all += scratch_.shard_parts[shard];  // also of those who hold nothing of the parameters
    for (int32_t unit : units) state.units[unit].waits += scratch_.shard_parts[shard];
  }
  state.one_unit = state.units.size() == 1 && state.units[0].waits == parts_of_all;
  if (has_owners())
    for (UnitState& unit : state.units) unit.waits = awaited_by_owner(unit);
  set_updates(g, partition, unit_of_piece);
}

// Which devices hold each shard.
void StrategyState::find_holders(int g, const ParameterPartition& partition) {
  const ParameterGroup& group = builder.groups()[g];
  const size_t words = words_for(topology.devices.size());
  scratch_.shard_devices.assign(partition.pieces_of_shard.size() * words, 0);
  scratch_.shard_gradients.assign(partition.pieces_of_shard.size() * words, 0);
  scratch_.shard_parts.assign(partition.pieces_of_shard.size(), 0);
  scratch_.shard_first.assign(partition.pieces_of_shard.size(), {{std::numeric_limits<OperatorId>::max(), 0}, 0});
  for (size_t position = 0; position < group.operators.size(); ++position) {
    const OperatorId op = group.operators[position];
    const Vector<int32_t>& shard_of_part = groups[g].lists[position]->shard_of_part;
    const Vector<DeviceId>& devices = operators[op].devices;
    Vector<uint64_t>* holders[] = {&scratch_.shard_devices, &scratch_.shard_gradients};
    for (size_t part = 0; part < devices.size(); ++part) {
      const size_t shard = static_cast<size_t>(shard_of_part[part]), device = static_cast<size_t>(devices[part]);
      ++scratch_.shard_parts[shard];
      scratch_.shard_first[shard] =
          std::min(scratch_.shard_first[shard], {{op, static_cast<int>(part)}, devices[part]});
      for (int which = 0; which < (has_backward(op) ? 2 : 1); ++which)
        (*holders[which])[shard * words + device / 64] |= uint64_t{1} << device % 64;
    }
  }
}

// What a unit's update takes on each holder: SGD, and adding up the gradients of different blocks (see
// gradient_sum_bytes).
void StrategyState::set_updates(int g, const ParameterPartition& partition, const Vector<int32_t>& unit_of_piece) {
  const size_t words = words_for(topology.devices.size());
  GroupState& state = groups[g];
  Vector<Vector<int32_t>> summed(state.units.size());  // pieces with gradients of several blocks
  for (size_t piece = 0; piece < unit_of_piece.size(); ++piece)
    if (partition.classes_of_piece[piece].size() > 1)
      summed[unit_of_piece[piece]].push_back(static_cast<int32_t>(piece));
  scratch_.sums.resize(topology.devices.size());
  scratch_.blocks.resize(topology.devices.size());
  for (size_t u = 0; u < state.units.size(); ++u) {
    UnitState& unit = state.units[u];
    for (DeviceId holder : unit.holders) scratch_.sums[holder] = 0;
    for (int32_t piece : summed[u]) {
      for (DeviceId holder : unit.holders) scratch_.blocks[holder] = 0;
      for (const auto& shards : partition.classes_of_piece[piece])
        for (size_t word = 0; word < words; ++word) {
          uint64_t bits = 0;
          for (int32_t shard : shards) bits |= scratch_.shard_gradients[static_cast<size_t>(shard) * words + word];
          for (; bits != 0; bits &= bits - 1)
            ++scratch_.blocks[word * 64 + static_cast<size_t>(std::countr_zero(bits))];
        }
      for (DeviceId holder : unit.holders)
        scratch_.sums[holder] += gradient_sum_bytes(scratch_.blocks[holder], partition.piece_bytes[piece]);
    }
    for (DeviceId holder : unit.holders) {
      const HolderWork work =
          work_of_holder(holder, unit.owner, unit.holders.count(), unit.bytes, scratch_.sums[holder]);
      unit.update.push_back(costs.update_ns(work, model_of(holder)));
      if (has_owners()) unit.packed_bytes.push_back(work.packed);
    }
    if (unit.holders.size() < 2) continue;
    if (has_owners()) set_behind_owner(unit);
    else costs.communication().all_reduce(unit.holders, unit.bytes, unit.collective);
  }
}

// All holders' values leave the owner after its update.
void StrategyState::set_behind_owner(UnitState& unit) {
  CommunicationCost values;
  for (int h : unit.holders.indices()) {
    if (unit.holders[h] == unit.owner) continue;
    costs.communication().transfer(unit.owner, unit.holders[h], unit.bytes, values);
    unit.behind_owner = std::max(unit.behind_owner, values.duration + unit.update[h]);
  }
}

}  // namespace ff::delta
