#include "search/simulator/delta.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "search/simulator/delta_state.h"

namespace ff {

using namespace delta;

namespace {

constexpr Nanoseconds unlimited = std::numeric_limits<Nanoseconds>::max();
constexpr int snapshot_count = 24;  // of a timeline; more restart closer to a change, fewer are faster to record

// A task that is ready to be taken.
struct Event {
  Nanoseconds ready;
  TaskKey key;
  int32_t index;  // transfers: the pair; synchronization and update: the unit; update: holder in the upper bits
  int32_t holder;
};
struct Later {
  bool operator()(const Event& a, const Event& b) const { return a.ready != b.ready ? a.ready > b.ready : a.key > b.key; }
};

TaskKind kind_of(TaskKey key) { return static_cast<TaskKind>(key >> 60); }
int what_of(TaskKey key) { return static_cast<int>(key >> 40 & 0xFFFFF); }
int part_of(TaskKey key) { return static_cast<int>(key >> 20 & 0xFFFFF); }

// Where the simulation stands: everything that a restart needs.
struct Progress {
  size_t position = 0;                // events taken
  std::vector<int32_t> waits;         // [slot]: predecessors that have not ended
  std::vector<Nanoseconds> ready;     // [slot]: latest end of a predecessor so far
  std::vector<Event> queue;           // heap
  std::vector<Nanoseconds> free_at;   // [resource]
  std::vector<Nanoseconds> done;      // [device]: compute and update work taken so far
  Nanoseconds makespan = 0;
};

}  // namespace

class DeltaSimulator::State {
 public:
  State(TaskGraphBuilder& builder, const Topology& topology, TaskCostModel& costs)
      : graph_(builder.graph()), topology_(topology), costs_(costs), builder_(builder), device_count_(static_cast<int>(topology.devices.size())) {
    const Graph& graph = graph_;
    const size_t count = graph.operators.size();
    in_edges_.resize(count);
    out_edges_.resize(count);
    groups_of_.resize(count);
    edges_.resize(builder_.edges().size());
    edge_has_gradient_.resize(edges_.size());
    for (size_t e = 0; e < edges_.size(); ++e) {
      const Edge& edge = builder_.edges()[e];
      in_edges_[edge.consumer].push_back(static_cast<int>(e));
      out_edges_[edge.producer].push_back(static_cast<int>(e));
      const OperatorDefinition& consumer = *graph.operators[edge.consumer].definition;
      every_part_reads_.push_back(consumer.every_part_reads(edge.input));
      every_part_is_read_.push_back(consumer.reads_every_element(edge.input));
      edge_has_gradient_[e] = graph.operators[edge.consumer].has_backward && graph.input_has_gradient(edge.consumer, edge.input);
    }
    for (std::vector<int>& edges : out_edges_)  // contributions to the gradients are counted tensor by tensor
      std::stable_sort(edges.begin(), edges.end(), [&](int a, int b) { return builder_.edges()[a].tensor < builder_.edges()[b].tensor; });
    groups_.resize(builder_.groups().size());
    for (size_t g = 0; g < groups_.size(); ++g)
      if (builder_.groups()[g].trained)
        for (size_t position = 0; position < builder_.groups()[g].operators.size(); ++position)
          groups_of_[builder_.groups()[g].operators[position]].push_back({static_cast<int>(g), static_cast<int>(position)});
    operators_.resize(count);
    for (const Operator& op : graph.operators) has_statistics_.push_back(op.definition->has_statistics());
    for (auto* path : {&paths_.head, &paths_.middle, &paths_.tail_forward, &paths_.tail_backward, &paths_.least_forward, &paths_.least_backward})
      path->resize(count);
    first_position_.resize(count);
  }

  void reset(const Strategy& strategy) {
    strategy_ = strategy;
    for (OperatorId op = 0; op < count(); ++op) set_operator(op);
    for (size_t e = 0; e < edges_.size(); ++e) set_edge(static_cast<int>(e));
    for (OperatorId op = 0; op < count(); ++op) combine_copies(op);
    for (size_t g = 0; g < groups_.size(); ++g)
      if (builder_.groups()[g].trained) set_group(static_cast<int>(g));
    lay_out_slots();
    sum_work();
    set_paths();
    task_estimate_ = 0;
    for (const OperatorState& state : operators_) task_estimate_ += 2 * state.devices.size();
    record();
  }

  std::optional<Nanoseconds> propose(OperatorId op, const Configuration& configuration, Nanoseconds limit) {
    ++statistics.proposals;
    proposed_ = op;
    changed_ = false;
    if (certain_to_exceed(op, configuration, limit)) {
      ++statistics.rejected_before_simulation;
      return std::nullopt;
    }
    change(op, configuration);
    Nanoseconds most_work = 0;
    for (Nanoseconds work : work_) most_work = std::max(most_work, work);
    if (most_work > limit) {
      ++statistics.rejected_before_simulation;
      return std::nullopt;
    }
    restart(op);
    if (!run(limit, nullptr)) {
      ++statistics.rejected_during_simulation;
      return std::nullopt;
    }
    return now_.makespan;
  }

  void accept() {
    assert(changed_);
    changed_ = false;
    record_from_restart(proposed_);
    undo_.clear();
  }

  void reject() {
    if (!changed_) return;
    changed_ = false;
    strategy_[proposed_] = std::move(undo_.configuration);
    for (auto& [op, state] : undo_.operators) operators_[op] = std::move(state);
    for (auto& [e, state] : undo_.edges) edges_[e] = std::move(state);
    for (auto& [g, state] : undo_.groups) groups_[g] = std::move(state);
    std::swap(work_, undo_.work);
    std::swap(kernel_work_, undo_.kernel_work);
    std::swap(paths_, undo_.paths);
    undo_.clear();
  }

  Strategy strategy_;
  Nanoseconds makespan = 0;
  std::vector<Record> records;
  DeltaStatistics statistics;

 private:
  OperatorId count() const { return static_cast<OperatorId>(graph_.operators.size()); }
  int model_of(DeviceId device) const { return topology_.devices[device].model; }
  bool has_backward(OperatorId op) const { return graph_.operators[op].has_backward; }
  bool has_statistics(OperatorId op) const { return has_statistics_[op]; }
  TaskKind first_forward(OperatorId op) const { return has_statistics(op) ? TaskKind::forward_statistics : TaskKind::forward; }
  TaskKind first_backward(OperatorId op) const { return has_statistics(op) ? TaskKind::backward_statistics : TaskKind::backward; }

  // ---- what a strategy says: operators, edges, groups ----

  void set_operator(OperatorId op) {
    OperatorState& state = operators_[op];
    const Configuration& configuration = strategy_[op];
    state.devices = configuration.devices;
    state.degrees = configuration.degrees;
    const size_t parts = state.devices.size();
    state.forward_kernel.resize(parts);
    state.backward_kernel.assign(parts, 0);
    for (size_t part = 0; part < parts; ++part) {
      const auto& cost = costs_.part_cost(op, state.degrees, static_cast<int>(part), model_of(state.devices[part]));
      state.forward_kernel[part] = cost.all_forward();
      if (has_backward(op)) state.backward_kernel[part] = cost.all_backward();
    }
    if (has_statistics(op)) set_reductions(op);
  }

  void set_reductions(OperatorId op) {
    OperatorState& state = operators_[op];
    const OperatorDefinition& definition = *graph_.operators[op].definition;
    const int parts = state.parts();
    state.reductions.assign(static_cast<size_t>(definition.statistics_groups(state.degrees)), {});
    state.forward_statistics_kernel.resize(parts);
    state.backward_statistics_kernel.assign(parts, 0);
    for (int part = 0; part < parts; ++part) {
      state.reductions[definition.statistics_group(state.degrees, part)].parts.push_back(part);
      const auto& cost = costs_.part_cost(op, state.degrees, part, model_of(state.devices[part]));
      state.forward_statistics_kernel[part] = cost.forward_statistics.ns;
      if (has_backward(op)) state.backward_statistics_kernel[part] = cost.backward_statistics.ns;
    }
    for (ReductionState& reduction : state.reductions) {
      std::vector<DeviceId> holders;
      for (int part : reduction.parts) holders.push_back(state.devices[part]);
      std::sort(holders.begin(), holders.end());
      holders.erase(std::unique(holders.begin(), holders.end()), holders.end());
      const int64_t bytes = definition.statistics_bytes(definition.part(state.degrees, reduction.parts[0]));
      costs_.communication().all_reduce(holders, bytes, reduction.collective);
    }
  }

  const EdgePlan& plan_of(int e) {
    const BlockPairs& pairs = builder_.pairs(e, strategy_);
    auto [it, added] = plans_.try_emplace(&pairs);
    EdgePlan& plan = it->second;
    if (!added) return plan;
    const Edge& edge = builder_.edges()[e];
    const size_t producers = strategy_[edge.producer].devices.size(), consumers = strategy_[edge.consumer].devices.size();
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
    return plan;
  }

  void set_edge(int e) {
    const Edge& edge = builder_.edges()[e];
    EdgeState& state = edges_[e];
    state.plan = &plan_of(e);
    const std::vector<DeviceId>& producers = strategy_[edge.producer].devices;
    const std::vector<DeviceId>& consumers = strategy_[edge.consumer].devices;
    state.assembled.assign(consumers.size(), 0);
    state.packed_back.assign(consumers.size(), 0);
    state.packed.assign(producers.size(), 0);
    state.contributed.assign(producers.size(), 0);
    state.contributions.assign(producers.size(), 0);
    state.in_place.assign(producers.size(), 0);
    const bool has_gradient = edge_has_gradient_[e];
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

  // Durations and numbers of predecessors of an operator's tasks, from its kernels and the edges around it.
  void combine_copies(OperatorId op) {
    OperatorState& state = operators_[op];
    const size_t parts = state.devices.size();
    state.forward.resize(parts);
    state.backward.resize(parts);
    if (has_statistics(op)) {
      state.forward_statistics.resize(parts);
      state.backward_statistics.resize(parts);
    }
    state.forward_waits.assign(parts, 0);
    state.backward_waits.assign(parts, 1);  // its own forward task
    for (size_t part = 0; part < parts; ++part) {
      const int model = model_of(state.devices[part]);
      int64_t assembled = 0, packed = 0, gathered = 0, packed_back = 0;  // bytes
      for (int e : in_edges_[op]) {
        const EdgeState& edge = edges_[e];
        assembled += edge.assembled[part];
        packed_back += edge.packed_back[part];
        state.forward_waits[part] += edge.plan->consumer_begin[part + 1] - edge.plan->consumer_begin[part];
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
      for (int e : out_edges_[op]) {
        const EdgeState& edge = edges_[e];
        packed += edge.packed[part];
        if (!edge_has_gradient_[e]) continue;
        if (builder_.edges()[e].tensor != tensor) {
          finish_tensor();
          tensor = builder_.edges()[e].tensor;
        }
        contributions += edge.contributions[part];
        contributed += edge.contributed[part];
        if (edge.contributions[part] > 0) in_place = edge.in_place[part];
        state.backward_waits[part] += edge.contributions[part];
      }
      finish_tensor();
      if (has_statistics(op)) {
        const Nanoseconds forward = state.forward_statistics_kernel[part], backward = state.backward_statistics_kernel[part];
        state.forward_statistics[part] = forward + costs_.copy_ns(assembled, model);
        state.forward[part] = state.forward_kernel[part] - forward + costs_.copy_ns(packed, model);
        state.backward_statistics[part] = backward + costs_.copy_ns(gathered, model);
        state.backward[part] = state.backward_kernel[part] - backward + costs_.copy_ns(packed_back, model);
        continue;
      }
      state.forward[part] = state.forward_kernel[part] + costs_.copy_ns(assembled + packed, model);
      state.backward[part] = state.backward_kernel[part] + (has_backward(op) ? costs_.copy_ns(gathered + packed_back, model) : 0);
    }
  }

  void set_group(int g) {
    const ParameterGroup& group = builder_.groups()[g];
    GroupState& state = groups_[g];
    state.units.clear();
    state.units_of.resize(group.operators.size());
    std::vector<int> position_of(graph_.operators.size(), -1);
    for (size_t position = 0; position < group.operators.size(); ++position) {
      position_of[group.operators[position]] = static_cast<int>(position);
      state.units_of[position].assign(strategy_[group.operators[position]].devices.size(), {});
    }
    const std::vector<ParameterPiece>& pieces = builder_.pieces(g, strategy_);
    std::map<std::vector<DeviceId>, int32_t> by_holders;
    for (size_t p = 0; p < pieces.size(); ++p) {
      std::vector<DeviceId> holders;
      for (const auto& [op, part] : pieces[p].users) holders.push_back(strategy_[op].devices[part]);
      std::sort(holders.begin(), holders.end());
      holders.erase(std::unique(holders.begin(), holders.end()), holders.end());
      const auto [it, added] = by_holders.emplace(holders, static_cast<int32_t>(state.units.size()));
      if (added) state.units.push_back({static_cast<int64_t>(p), {g, std::move(holders), {}, 0}, {}, {}, 0});
      UnitState& unit = state.units[it->second];
      unit.unit.pieces.push_back(&pieces[p]);
      unit.unit.bytes += pieces[p].block.volume() * element_bytes;
      for (const auto& [op, part] : pieces[p].users) {
        std::vector<int32_t>& units = state.units_of[position_of[op]][part];
        if (std::find(units.begin(), units.end(), it->second) != units.end()) continue;
        units.push_back(it->second);
        ++unit.waits;
      }
    }
    for (UnitState& unit : state.units) {
      const std::vector<int64_t> sums = gradient_sum_bytes(unit.unit, graph_, strategy_);
      for (size_t h = 0; h < sums.size(); ++h) {
        const int model = model_of(unit.unit.holders[h]);
        unit.update.push_back(costs_.update_ns(unit.unit.bytes, model) + costs_.copy_ns(sums[h], model));
      }
      if (sums.size() > 1) costs_.communication().all_reduce(unit.unit.holders, unit.unit.bytes, unit.collective);
    }
  }

  // ---- bounds ----

  void add_work(OperatorId op, Nanoseconds sign) {
    const OperatorState& state = operators_[op];
    for (int part = 0; part < state.parts(); ++part) {
      work_[state.devices[part]] += sign * (state.forward[part] + state.backward[part]);
      if (has_statistics(op)) work_[state.devices[part]] += sign * (state.forward_statistics[part] + state.backward_statistics[part]);
      kernel_work_[state.devices[part]] += sign * (state.forward_kernel[part] + state.backward_kernel[part]);
    }
  }
  void add_group_work(int g, Nanoseconds sign) {
    for (const UnitState& unit : groups_[g].units)
      for (size_t h = 0; h < unit.unit.holders.size(); ++h) work_[unit.unit.holders[h]] += sign * unit.update[h];
  }
  void sum_work() {
    work_.assign(device_count_, 0);
    kernel_work_.assign(device_count_, 0);
    for (OperatorId op = 0; op < count(); ++op) add_work(op, 1);
    for (size_t g = 0; g < groups_.size(); ++g) add_group_work(static_cast<int>(g), 1);
  }

  // Longest paths through the operators, when each takes the time of its fastest part's kernel and copies and transfers take none:
  //   head           from the start to the operator's forward tasks
  //   middle         from an operator's forward to its backward task, through its consumers
  //   tail_backward  behind a backward task
  //   tail_forward   behind a forward task
  // Only edges count over which every part of both ends exchanges data, whatever the degrees. Then head, middle and tail_backward of an
  // operator do not depend on its own configuration.
  void set_paths() {
    for (OperatorId op = 0; op < count(); ++op) {
      const OperatorState& state = operators_[op];
      paths_.least_forward[op] = *std::min_element(state.forward_kernel.begin(), state.forward_kernel.end());
      paths_.least_backward[op] = *std::min_element(state.backward_kernel.begin(), state.backward_kernel.end());
      paths_.head[op] = paths_.tail_backward[op] = 0;
      for (int e : in_edges_[op]) {
        if (!every_part_reads_[e]) continue;
        const OperatorId producer = builder_.edges()[e].producer;
        paths_.head[op] = std::max(paths_.head[op], paths_.head[producer] + paths_.least_forward[producer]);
        if (edge_has_gradient_[e])
          paths_.tail_backward[op] = std::max(paths_.tail_backward[op], paths_.least_backward[producer] + paths_.tail_backward[producer]);
      }
    }
    for (OperatorId op = count(); op-- > 0;) {
      paths_.middle[op] = paths_.tail_forward[op] = 0;
      for (int e : out_edges_[op]) {
        if (!every_part_is_read_[e]) continue;
        const OperatorId consumer = builder_.edges()[e].consumer;
        paths_.tail_forward[op] = std::max(paths_.tail_forward[op], paths_.least_forward[consumer] + paths_.tail_forward[consumer]);
        if (edge_has_gradient_[e])
          paths_.middle[op] = std::max(paths_.middle[op], paths_.least_forward[consumer] + paths_.middle[consumer] + paths_.least_backward[consumer]);
      }
      if (has_backward(op))
        paths_.tail_forward[op] = std::max(paths_.tail_forward[op], paths_.middle[op] + paths_.least_backward[op] + paths_.tail_backward[op]);
    }
  }

  // Bounds that need nothing but the new configuration's kernel times: the work of each device, and the path through the operator.
  bool certain_to_exceed(OperatorId op, const Configuration& configuration, Nanoseconds limit) {
    if (limit == unlimited) return false;
    const OperatorState& old = operators_[op];
    bound_work_ = kernel_work_;
    for (int part = 0; part < old.parts(); ++part) bound_work_[old.devices[part]] -= old.forward_kernel[part] + old.backward_kernel[part];
    Nanoseconds slowest = 0;
    for (size_t part = 0; part < configuration.devices.size(); ++part) {
      const DeviceId device = configuration.devices[part];
      const auto& cost = costs_.part_cost(op, configuration.degrees, static_cast<int>(part), model_of(device));
      const Nanoseconds time = cost.all_forward() + (has_backward(op) ? cost.all_backward() : 0);
      bound_work_[device] += time;
      slowest = std::max(slowest, time);
    }
    if (paths_.head[op] + slowest + paths_.middle[op] + paths_.tail_backward[op] > limit) return true;
    return *std::max_element(bound_work_.begin(), bound_work_.end()) > limit;
  }

  // ---- changing one operator ----

  void change(OperatorId op, const Configuration& configuration) {
    changed_ = true;
    undo_.clear();
    undo_.configuration = strategy_[op];
    undo_.work = work_;
    undo_.kernel_work = kernel_work_;
    undo_.paths = paths_;
    std::vector<OperatorId> around{op};
    for (int e : in_edges_[op]) around.push_back(builder_.edges()[e].producer);
    for (int e : out_edges_[op]) around.push_back(builder_.edges()[e].consumer);
    std::sort(around.begin(), around.end());
    around.erase(std::unique(around.begin(), around.end()), around.end());
    for (OperatorId neighbour : around) {
      undo_.operators.emplace_back(neighbour, operators_[neighbour]);
      add_work(neighbour, -1);
    }
    strategy_[op] = configuration;
    set_operator(op);
    for (const auto* list : {&in_edges_[op], &out_edges_[op]})
      for (int e : *list) {
        undo_.edges.emplace_back(e, std::move(edges_[e]));
        set_edge(e);
      }
    for (OperatorId neighbour : around) {
      combine_copies(neighbour);
      add_work(neighbour, 1);
    }
    for (const auto& [g, position] : groups_of_[op]) {
      add_group_work(g, -1);
      undo_.groups.emplace_back(g, std::move(groups_[g]));
      groups_[g] = {};
      set_group(g);
      add_group_work(g, 1);
    }
    set_paths();
  }

  // ---- the event loop ----

  // Slots number the tasks that wait for several predecessors: forward, backward, units.
  void lay_out_slots() {
    int32_t next = 0;
    forward_slot_.resize(operators_.size());
    backward_slot_.resize(operators_.size());
    forward_reduction_slot_.resize(operators_.size());
    backward_reduction_slot_.resize(operators_.size());
    unit_slot_.resize(groups_.size());
    unit_capacity_.resize(groups_.size());
    for (OperatorId op = 0; op < count(); ++op) {
      const int32_t capacity = std::max(device_count_, operators_[op].parts());
      forward_slot_[op] = next;
      backward_slot_[op] = next + capacity;
      next += 2 * capacity;
      if (!has_statistics(op)) continue;
      forward_reduction_slot_[op] = next;
      backward_reduction_slot_[op] = next + capacity;
      next += 2 * capacity;
    }
    for (size_t g = 0; g < groups_.size(); ++g) {
      unit_slot_[g] = next;
      unit_capacity_[g] = std::max(2 * device_count_, 2 * static_cast<int32_t>(groups_[g].units.size()));
      next += unit_capacity_[g];
    }
    slot_count_ = next;
    ended_at_.assign(slot_count_, 0);
    position_.assign(slot_count_, 0);
    snapshots_.clear();
  }

  bool fits_slots(OperatorId op) const {
    const int32_t capacity = backward_slot_[op] - forward_slot_[op];
    if (operators_[op].parts() > capacity) return false;
    for (const auto& [g, position] : groups_of_[op])
      if (static_cast<int32_t>(groups_[g].units.size()) > unit_capacity_[g]) return false;
    return true;
  }

  void start_fresh() {
    now_.position = 0;
    now_.waits.assign(slot_count_, 0);
    now_.ready.assign(slot_count_, 0);
    now_.queue.clear();
    now_.free_at.assign(topology_.devices.size() + topology_.channels.size(), 0);
    now_.done.assign(device_count_, 0);
    now_.makespan = 0;
    for (OperatorId op = 0; op < count(); ++op) {
      const OperatorState& state = operators_[op];
      for (int part = 0; part < state.parts(); ++part) {
        now_.waits[forward_slot_[op] + part] = state.forward_waits[part];
        now_.waits[backward_slot_[op] + part] = state.backward_waits[part];
        if (state.forward_waits[part] == 0) push({0, make_task_key(first_forward(op), op, part, 0), 0, 0});
      }
      set_reduction_waits(op, now_);
    }
    for (size_t g = 0; g < groups_.size(); ++g)
      for (size_t u = 0; u < groups_[g].units.size(); ++u) now_.waits[unit_slot_[g] + static_cast<int32_t>(u)] = groups_[g].units[u].waits;
  }

  void set_reduction_waits(OperatorId op, Progress& at) {
    if (!has_statistics(op)) return;
    const std::vector<ReductionState>& reductions = operators_[op].reductions;
    for (size_t g = 0; g < reductions.size(); ++g)
      for (const auto* slots : {&forward_reduction_slot_, &backward_reduction_slot_}) {
        const int32_t slot = (*slots)[op] + static_cast<int32_t>(g);
        at.waits[slot] = static_cast<int32_t>(reductions[g].parts.size());
        at.ready[slot] = 0;
      }
  }

  // To the last snapshot before anything that the change of `op` touches, with the changed tasks' predecessors counted anew.
  void restart(OperatorId op) {
    size_t first = std::numeric_limits<size_t>::max();
    for (int e : in_edges_[op]) first = std::min(first, first_position_[builder_.edges()[e].producer]);
    // A part that reads graph inputs alone is ready from the start, so it is in every snapshot's past.
    for (const auto& [changed, old] : undo_.operators)
      if (changed == op && (*std::min_element(old.forward_waits.begin(), old.forward_waits.end()) == 0 ||
                            *std::min_element(operators_[op].forward_waits.begin(), operators_[op].forward_waits.end()) == 0))
        first = 0;
    size_t from = 0;
    while (from + 1 < snapshots_.size() && snapshots_[from + 1].position <= first) ++from;
    restart_snapshot_ = from;
    if (!fits_slots(op)) lay_out_slots();
    if (from == 0 || snapshots_.empty()) {
      restart_snapshot_ = 0;
      start_fresh();
      return;
    }
    now_ = snapshots_[from];
    set_waits(op, now_);
  }

  void set_waits(OperatorId op, Progress& at) {
    const OperatorState& state = operators_[op];
    for (int part = 0; part < state.parts(); ++part) {
      at.waits[forward_slot_[op] + part] = state.forward_waits[part];
      at.waits[backward_slot_[op] + part] = state.backward_waits[part];
      at.ready[forward_slot_[op] + part] = at.ready[backward_slot_[op] + part] = 0;
    }
    set_reduction_waits(op, at);
    // Neighbours: predecessors on other edges may have ended already, those on the changed edges have not.
    for (const auto& [neighbour, old] : undo_.operators) {
      if (neighbour == op) continue;
      const OperatorState& fresh = operators_[neighbour];
      for (int part = 0; part < fresh.parts(); ++part) {
        at.waits[forward_slot_[neighbour] + part] += fresh.forward_waits[part] - old.forward_waits[part];
        at.waits[backward_slot_[neighbour] + part] += fresh.backward_waits[part] - old.backward_waits[part];
      }
    }
    for (const auto& [g, position] : groups_of_[op]) {
      const GroupState& group = groups_[g];
      for (size_t u = 0; u < group.units.size(); ++u) {
        at.waits[unit_slot_[g] + static_cast<int32_t>(u)] = group.units[u].waits;
        at.ready[unit_slot_[g] + static_cast<int32_t>(u)] = 0;
      }
      const std::vector<OperatorId>& sharing = builder_.groups()[g].operators;
      for (size_t other = 0; other < sharing.size(); ++other) {  // gradients that were there before the restart
        if (sharing[other] == op) continue;
        const int32_t slots = has_backward(sharing[other]) ? backward_slot_[sharing[other]] : forward_slot_[sharing[other]];
        for (size_t part = 0; part < group.units_of[other].size(); ++part)
          if (position_[slots + static_cast<int32_t>(part)] < at.position)
            for (int32_t unit : group.units_of[other][part]) arrive(at, unit_slot_[g] + unit, ended_at_[slots + static_cast<int32_t>(part)]);
      }
    }
  }

  void push(const Event& event) {
    now_.queue.push_back(event);
    std::push_heap(now_.queue.begin(), now_.queue.end(), Later());
  }

  static bool arrive(Progress& at, int32_t slot, Nanoseconds end) {
    at.ready[slot] = std::max(at.ready[slot], end);
    return --at.waits[slot] == 0;
  }
  void arrive_forward(OperatorId op, int part, Nanoseconds end) {
    const int32_t slot = forward_slot_[op] + part;
    if (arrive(now_, slot, end)) push({now_.ready[slot], make_task_key(first_forward(op), op, part, 0), 0, 0});
  }
  void arrive_backward(OperatorId op, int part, Nanoseconds end) {
    const int32_t slot = backward_slot_[op] + part;
    if (arrive(now_, slot, end)) push({now_.ready[slot], make_task_key(first_backward(op), op, part, 0), 0, 0});
  }
  void arrive_units(OperatorId op, int part, Nanoseconds end) {
    for (const auto& [g, position] : groups_of_[op])
      for (int32_t u : groups_[g].units_of[position][part]) {
        const int32_t slot = unit_slot_[g] + u;
        if (!arrive(now_, slot, end)) continue;
        const UnitState& unit = groups_[g].units[u];
        if (unit.unit.holders.size() > 1) push({now_.ready[slot], make_task_key(TaskKind::synchronization, g, unit.number, 0), u, 0});
        else push({now_.ready[slot], make_task_key(TaskKind::update, g, unit.number, unit.unit.holders[0]), u, 0});
      }
  }

  // Takes the compute or update task; false when the limit is certain to be passed.
  bool take_on_device(const Event& event, DeviceId device, Nanoseconds duration, Nanoseconds behind, Nanoseconds limit, Nanoseconds& start,
                      Nanoseconds& end) {
    start = std::max(event.ready, now_.free_at[device]);
    end = start + duration;
    now_.free_at[device] = end;
    now_.done[device] += duration;
    return end + std::max(behind, work_[device] - now_.done[device]) <= limit;
  }

  void take_transfer(const Event& event, Nanoseconds& start, Nanoseconds& end) {
    const bool activation = kind_of(event.key) == TaskKind::activation;
    const Edge& edge = builder_.edges()[what_of(event.key)];
    const BlockPair& pair = (*edges_[what_of(event.key)].plan->pairs)[event.index];
    const DeviceId producer = operators_[edge.producer].devices[pair.producer_part];
    const DeviceId consumer = operators_[edge.consumer].devices[pair.consumer_part];
    costs_.communication().transfer(activation ? producer : consumer, activation ? consumer : producer, pair.bytes, transfer_cost_);
    occupy(event.ready, transfer_cost_, start, end);
    activation ? arrive_forward(edge.consumer, pair.consumer_part, end) : arrive_backward(edge.producer, pair.producer_part, end);
  }

  void occupy(Nanoseconds ready, const CommunicationCost& cost, Nanoseconds& start, Nanoseconds& end) {
    start = ready;
    for (const ResourceUse& use : cost.uses) start = std::max(start, now_.free_at[use.resource]);
    for (const ResourceUse& use : cost.uses) now_.free_at[use.resource] = start + use.occupancy;
    end = start + cost.duration;
  }

  // A statistics task of `part` has ended.
  void arrive_reduction(TaskKind kind, OperatorId op, int part, Nanoseconds end) {
    const int group = graph_.operators[op].definition->statistics_group(operators_[op].degrees, part);
    const int32_t slot = (kind == TaskKind::forward_reduction ? forward_reduction_slot_ : backward_reduction_slot_)[op] + group;
    if (arrive(now_, slot, end)) push({now_.ready[slot], make_task_key(kind, op, group, 0), 0, 0});
  }

  void follow_forward(OperatorId op, int part, Nanoseconds end) {
    const DeviceId device = operators_[op].devices[part];
    for (int e : out_edges_[op]) {
      const EdgePlan& plan = *edges_[e].plan;
      const OperatorId consumer = builder_.edges()[e].consumer;
      const std::vector<DeviceId>& devices = operators_[consumer].devices;
      for (int32_t i = plan.producer_begin[part]; i < plan.producer_begin[part + 1]; ++i) {
        const int32_t index = plan.by_producer[i];
        const int consumer_part = (*plan.pairs)[index].consumer_part;
        if (devices[consumer_part] == device) arrive_forward(consumer, consumer_part, end);
        else push({end, make_task_key(TaskKind::activation, e, consumer_part, part), index, 0});
      }
    }
    if (has_backward(op)) arrive_backward(op, part, end);
    else arrive_units(op, part, end);
  }

  void follow_backward(OperatorId op, int part, Nanoseconds end) {
    const DeviceId device = operators_[op].devices[part];
    for (int e : in_edges_[op]) {
      if (!edge_has_gradient_[e]) continue;
      const EdgePlan& plan = *edges_[e].plan;
      const OperatorId producer = builder_.edges()[e].producer;
      const std::vector<DeviceId>& devices = operators_[producer].devices;
      for (int32_t index = plan.consumer_begin[part]; index < plan.consumer_begin[part + 1]; ++index) {
        const int producer_part = (*plan.pairs)[index].producer_part;
        if (devices[producer_part] == device) arrive_backward(producer, producer_part, end);
        else push({end, make_task_key(TaskKind::gradient, e, part, producer_part), index, 0});
      }
    }
    arrive_units(op, part, end);
  }

  // Takes one task; false when the limit is certain to be passed.
  bool take(const Event& event, Nanoseconds limit, Nanoseconds& start, Nanoseconds& end) {
    const int what = what_of(event.key), part = part_of(event.key);
    switch (kind_of(event.key)) {
      case TaskKind::forward: {
        const OperatorState& state = operators_[what];
        if (!take_on_device(event, state.devices[part], state.forward[part], paths_.tail_forward[what], limit, start, end)) return false;
        follow_forward(what, part, end);
        return true;
      }
      case TaskKind::backward: {
        const OperatorState& state = operators_[what];
        if (!take_on_device(event, state.devices[part], state.backward[part], paths_.tail_backward[what], limit, start, end)) return false;
        follow_backward(what, part, end);
        return true;
      }
      case TaskKind::forward_statistics: {
        const OperatorState& state = operators_[what];
        const Nanoseconds behind = paths_.tail_forward[what] + state.forward_kernel[part] - state.forward_statistics_kernel[part];
        if (!take_on_device(event, state.devices[part], state.forward_statistics[part], behind, limit, start, end)) return false;
        arrive_reduction(TaskKind::forward_reduction, what, part, end);
        return true;
      }
      case TaskKind::backward_statistics: {
        const OperatorState& state = operators_[what];
        const Nanoseconds behind = paths_.tail_backward[what] + state.backward_kernel[part] - state.backward_statistics_kernel[part];
        if (!take_on_device(event, state.devices[part], state.backward_statistics[part], behind, limit, start, end)) return false;
        arrive_reduction(TaskKind::backward_reduction, what, part, end);
        return true;
      }
      case TaskKind::forward_reduction:
      case TaskKind::backward_reduction: {
        const ReductionState& reduction = operators_[what].reductions[part];
        occupy(event.ready, reduction.collective, start, end);
        const TaskKind next = kind_of(event.key) == TaskKind::forward_reduction ? TaskKind::forward : TaskKind::backward;
        for (int member : reduction.parts) push({end, make_task_key(next, what, member, 0), 0, 0});
        return end <= limit;
      }
      case TaskKind::activation:
      case TaskKind::gradient:
        take_transfer(event, start, end);
        return end <= limit;
      case TaskKind::synchronization: {
        const UnitState& unit = groups_[what].units[event.index];
        occupy(event.ready, unit.collective, start, end);
        for (size_t h = 0; h < unit.unit.holders.size(); ++h)
          push({end, make_task_key(TaskKind::update, what, unit.number, unit.unit.holders[h]), event.index, static_cast<int32_t>(h)});
        return end <= limit;
      }
      case TaskKind::update: {
        const UnitState& unit = groups_[what].units[event.index];
        return take_on_device(event, unit.unit.holders[event.holder], unit.update[event.holder], 0, limit, start, end);
      }
    }
    return true;
  }

  // Takes all events from now_ on; false as soon as the makespan is certain to exceed the limit.
  bool run(Nanoseconds limit, std::vector<Record>* recorded) {
    size_t next_snapshot = recorded ? now_.position : 0;
    while (!now_.queue.empty()) {
      if (recorded && now_.position >= next_snapshot) {
        if (snapshots_.empty() || snapshots_.back().position < now_.position) snapshots_.push_back(now_);
        next_snapshot = now_.position + std::max<size_t>(1, task_estimate_ / snapshot_count);
      }
      std::pop_heap(now_.queue.begin(), now_.queue.end(), Later());
      const Event event = now_.queue.back();
      now_.queue.pop_back();
      Nanoseconds start = 0, end = 0;
      ++statistics.events;
      if (!take(event, limit, start, end)) return false;
      now_.makespan = std::max(now_.makespan, end);
      if (recorded) {
        recorded->push_back({event.key, event.ready, start, end});
        remember(event, end);
      }
      ++now_.position;
    }
    return true;
  }

  void remember(const Event& event, Nanoseconds end) {
    const TaskKind kind = kind_of(event.key);
    if (kind != TaskKind::forward && kind != TaskKind::backward) return;
    const OperatorId op = what_of(event.key);
    const int32_t slot = (kind == TaskKind::forward ? forward_slot_[op] : backward_slot_[op]) + part_of(event.key);
    ended_at_[slot] = end;
    position_[slot] = now_.position;
    if (kind == TaskKind::forward) first_position_[op] = std::min(first_position_[op], now_.position);
  }

  // Simulates the current strategy from the beginning, keeping the timeline and snapshots.
  void record() {
    snapshots_.clear();
    records.clear();
    std::fill(first_position_.begin(), first_position_.end(), std::numeric_limits<size_t>::max());
    start_fresh();
    run(unlimited, &records);
    task_estimate_ = records.size();
    makespan = now_.makespan;
  }

  // The same after the change of `op` was accepted: what lies before the snapshot that the proposal started from stays.
  void record_from_restart(OperatorId op) {
    if (restart_snapshot_ == 0 || snapshots_.empty()) {
      record();
      return;
    }
    // Snapshots are of the strategy before the change: count the changed tasks' predecessors anew in those that stay.
    for (size_t s = 1; s <= restart_snapshot_; ++s) set_waits(op, snapshots_[s]);
    snapshots_.resize(restart_snapshot_ + 1);
    now_ = snapshots_[restart_snapshot_];
    records.resize(now_.position);
    for (size_t& position : first_position_)
      if (position >= now_.position) position = std::numeric_limits<size_t>::max();
    run(unlimited, &records);
    makespan = now_.makespan;
  }

  struct Paths {
    std::vector<Nanoseconds> head, middle, tail_forward, tail_backward, least_forward, least_backward;  // [operator]
  };
  // What a proposal replaced.
  struct Undo {
    Configuration configuration;
    std::vector<std::pair<OperatorId, OperatorState>> operators;  // the changed one and its neighbours
    std::vector<std::pair<int, EdgeState>> edges;
    std::vector<std::pair<int, GroupState>> groups;
    std::vector<Nanoseconds> work, kernel_work;
    Paths paths;
    void clear() {
      operators.clear();
      edges.clear();
      groups.clear();
    }
  };

  const Graph& graph_;
  const Topology& topology_;
  TaskCostModel& costs_;
  TaskGraphBuilder& builder_;
  const int device_count_;
  std::vector<std::vector<int>> in_edges_, out_edges_;                // [operator]
  std::vector<std::vector<std::pair<int, int>>> groups_of_;           // [operator]: (trained group, position in it)
  std::vector<bool> has_statistics_;                                  // [operator]
  std::vector<bool> edge_has_gradient_, every_part_reads_, every_part_is_read_;  // [edge]
  std::unordered_map<const BlockPairs*, EdgePlan> plans_;

  std::vector<OperatorState> operators_;
  std::vector<EdgeState> edges_;
  std::vector<GroupState> groups_;
  std::vector<Nanoseconds> work_, kernel_work_, bound_work_;  // [device]: all compute and update work; kernels alone; scratch
  Paths paths_;

  OperatorId proposed_ = -1;
  bool changed_ = false;
  Undo undo_;

  std::vector<int32_t> forward_slot_, backward_slot_;  // [operator]: slot of part 0
  std::vector<int32_t> forward_reduction_slot_, backward_reduction_slot_;  // [operator with statistics]: slot of its first group
  std::vector<int32_t> unit_slot_, unit_capacity_;     // [group]
  int32_t slot_count_ = 0;
  Progress now_;
  CommunicationCost transfer_cost_;  // scratch

  // Of the current strategy's timeline.
  std::vector<Progress> snapshots_;
  size_t restart_snapshot_ = 0;
  size_t task_estimate_ = 0;
  std::vector<size_t> first_position_;   // [operator]: of its first forward task
  std::vector<Nanoseconds> ended_at_;    // [slot]: end of a forward or backward task
  std::vector<size_t> position_;         // [slot]: when it was taken
};

DeltaSimulator::DeltaSimulator(TaskGraphBuilder& builder, const Topology& topology, TaskCostModel& costs)
    : state_(std::make_unique<State>(builder, topology, costs)) {}
DeltaSimulator::~DeltaSimulator() = default;

void DeltaSimulator::reset(const Strategy& strategy) { state_->reset(strategy); }
const Strategy& DeltaSimulator::strategy() const { return state_->strategy_; }
Nanoseconds DeltaSimulator::makespan() const { return state_->makespan; }
std::optional<Nanoseconds> DeltaSimulator::propose(OperatorId op, const Configuration& configuration, Nanoseconds limit) {
  return state_->propose(op, configuration, limit);
}
void DeltaSimulator::accept() { state_->accept(); }
void DeltaSimulator::reject() { state_->reject(); }
const std::vector<DeltaSimulator::Record>& DeltaSimulator::records() const { return state_->records; }
const DeltaStatistics& DeltaSimulator::statistics() const { return state_->statistics; }

}  // namespace ff
