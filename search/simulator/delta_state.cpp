#include "search/simulator/delta_state.h"

#include <algorithm>

namespace ff::delta {

StrategyState::StrategyState(TaskGraphBuilder& builder_, const Topology& topology_, TaskCostModel& costs_)
    : builder(builder_), graph(builder_.graph()), topology(topology_), costs(costs_) {
  const size_t operator_count = graph.operators.size();
  in_edges.resize(operator_count);
  out_edges.resize(operator_count);
  groups_of.resize(operator_count);
  around_.resize(operator_count);
  operators.resize(operator_count);
  tasks.resize(operator_count);
  edges.resize(builder.edges().size());
  groups.resize(builder.groups().size());
  position_of_.assign(operator_count, -1);
  is_holder_.assign(topology.devices.size(), 0);
  for (size_t e = 0; e < edges.size(); ++e) {
    const Edge& edge = builder.edges()[e];
    in_edges[edge.consumer].push_back(static_cast<int>(e));
    out_edges[edge.producer].push_back(static_cast<int>(e));
    around_[edge.consumer].push_back(edge.producer);
    around_[edge.producer].push_back(edge.consumer);
    const OperatorDefinition& consumer = *graph.operators[edge.consumer].definition;
    every_part_reads.push_back(consumer.every_part_reads(edge.input));
    every_part_is_read.push_back(consumer.reads_every_element(edge.input));
    edge_has_gradient.push_back(graph.operators[edge.consumer].has_backward && graph.input_has_gradient(edge.consumer, edge.input));
  }
  for (size_t op = 0; op < operator_count; ++op) {
    // Contributions to gradients are counted tensor by tensor.
    std::stable_sort(out_edges[op].begin(), out_edges[op].end(), [&](int a, int b) { return builder.edges()[a].tensor < builder.edges()[b].tensor; });
    around_[op].push_back(static_cast<OperatorId>(op));
    std::sort(around_[op].begin(), around_[op].end());
    around_[op].erase(std::unique(around_[op].begin(), around_[op].end()), around_[op].end());
    has_statistics.push_back(graph.operators[op].definition->has_statistics());
  }
  for (size_t g = 0; g < groups.size(); ++g)
    if (builder.groups()[g].trained)
      for (size_t position = 0; position < builder.groups()[g].operators.size(); ++position)
        groups_of[builder.groups()[g].operators[position]].push_back({static_cast<int>(g), static_cast<int>(position)});
  for (auto* path : {&paths.head, &paths.middle, &paths.tail_forward, &paths.tail_producers, &paths.tail_backward, &paths.least_forward,
                     &paths.least_backward, &paths.least_synchronization})
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
}

void StrategyState::change(OperatorId op, const Configuration& configuration) {
  undo_.clear();
  undo_.op = op;
  undo_.configuration = strategy[op];
  undo_.work = work;
  undo_.kernel_work = kernel_work;
  undo_.paths = paths;
  for (OperatorId neighbour : around_[op]) add_work(neighbour, -1);
  add_kernel_work(op, -1);
  undo_.changed = operators[op];
  if (undo_.tasks.size() < around_[op].size()) undo_.tasks.resize(around_[op].size());
  for (OperatorId neighbour : around_[op]) {
    auto& [saved_op, saved] = undo_.tasks[undo_.touched++];
    saved_op = neighbour;
    std::swap(saved, tasks[neighbour]);
  }
  strategy[op] = configuration;
  set_operator(op);
  const size_t edge_count = in_edges[op].size() + out_edges[op].size();
  if (undo_.edges.size() < edge_count) undo_.edges.resize(edge_count);
  for (const auto* list : {&in_edges[op], &out_edges[op]})
    for (int e : *list) {
      auto& [saved_edge, saved] = undo_.edges[undo_.edge_count++];
      saved_edge = e;
      std::swap(saved, edges[e]);
      set_edge(e);
    }
  for (OperatorId neighbour : around_[op]) {
    set_tasks(neighbour);
    add_work(neighbour, 1);
  }
  add_kernel_work(op, 1);
  paths.least_synchronization[op] = 0;
  for (const auto& [g, position] : groups_of[op]) {
    add_group_work(g, -1);
    undo_.groups.emplace_back(g, std::move(groups[g]));
    groups[g] = {};
    set_group(g);
    add_group_work(g, 1);
  }
  set_paths();
}

void StrategyState::undo() {
  if (undo_.op < 0) return;
  strategy[undo_.op] = std::move(undo_.configuration);
  operators[undo_.op] = std::move(undo_.changed);
  for (size_t i = 0; i < undo_.touched; ++i) std::swap(tasks[undo_.tasks[i].first], undo_.tasks[i].second);
  for (size_t i = 0; i < undo_.edge_count; ++i) std::swap(edges[undo_.edges[i].first], undo_.edges[i].second);
  for (auto& [g, state] : undo_.groups) groups[g] = std::move(state);
  std::swap(work, undo_.work);
  std::swap(kernel_work, undo_.kernel_work);
  std::swap(paths, undo_.paths);
  undo_.clear();
}

Nanoseconds StrategyState::least_makespan(OperatorId op, const Configuration& configuration) {
  const OperatorState& old = operators[op];
  bound_work_ = kernel_work;
  for (int part = 0; part < old.parts(); ++part) bound_work_[old.devices[part]] -= old.forward_kernel[part] + old.backward_kernel[part];
  Nanoseconds slowest = 0;
  const std::vector<TaskCostModel::PartCost>* costs_of_parts = nullptr;
  int model = -1;
  for (size_t part = 0; part < configuration.devices.size(); ++part) {
    const DeviceId device = configuration.devices[part];
    if (model_of(device) != model) {
      model = model_of(device);
      costs_of_parts = &costs.part_costs(op, configuration.degrees, model);
    }
    const TaskCostModel::PartCost& cost = (*costs_of_parts)[part];
    const Nanoseconds time = cost.all_forward() + (has_backward(op) ? cost.all_backward() : 0);
    bound_work_[device] += time;
    slowest = std::max(slowest, time);
  }
  return std::max(paths.head[op] + slowest + paths.middle[op] + paths.tail_producers[op], *std::max_element(bound_work_.begin(), bound_work_.end()));
}

void StrategyState::set_operator(OperatorId op) {
  OperatorState& state = operators[op];
  const Configuration& configuration = strategy[op];
  state.devices = configuration.devices;
  state.degrees = configuration.degrees;
  const size_t parts = state.devices.size();
  state.forward_kernel.resize(parts);
  state.backward_kernel.assign(parts, 0);
  for (size_t part = 0; part < parts; ++part) {
    const auto& cost = costs.part_cost(op, state.degrees, static_cast<int>(part), model_of(state.devices[part]));
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
  state.reductions.assign(static_cast<size_t>(definition.statistics_groups(state.degrees)), {});
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
    std::vector<DeviceId> holders;
    for (int part : reduction.parts) holders.push_back(state.devices[part]);
    std::sort(holders.begin(), holders.end());
    holders.erase(std::unique(holders.begin(), holders.end()), holders.end());
    const int64_t bytes = definition.statistics_bytes(definition.part(state.degrees, reduction.parts[0]));
    costs.communication().all_reduce(holders, bytes, reduction.collective);
  }
}

const EdgePlan& StrategyState::plan_of(int e) {
  const BlockPairs& pairs = builder.pairs(e, strategy);
  const size_t producers = strategy[edge(e).producer].devices.size(), consumers = strategy[edge(e).consumer].devices.size();
  auto [it, added] = plans_.try_emplace({&pairs, producers, consumers});
  EdgePlan& plan = it->second;
  if (!added) return plan;
  plan.pairs = &pairs;
  plan.consumer_begin.assign(consumers + 1, 0);
  plan.producer_begin.assign(producers + 1, 0);
  for (const BlockPair& pair : pairs) {
    ++plan.consumer_begin[pair.consumer_part + 1];
    ++plan.producer_begin[pair.producer_part + 1];
  }
  for (size_t c = 0; c < consumers; ++c) plan.consumer_begin[c + 1] += plan.consumer_begin[c];
  for (size_t p = 0; p < producers; ++p) plan.producer_begin[p + 1] += plan.producer_begin[p];
  plan.by_producer.resize(pairs.size());
  std::vector<int32_t> next(plan.producer_begin.begin(), plan.producer_begin.end() - 1);
  for (size_t i = 0; i < pairs.size(); ++i) plan.by_producer[next[pairs[i].producer_part]++] = static_cast<int32_t>(i);
  plan.one_to_one = pairs.size() == producers && pairs.size() == consumers;
  for (size_t i = 0; i < pairs.size() && plan.one_to_one; ++i)
    plan.one_to_one = pairs[i].producer_part == static_cast<int32_t>(i) && pairs[i].consumer_part == static_cast<int32_t>(i);
  return plan;
}

void StrategyState::set_edge(int e) {
  EdgeState& state = edges[e];
  state.plan = &plan_of(e);
  const std::vector<DeviceId>& producers = strategy[edge(e).producer].devices;
  const std::vector<DeviceId>& consumers = strategy[edge(e).consumer].devices;
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
      const Nanoseconds forward = state.forward_statistics_kernel[part], backward = state.backward_statistics_kernel[part];
      task.forward_statistics[part] = forward + costs.copy_ns(assembled, model);
      result.forward = state.forward_kernel[part] - forward + costs.copy_ns(packed, model);
      task.backward_statistics[part] = backward + costs.copy_ns(gathered, model);
      result.backward = state.backward_kernel[part] - backward + costs.copy_ns(packed_back, model);
      continue;
    }
    result.forward = state.forward_kernel[part] + costs.copy_ns(assembled + packed, model);
    result.backward = state.backward_kernel[part] + (has_backward(op) ? costs.copy_ns(gathered + packed_back, model) : 0);
  }
}

// From the last gradient to the end of the first update.
static Nanoseconds unit_time(const UnitState& unit) {
  return (unit.unit.holders.size() > 1 ? unit.collective.duration : 0) + *std::min_element(unit.update.begin(), unit.update.end());
}

void StrategyState::set_group(int g) {
  const ParameterGroup& group = builder.groups()[g];
  GroupState& state = groups[g];
  state.units.clear();
  state.begin.resize(group.operators.size());
  state.units_of.resize(group.operators.size());
  for (size_t position = 0; position < group.operators.size(); ++position) position_of_[group.operators[position]] = static_cast<int>(position);
  const std::vector<ParameterPiece>& pieces = builder.pieces(g, strategy);
  std::map<std::vector<DeviceId>, int32_t> by_holders;
  std::vector<std::tuple<int32_t, int32_t, int32_t>> uses;  // (position, part, unit)
  std::vector<DeviceId> holders;
  for (size_t p = 0; p < pieces.size(); ++p) {
    holders.clear();
    for (const auto& [op, part] : pieces[p].users) {
      const DeviceId device = strategy[op].devices[part];
      if (!is_holder_[device]) holders.push_back(device);
      is_holder_[device] = 1;
    }
    for (DeviceId device : holders) is_holder_[device] = 0;
    std::sort(holders.begin(), holders.end());
    const auto [it, added] = by_holders.emplace(holders, static_cast<int32_t>(state.units.size()));
    if (added) state.units.push_back({static_cast<int64_t>(p), {g, holders, {}, 0}, {}, {}, 0});
    UnitState& unit = state.units[it->second];
    unit.unit.pieces.push_back(&pieces[p]);
    unit.unit.bytes += pieces[p].block.volume() * element_bytes;
    for (const auto& [op, part] : pieces[p].users) uses.emplace_back(position_of_[op], part, it->second);
  }
  // Sorted by (position, part) by counting; a part's units are few.
  for (size_t position = 0; position < group.operators.size(); ++position)
    state.begin[position].assign(static_cast<size_t>(operators[group.operators[position]].parts()) + 1, 0);
  for (const auto& [position, part, unit] : uses) ++state.begin[position][part + 1];
  for (size_t position = 0; position < group.operators.size(); ++position) {
    std::vector<int32_t>& begin = state.begin[position];
    for (size_t part = 1; part < begin.size(); ++part) begin[part] += begin[part - 1];
    state.units_of[position].resize(static_cast<size_t>(begin.back()));
  }
  for (size_t i = uses.size(); i-- > 0;) {
    const auto& [position, part, unit] = uses[i];
    state.units_of[position][--state.begin[position][part + 1]] = unit;
  }
  for (size_t position = 0; position < group.operators.size(); ++position) {
    std::vector<int32_t>&begin = state.begin[position], &units = state.units_of[position];
    int32_t kept = 0;
    for (size_t part = 0; part + 1 < begin.size(); ++part) {
      const int32_t first = begin[part + 1], last = part + 2 < begin.size() ? begin[part + 2] : static_cast<int32_t>(units.size());
      std::sort(units.begin() + first, units.begin() + last);
      begin[part] = kept;
      for (int32_t i = first; i < last; ++i)
        if (i == first || units[i] != units[i - 1]) {
          ++state.units[units[i]].waits;
          units[kept++] = units[i];
        }
    }
    begin.back() = kept;
    units.resize(static_cast<size_t>(kept));
  }
  int32_t parts_of_all = 0;
  for (OperatorId op : group.operators) parts_of_all += operators[op].parts();
  state.one_unit = state.units.size() == 1 && state.units[0].waits == parts_of_all;
  for (UnitState& unit : state.units) {
    const std::vector<int64_t> sums = gradient_sum_bytes(unit.unit, graph, strategy);
    for (size_t h = 0; h < sums.size(); ++h) {
      const int model = model_of(unit.unit.holders[h]);
      unit.update.push_back(costs.update_ns(unit.unit.bytes, model) + costs.copy_ns(sums[h], model));
    }
    if (sums.size() > 1) costs.communication().all_reduce(unit.unit.holders, unit.unit.bytes, unit.collective);
  }
  if (group.operators.size() > 1) return;
  Nanoseconds least = state.units.empty() ? 0 : unit_time(state.units[0]);
  for (const UnitState& unit : state.units) least = std::min(least, unit_time(unit));
  paths.least_synchronization[group.operators[0]] = std::max(paths.least_synchronization[group.operators[0]], least);
}

void StrategyState::add_work(OperatorId op, Nanoseconds sign) {
  const OperatorTasks& task = tasks[op];
  const std::vector<DeviceId>& devices = operators[op].devices;
  for (size_t part = 0; part < devices.size(); ++part) {
    work[devices[part]] += sign * (task.parts[part].forward + task.parts[part].backward);
    if (has_statistics[op]) work[devices[part]] += sign * (task.forward_statistics[part] + task.backward_statistics[part]);
  }
}

void StrategyState::add_kernel_work(OperatorId op, Nanoseconds sign) {
  const OperatorState& state = operators[op];
  for (int part = 0; part < state.parts(); ++part) kernel_work[state.devices[part]] += sign * (state.forward_kernel[part] + state.backward_kernel[part]);
}

void StrategyState::add_group_work(int g, Nanoseconds sign) {
  for (const UnitState& unit : groups[g].units)
    for (size_t h = 0; h < unit.unit.holders.size(); ++h) work[unit.unit.holders[h]] += sign * unit.update[h];
}

void StrategyState::set_paths() {
  for (OperatorId op = 0; op < count(); ++op) {
    paths.head[op] = paths.tail_producers[op] = 0;
    for (int e : in_edges[op]) {
      if (!every_part_reads[e]) continue;
      const OperatorId producer = edge(e).producer;
      paths.head[op] = std::max(paths.head[op], paths.head[producer] + paths.least_forward[producer]);
      if (edge_has_gradient[e])
        paths.tail_producers[op] = std::max(paths.tail_producers[op], paths.least_backward[producer] + paths.tail_backward[producer]);
    }
    paths.tail_backward[op] = std::max(paths.tail_producers[op], paths.least_synchronization[op]);
  }
  for (OperatorId op = count(); op-- > 0;) {
    paths.middle[op] = paths.tail_forward[op] = 0;
    for (int e : out_edges[op]) {
      if (!every_part_is_read[e]) continue;
      const OperatorId consumer = edge(e).consumer;
      paths.tail_forward[op] = std::max(paths.tail_forward[op], paths.least_forward[consumer] + paths.tail_forward[consumer]);
      if (edge_has_gradient[e])
        paths.middle[op] = std::max(paths.middle[op], paths.least_forward[consumer] + paths.middle[consumer] + paths.least_backward[consumer]);
    }
    if (has_backward(op)) paths.tail_forward[op] = std::max(paths.tail_forward[op], paths.middle[op] + paths.least_backward[op] + paths.tail_backward[op]);
  }
}

}  // namespace ff::delta
