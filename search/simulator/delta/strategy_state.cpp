#include "search/simulator/delta/strategy_state.h"

#include <algorithm>
#include <bit>

namespace ff::delta {
namespace {

std::shared_ptr<const EdgePlan> make_plan(const std::shared_ptr<const BlockPairs>& pairs, size_t producers,
                                          size_t consumers) {
  auto plan = std::make_shared<EdgePlan>();
  plan->pairs = pairs;
  plan->consumer_begin.assign(consumers + 1, 0);
  plan->producer_begin.assign(producers + 1, 0);
  for (const BlockPair& pair : *pairs) {
    ++plan->consumer_begin[pair.consumer_part + 1];
    ++plan->producer_begin[pair.producer_part + 1];
  }
  for (size_t c = 0; c < consumers; ++c) plan->consumer_begin[c + 1] += plan->consumer_begin[c];
  for (size_t p = 0; p < producers; ++p) plan->producer_begin[p + 1] += plan->producer_begin[p];
  plan->by_producer.resize(pairs->size());
  Vector<int32_t> next(plan->producer_begin.begin(), plan->producer_begin.end() - 1);
  for (size_t i = 0; i < pairs->size(); ++i)
    plan->by_producer[next[(*pairs)[i].producer_part]++] = static_cast<int32_t>(i);
  plan->one_to_one = pairs->size() == producers && pairs->size() == consumers;
  for (size_t i = 0; i < pairs->size() && plan->one_to_one; ++i)
    plan->one_to_one =
        (*pairs)[i].producer_part == static_cast<int32_t>(i) && (*pairs)[i].consumer_part == static_cast<int32_t>(i);
  return plan;
}

// From the last gradient to the end of the first update.
Nanoseconds unit_time(const UnitState& unit) {
  return (unit.holders.size() > 1 ? unit.collective.duration : 0) +
         *std::min_element(unit.update.begin(), unit.update.end());
}

}  // namespace

StrategyState::StrategyState(TaskGraphBuilder& builder_, const Topology& topology_, TaskCostModel& costs_)
    : builder(builder_), graph(builder_.graph()), topology(topology_), costs(costs_), late(late_count),
      order_(builder_) {
  const size_t operator_count = graph.operators.size();
  in_edges.resize(operator_count);
  out_edges.resize(operator_count);
  groups_of.resize(operator_count);
  around_.resize(operator_count);
  operators.resize(operator_count);
  tasks.resize(operator_count);
  edges.resize(builder.edges().size());
  groups.resize(builder.groups().size());
  plans_.resize(edges.size());
  for (const ParameterGroup& group : builder.groups()) partitions_.emplace_back(graph, group);
  for (size_t e = 0; e < edges.size(); ++e) {
    const Edge& edge = builder.edges()[e];
    in_edges[edge.consumer].push_back(static_cast<int>(e));
    out_edges[edge.producer].push_back(static_cast<int>(e));
    around_[edge.consumer].push_back(edge.producer);
    around_[edge.producer].push_back(edge.consumer);
    const OperatorDefinition& consumer = *graph.operators[edge.consumer].definition;
    every_part_reads.push_back(consumer.every_part_reads(edge.input));
    every_part_is_read.push_back(consumer.reads_every_element(edge.input));
    edge_has_gradient.push_back(graph.operators[edge.consumer].has_backward &&
                                graph.input_has_gradient(edge.consumer, edge.input));
  }
  for (size_t op = 0; op < operator_count; ++op) {
    // Contributions to gradients are counted tensor by tensor.
    std::stable_sort(out_edges[op].begin(), out_edges[op].end(),
                     [&](int a, int b) { return builder.edges()[a].tensor < builder.edges()[b].tensor; });
    around_[op].push_back(static_cast<OperatorId>(op));
    std::sort(around_[op].begin(), around_[op].end());
    around_[op].erase(std::unique(around_[op].begin(), around_[op].end()), around_[op].end());
    has_statistics.push_back(graph.operators[op].definition->has_statistics());
  }
  for (size_t g = 0; g < groups.size(); ++g)
    if (builder.groups()[g].trained)
      for (size_t position = 0; position < builder.groups()[g].operators.size(); ++position)
        groups_of[builder.groups()[g].operators[position]].push_back({static_cast<int>(g), position});
  for (auto* path : {&paths.head, &paths.middle, &paths.tail_forward, &paths.tail_producers, &paths.tail_backward,
                     &paths.least_forward, &paths.least_backward, &paths.least_synchronization})
    path->resize(operator_count);
}

void StrategyState::reset(const Strategy& new_strategy) {
  undo_.clear();
  strategy = new_strategy;
  for (OperatorId op = 0; op < count(); ++op) set_operator(op);
  for (size_t e = 0; e < edges.size(); ++e) set_edge(static_cast<int>(e));
  for (OperatorId op = 0; op < count(); ++op) set_tasks(op);
  work.assign(topology.devices.size(), 0);
  kernel_work = work;
  late.assign(late_count, {});
  late_forward.assign(operators.size(), 0);
  late_backward = late_forward;
  std::fill(paths.least_synchronization.begin(), paths.least_synchronization.end(), 0);
  for (OperatorId op = 0; op < count(); ++op) {
    add_work(op, 1);
    add_kernel_work(op, 1);
  }
  for (size_t g = 0; g < groups.size(); ++g)
    if (builder.groups()[g].trained) {
      set_group(static_cast<int>(g));
      add_group_work(static_cast<int>(g), 1);
    }
  set_paths();
  choose_late();
}

bool StrategyState::keep() {
  undo_.clear();
  return choose_late();
}

void StrategyState::change(const Vector<Change>& changes) {
  undo_.clear();
  undo_.work = work;
  undo_.kernel_work = kernel_work;
  undo_.paths = paths;
  undo_.late.resize(late.size());
  for (size_t i = 0; i < late.size(); ++i) undo_.late[i] = late[i];
  find_touched(changes);
  for (OperatorId op : touched_) add_work(op, -1);
  if (undo_.tasks.size() < touched_.size()) undo_.tasks.resize(touched_.size());
  for (OperatorId op : touched_) {
    auto& [saved_op, saved] = undo_.tasks[undo_.touched++];
    saved_op = op;
    std::swap(saved, tasks[op]);
  }
  if (undo_.changed.size() < changes.size()) undo_.changed.resize(changes.size());
  for (const Change& change : changes) {
    add_kernel_work(change.op, -1);
    Undo::Changed& before = undo_.changed[undo_.changed_count++];
    before.op = change.op;
    before.configuration = strategy[change.op];
    before.state = operators[change.op];
    strategy[change.op] = change.configuration;
    set_operator(change.op);
    add_kernel_work(change.op, 1);
    paths.least_synchronization[change.op] = 0;
  }
  if (undo_.edges.size() < touched_edges_.size()) undo_.edges.resize(touched_edges_.size());
  for (int e : touched_edges_) {
    auto& [saved_edge, saved] = undo_.edges[undo_.edge_count++];
    saved_edge = e;
    std::swap(saved, edges[e]);
    set_edge(e);
  }
  for (OperatorId op : touched_) {
    set_tasks(op);
    add_work(op, 1);
  }
  for (int g : touched_groups_) {
    add_group_work(g, -1);
    undo_.groups.emplace_back(g, std::move(groups[g]));
    groups[g] = {};
    set_group(g);
    add_group_work(g, 1);
    finish_late(g);
  }
  set_paths();
}

void StrategyState::find_touched(const Vector<Change>& changes) {
  touched_.clear();
  touched_edges_.clear();
  touched_groups_.clear();
  for (const Change& change : changes) {
    touched_.insert(touched_.end(), around_[change.op].begin(), around_[change.op].end());
    for (const auto* list : {&in_edges[change.op], &out_edges[change.op]})
      touched_edges_.insert(touched_edges_.end(), list->begin(), list->end());
    for (const auto& [g, position] : groups_of[change.op]) touched_groups_.push_back(g);
  }
  const auto keep_distinct = [](auto& list) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  };
  keep_distinct(touched_);
  keep_distinct(touched_edges_);
  keep_distinct(touched_groups_);
}

void StrategyState::undo() {
  if (undo_.changed_count == 0) return;
  for (size_t i = 0; i < undo_.changed_count; ++i) {
    Undo::Changed& changed = undo_.changed[i];
    strategy[changed.op] = std::move(changed.configuration);
    std::swap(operators[changed.op], changed.state);
  }
  for (size_t i = 0; i < undo_.touched; ++i) std::swap(tasks[undo_.tasks[i].first], undo_.tasks[i].second);
  for (size_t i = 0; i < undo_.edge_count; ++i) std::swap(edges[undo_.edges[i].first], undo_.edges[i].second);
  for (auto& [g, state] : undo_.groups) groups[g] = std::move(state);
  std::swap(work, undo_.work);
  std::swap(kernel_work, undo_.kernel_work);
  std::swap(paths, undo_.paths);
  for (size_t i = 0; i < late.size(); ++i) std::swap(static_cast<LateLoad&>(late[i]), undo_.late[i]);
  undo_.clear();
}

void StrategyState::set_operator(OperatorId op) {
  OperatorState& state = operators[op];
  const Configuration& configuration = strategy[op];
  state.devices = configuration.devices;
  state.degrees = configuration.degrees;
  const size_t parts = state.devices.size();
  state.forward_kernel.resize(parts);
  state.backward_kernel.assign(parts, 0);
  const TaskCostModel::PartCosts* part_costs = nullptr;
  for (size_t part = 0, model = ~size_t{0}; part < parts; ++part) {
    if (const size_t own = static_cast<size_t>(model_of(state.devices[part])); own != model) {
      model = own;
      part_costs = &costs.part_costs(op, state.degrees, static_cast<int>(model));
    }
    const TaskCostModel::PartCost& cost = (*part_costs)[part];
    state.forward_kernel[part] = cost.all_forward();
    if (has_backward(op)) state.backward_kernel[part] = cost.all_backward();
  }
  paths.least_forward[op] = *std::min_element(state.forward_kernel.begin(), state.forward_kernel.end());
  paths.least_backward[op] = *std::min_element(state.backward_kernel.begin(), state.backward_kernel.end());
  if (!has_statistics[op]) return;
  set_reductions(op);
  Nanoseconds least = state.reductions[0].collective.duration;
  for (const ReductionState& reduction : state.reductions) least = std::min(least, reduction.collective.duration);
  paths.least_forward[op] += least;
  paths.least_backward[op] += least;
}

void StrategyState::set_reductions(OperatorId op) {
  OperatorState& state = operators[op];
  const OperatorDefinition& definition = *graph.operators[op].definition;
  const int parts = state.parts();
  state.reductions.assign(definition.statistics_groups(state.degrees), {});
  state.reduction_of.resize(parts);
  state.forward_statistics_kernel.resize(parts);
  state.backward_statistics_kernel.assign(parts, 0);
  for (int part = 0; part < parts; ++part) {
    state.reduction_of[part] = definition.statistics_group(state.degrees, part);
    state.reductions[state.reduction_of[part]].parts.push_back(part);
    const auto& cost = costs.part_cost(op, state.degrees, part, model_of(state.devices[part]));
    state.forward_statistics_kernel[part] = cost.forward_statistics.ns;
    if (has_backward(op)) state.backward_statistics_kernel[part] = cost.backward_statistics.ns;
  }
  for (ReductionState& reduction : state.reductions) {
    Vector<DeviceId> holders;
    for (int part : reduction.parts) holders.push_back(state.devices[part]);
    std::sort(holders.begin(), holders.end());
    holders.erase(std::unique(holders.begin(), holders.end()), holders.end());
    const int64_t bytes = definition.statistics_bytes(definition.part(state.degrees, reduction.parts[0]));
    costs.communication().all_reduce(holders, bytes, reduction.collective);
  }
}

const std::shared_ptr<const EdgePlan>& StrategyState::plan_of(int e, const Degrees& producer, const Degrees& consumer) {
  plan_key_ = producer;
  plan_key_.insert(plan_key_.end(), consumer.begin(), consumer.end());
  const auto found = plans_[e].find(plan_key_);
  if (found != plans_[e].end()) return found->second;
  const size_t producers = static_cast<size_t>(parts_of(producer)), consumers = static_cast<size_t>(parts_of(consumer));
  const auto pairs = builder.pairs(e, producer, consumer);
  if (cached_pairs_ > most_cached_pairs) {
    for (auto& plans : plans_) plans.clear();
    distinct_plans_.clear();
    cached_pairs_ = 0;
  }
  std::shared_ptr<const EdgePlan>& plan = distinct_plans_[{pairs.get(), producers, consumers}];
  if (!plan) {
    plan = make_plan(pairs, producers, consumers);
    cached_pairs_ += pairs->size() + producers + consumers;
  }
  return plans_[e].emplace(plan_key_, plan).first->second;
}

void StrategyState::set_edge(int e) {
  EdgeState& state = edges[e];
  state.plan = plan_of(e, strategy[edge(e).producer].degrees, strategy[edge(e).consumer].degrees);
  const Vector<DeviceId>& producers = strategy[edge(e).producer].devices;
  const Vector<DeviceId>& consumers = strategy[edge(e).consumer].devices;
  state.assembled.assign(consumers.size(), 0);
  state.packed_back.assign(consumers.size(), 0);
  state.packed.assign(producers.size(), 0);
  state.contributed.assign(producers.size(), 0);
  state.contributions.assign(producers.size(), 0);
  state.in_place.assign(producers.size(), 0);
  const bool has_gradient = edge_has_gradient[e];
  for (const BlockPair& pair : *state.plan->pairs) {
    const int p = pair.producer_part, c = pair.consumer_part;
    const bool local = producers[p] == consumers[c];
    if (!(pair.whole_input && (!local || pair.whole_output))) state.assembled[c] += pair.bytes;
    if (!local && !pair.whole_output) state.packed[p] += pair.bytes;
    if (!has_gradient) continue;
    if (!local && !pair.whole_input) state.packed_back[c] += pair.bytes;
    ++state.contributions[p];
    state.contributed[p] += pair.bytes;
    state.in_place[p] = pair.whole_output && (!local || pair.whole_input);
  }
}

void StrategyState::set_tasks(OperatorId op) {
  const OperatorState& state = operators[op];
  OperatorTasks& task = tasks[op];
  const size_t parts = state.devices.size();
  task.parts.resize(parts);
  if (has_statistics[op]) {
    task.forward_statistics.resize(parts);
    task.backward_statistics.resize(parts);
  } else {
    task.forward_statistics.clear();
    task.backward_statistics.clear();
  }
  for (size_t part = 0; part < parts; ++part) {
    const int model = model_of(state.devices[part]);
    int64_t assembled = 0, packed = 0, gathered = 0, packed_back = 0;  // bytes
    PartTasks& result = task.parts[part];
    result = {0, 0, state.devices[part], 0, 0};
    for (int e : in_edges[op]) {
      assembled += edges[e].assembled[part];
      packed_back += edges[e].packed_back[part];
      result.forward_waits += edges[e].plan->consumer_begin[part + 1] - edges[e].plan->consumer_begin[part];
    }
    // Contributions are counted by tensor: a single one that needs no copy is used where it arrives.
    TensorId tensor = -1;
    int contributions = 0;
    int64_t contributed = 0;
    bool in_place = false;
    const auto finish_tensor = [&] {
      if (contributions > 1 || (contributions == 1 && !in_place)) gathered += contributed;
      contributions = 0;
      contributed = 0;
    };
    for (int e : out_edges[op]) {
      packed += edges[e].packed[part];
      if (!edge_has_gradient[e]) continue;
      if (edge(e).tensor != tensor) {
        finish_tensor();
        tensor = edge(e).tensor;
      }
      contributions += edges[e].contributions[part];
      contributed += edges[e].contributed[part];
      if (edges[e].contributions[part] > 0) in_place = edges[e].in_place[part];
      result.backward_waits += edges[e].contributions[part];
    }
    finish_tensor();
    if (has_statistics[op]) {
      const Nanoseconds forward = state.forward_statistics_kernel[part],
                        backward = state.backward_statistics_kernel[part];
      task.forward_statistics[part] = forward + costs.copy_ns(assembled, model);
      result.forward = state.forward_kernel[part] - forward + costs.copy_ns(packed, model);
      task.backward_statistics[part] = backward + costs.copy_ns(gathered, model);
      result.backward = state.backward_kernel[part] - backward + costs.copy_ns(packed_back, model);
      continue;
    }
    result.forward = state.forward_kernel[part] + costs.copy_ns(assembled + packed, model);
    result.backward =
        state.backward_kernel[part] + (has_backward(op) ? costs.copy_ns(gathered + packed_back, model) : 0);
  }
}

void StrategyState::set_group(int g) {
  const ParameterGroup& group = builder.groups()[g];
  GroupState& state = groups[g];
  state.lists.resize(group.operators.size());
  for (size_t position = 0; position < group.operators.size(); ++position)
    state.lists[position] = partitions_[g].shards(position, operators[group.operators[position]].degrees);
  const ParameterPartition& partition = partitions_[g].partition(state.lists);
  find_holders(g, partition);

  // Pieces with the same holders are one unit.
  const size_t words = (topology.devices.size() + 63) / 64;
  state.units.clear();
  scratch_.unit_of.clear();
  scratch_.unit_devices.clear();
  scratch_.piece_devices.resize(words);
  Vector<int32_t> unit_of_piece(partition.piece_bytes.size());
  for (size_t piece = 0; piece < partition.piece_bytes.size(); ++piece) {
    std::fill(scratch_.piece_devices.begin(), scratch_.piece_devices.end(), 0);
    for (const auto& shards : partition.classes_of_piece[piece])
      for (int32_t shard : shards)
        for (size_t word = 0; word < words; ++word)
          scratch_.piece_devices[word] |= scratch_.shard_devices[static_cast<size_t>(shard) * words + word];
    uint64_t hash = 0;
    for (uint64_t word : scratch_.piece_devices) hash = hash_step(hash, word);
    int32_t number = -1;
    const auto [begin, end] = scratch_.unit_of.equal_range(hash);
    for (auto it = begin; it != end; ++it)
      if (scratch_.unit_devices[it->second] == scratch_.piece_devices) number = it->second;
    if (number < 0) {
      number = static_cast<int32_t>(state.units.size());
      scratch_.unit_of.emplace(hash, number);
      scratch_.unit_devices.push_back(scratch_.piece_devices);
      UnitState& unit = state.units.emplace_back();
      unit.number = static_cast<int64_t>(piece);
      for (size_t word = 0; word < words; ++word)
        for (uint64_t bits = scratch_.piece_devices[word]; bits != 0; bits &= bits - 1)
          unit.holders.push_back(static_cast<DeviceId>(word * 64 + static_cast<size_t>(std::countr_zero(bits))));
    }
    state.units[number].bytes += partition.piece_bytes[piece];
    unit_of_piece[piece] = number;
  }
  state.units_of_shard.resize(partition.pieces_of_shard.size());
  int32_t parts_of_all = 0;
  for (size_t shard = 0; shard < partition.pieces_of_shard.size(); ++shard) {
    Vector<int32_t>& units = state.units_of_shard[shard];
    units.clear();
    for (int32_t piece : partition.pieces_of_shard[shard]) units.push_back(unit_of_piece[piece]);
    std::sort(units.begin(), units.end());
    units.erase(std::unique(units.begin(), units.end()), units.end());
    if (units.empty()) continue;
    parts_of_all += scratch_.shard_parts[shard];
    for (int32_t unit : units) state.units[unit].waits += scratch_.shard_parts[shard];
  }
  state.one_unit = state.units.size() == 1 && state.units[0].waits == parts_of_all;
  set_updates(g, partition, unit_of_piece);
  if (group.operators.size() > 1) return;
  Nanoseconds least = state.units.empty() ? 0 : unit_time(state.units[0]);
  for (const UnitState& unit : state.units) least = std::min(least, unit_time(unit));
  paths.least_synchronization[group.operators[0]] = std::max(paths.least_synchronization[group.operators[0]], least);
}

// Which devices hold each shard.
void StrategyState::find_holders(int g, const ParameterPartition& partition) {
  const ParameterGroup& group = builder.groups()[g];
  const size_t words = (topology.devices.size() + 63) / 64;
  scratch_.shard_devices.assign(partition.pieces_of_shard.size() * words, 0);
  scratch_.shard_gradients.assign(partition.pieces_of_shard.size() * words, 0);
  scratch_.shard_parts.assign(partition.pieces_of_shard.size(), 0);
  for (size_t position = 0; position < group.operators.size(); ++position) {
    const OperatorId op = group.operators[position];
    const Vector<int32_t>& shard_of_part = groups[g].lists[position]->shard_of_part;
    const Vector<DeviceId>& devices = operators[op].devices;
    Vector<uint64_t>* holders[] = {&scratch_.shard_devices, &scratch_.shard_gradients};
    for (size_t part = 0; part < devices.size(); ++part) {
      const size_t shard = static_cast<size_t>(shard_of_part[part]), device = static_cast<size_t>(devices[part]);
      ++scratch_.shard_parts[shard];
      for (int which = 0; which < (has_backward(op) ? 2 : 1); ++which)
        (*holders[which])[shard * words + device / 64] |= uint64_t{1} << device % 64;
    }
  }
}

// What a unit's update takes on each holder: SGD, and adding up the gradients of different blocks (see
// gradient_sum_bytes).
void StrategyState::set_updates(int g, const ParameterPartition& partition, const Vector<int32_t>& unit_of_piece) {
  const size_t words = (topology.devices.size() + 63) / 64;
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
        if (scratch_.blocks[holder] > 1)
          scratch_.sums[holder] +=
              static_cast<int64_t>(scratch_.blocks[holder] - 1) * partition.piece_bytes[piece] * 3 / 2;
    }
    for (DeviceId holder : unit.holders) {
      const int model = model_of(holder);
      unit.update.push_back(costs.update_ns(unit.bytes, model) + costs.copy_ns(scratch_.sums[holder], model));
    }
    if (unit.holders.size() > 1) costs.communication().all_reduce(unit.holders, unit.bytes, unit.collective);
  }
}

void StrategyState::add_work(OperatorId op, Nanoseconds sign) {
  const OperatorTasks& task = tasks[op];
  const Vector<DeviceId>& devices = operators[op].devices;
  for (size_t part = 0; part < devices.size(); ++part)
    work[devices[part]] += sign * (task.duration(part, false) + task.duration(part, true));
  for (size_t i = 0; i < late.size(); ++i)
    for (bool backward : {false, true})
      if (((backward ? late_backward : late_forward)[op] >> i & 1) != 0)
        for (size_t part = 0; part < devices.size(); ++part)
          late[i].work[devices[part]] += sign * task.duration(part, backward);
}

void StrategyState::add_kernel_work(OperatorId op, Nanoseconds sign) {
  const OperatorState& state = operators[op];
  for (int part = 0; part < state.parts(); ++part)
    kernel_work[state.devices[part]] += sign * (state.forward_kernel[part] + state.backward_kernel[part]);
  for (size_t i = 0; i < late.size(); ++i)
    for (bool backward : {false, true})
      if (((backward ? late_backward : late_forward)[op] >> i & 1) != 0)
        for (int part = 0; part < state.parts(); ++part)
          late[i].kernel_work[state.devices[part]] +=
              sign * (backward ? state.backward_kernel : state.forward_kernel)[part];
}

void StrategyState::add_group_work(int g, Nanoseconds sign) {
  for (const UnitState& unit : groups[g].units)
    for (size_t h = 0; h < unit.holders.size(); ++h) work[unit.holders[h]] += sign * unit.update[h];
  for (LateGroups& set : late)
    if (!set.contains.empty() && set.contains[g])
      for (const UnitState& unit : groups[g].units)
        if (unit.holders.size() > 1)
          for (const ResourceUse& use : unit.collective.uses) set.occupied[use.resource] += sign * use.occupancy;
}

bool StrategyState::choose_late() {
  Vector<LateGroups> chosen = choose_late_groups(*this, order_, late_count);
  bool others = false;
  for (size_t i = 0; i < late_count; ++i) others = others || !chosen[i].same_tasks(late[i]);
  late = std::move(chosen);
  if (!others) return false;
  late_forward.assign(operators.size(), 0);
  late_backward.assign(operators.size(), 0);
  for (size_t i = 0; i < late.size(); ++i)
    for (OperatorId op = 0; late[i].holds && op < count(); ++op) {
      late_forward[op] = static_cast<uint8_t>(
          late_forward[op] | (late[i].forward_before[static_cast<size_t>(op) / 64] >> op % 64 & 1) << i);
      late_backward[op] = static_cast<uint8_t>(
          late_backward[op] | (late[i].backward_before[static_cast<size_t>(op) / 64] >> op % 64 & 1) << i);
    }
  return true;
}

// The group is synchronized in another way now.
void StrategyState::finish_late(int changed_group) {
  for (LateGroups& set : late) {
    if (set.contains.empty() || !set.contains[changed_group]) continue;
    set.length = *std::max_element(set.occupied.begin(), set.occupied.end());
    if (set.relies_on[changed_group] && !groups[changed_group].one_unit) set.holds = false;
  }
}

void StrategyState::set_paths() {
  for (OperatorId op = 0; op < count(); ++op) {
    paths.head[op] = paths.tail_producers[op] = 0;
    for (int e : in_edges[op]) {
      if (!every_part_reads[e]) continue;
      const OperatorId producer = edge(e).producer;
      paths.head[op] = std::max(paths.head[op], paths.head[producer] + paths.least_forward[producer]);
      if (edge_has_gradient[e])
        paths.tail_producers[op] =
            std::max(paths.tail_producers[op], paths.least_backward[producer] + paths.tail_backward[producer]);
    }
    paths.tail_backward[op] = std::max(paths.tail_producers[op], paths.least_synchronization[op]);
  }
  for (OperatorId op = count(); op-- > 0;) {
    paths.middle[op] = paths.tail_forward[op] = 0;
    for (int e : out_edges[op]) {
      if (!every_part_is_read[e]) continue;
      const OperatorId consumer = edge(e).consumer;
      paths.tail_forward[op] =
          std::max(paths.tail_forward[op], paths.least_forward[consumer] + paths.tail_forward[consumer]);
      if (edge_has_gradient[e])
        paths.middle[op] = std::max(
            paths.middle[op], paths.least_forward[consumer] + paths.middle[consumer] + paths.least_backward[consumer]);
    }
    if (has_backward(op))
      paths.tail_forward[op] =
          std::max(paths.tail_forward[op], paths.middle[op] + paths.least_backward[op] + paths.tail_backward[op]);
  }
}

}  // namespace ff::delta
