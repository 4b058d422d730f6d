// Derives a task graph: of all devices, or of one.
#include <map>

#include "common/task_graph/edge_copies.h"
#include "common/task_graph/held_units.h"
#include "common/task_graph/own_edges.h"
#include "common/task_graph/recomputed_edges.h"
#include "common/task_graph/task_graph.h"

namespace ff {
namespace {

constexpr DeviceId all_devices = -1;

// A task graph under construction.
class Assembly {
 public:
  Assembly(TaskGraphBuilder& builder, const Strategy& strategy, DeviceId device)
      : builder_(builder), graph_(builder.graph()), strategy_(strategy), device_(device),
        edge_collectives_(graph_, strategy, builder.alike()),
        held_units_(graph_, strategy, builder.synchronization(), builder.alike(), result_.parts) {
    result_.device = device;
    result_.synchronization = builder.synchronization();
    result_.pairs.resize(builder.edges().size());
  }

  TaskGraph build() {
    for (OperatorId op : graph_.operator_ids()) find_parts(op);
    for (OperatorId op : graph_.operator_ids())
      for (Direction direction : directions) add_compute_tasks(op, direction);
    for (int edge : builder_.edges().indices()) add_edge(edge);
    for (OperatorId op : graph_.operator_ids()) add_gradient_sums(op);
    if (builder_.recomputes()) add_recomputation();
    if (has_owners()) add_barriers();
    for (int group : builder_.groups().indices())
      if (builder_.groups()[group].trained) add_units(group);
    link_successors();
    return std::move(result_);
  }

 private:
  bool whole() const { return device_ == all_devices; }
  bool has_owners() const { return builder_.synchronization() == Synchronization::parameter_server; }

  void find_parts(OperatorId op) {
    Vector<int32_t>& parts = result_.parts.emplace_back();
    const Vector<DeviceId>& devices = strategy_[op].devices;
    for (int32_t part = 0; part < devices.count(); ++part)
      if (whole() || devices[part] == device_) parts.push_back(part);
  }

  int32_t add(const Task& task) {
    result_.tasks.push_back(task);
    return static_cast<int32_t>(result_.tasks.size()) - 1;
  }
  void add_order(int32_t before, int32_t after) { order_.emplace_back(before, after); }
  Task& task(int32_t index) { return result_.tasks[index]; }
  // Of a part: its first or last task of the direction; -1 where the part is not here.
  int32_t task_of(const PerDirection<Vector<int32_t>>& begins, Direction direction, OperatorId op, int32_t part) const {
    const int place = result_.place_of(op, part);
    return place < 0 ? -1 : begins[direction][op] + place;
  }
  int32_t first(Direction direction, OperatorId op, int32_t part) const { return task_of(first_, direction, op, part); }
  int32_t last(Direction direction, OperatorId op, int32_t part) const { return task_of(last_, direction, op, part); }

  // A task for each part; the index of the first.
  int32_t add_parts(OperatorId op, TaskKind kind) {
    const int32_t begin = static_cast<int32_t>(result_.tasks.size());
    for (const int32_t part : result_.parts[op]) {
      Task task{make_task_key(kind, op, part, 0), kind};
      task.op = op;
      task.part = part;
      task.device = strategy_[op].devices[part];
      add(task);
    }
    return begin;
  }

  void add_compute_tasks(OperatorId op, Direction direction) {
    const bool backward = direction == Direction::backward;
    if (backward && !graph_.operators[op].has_backward) {
      first_[direction].push_back(-1);
      last_[direction].push_back(-1);
      return;
    }
    const bool statistics = graph_.operators[op].definition->has_statistics(strategy_[op].degrees, backward);
    if (statistics) first_[direction].push_back(add_parts(op, statistics_kind(direction)));
    last_[direction].push_back(add_parts(op, compute_kind(direction)));
    if (statistics) add_reductions(op, direction);
    else first_[direction].push_back(last_[direction].back());
    if (backward)
      for (int place : result_.parts[op].indices())
        add_order(last_[Direction::forward][op] + place, first_[Direction::backward][op] + place);
  }

  void add_reductions(OperatorId op, Direction direction) {
    const OperatorDefinition& definition = *graph_.operators[op].definition;
    if (!whole()) {
      for (OwnReduction& own : statistics_reductions(definition, strategy_[op], result_.parts[op], direction))
        add_reduction(op, direction, own.number, std::move(own.reduction));
      return;
    }
    int number = 0;
    for (StatisticsReduction& reduction : statistics_reductions(definition, strategy_[op], direction))
      add_reduction(op, direction, number++, std::move(reduction));
  }

  void add_reduction(OperatorId op, Direction direction, int number, StatisticsReduction reduction) {
    const TaskKind kind = reduction_kind(direction);
    Task task{make_task_key(kind, op, number, 0), kind};
    task.op = op;
    task.part = number;
    task.reduction = static_cast<int32_t>(result_.reductions.size());
    task.bytes = reduction.bytes;
    const int32_t index = add(task);
    for (int part : reduction.parts) {
      if (result_.place_of(op, part) < 0) continue;
      add_order(first(direction, op, part), index);
      add_order(index, last(direction, op, part));
    }
    result_.reductions.push_back(std::move(reduction));
  }

  // ---- edges ----

  void add_edge(int e) {
    const Edge& edge = builder_.edges()[e];
    const EdgeParts own{result_.parts[edge.producer], result_.parts[edge.consumer]};
    if (whole()) {
      if (Vector<Collective> found = builder_.collectives(e, strategy_); !found.empty())
        return add_collectives(
            e, builder_.exchanges(e, strategy_[edge.producer].degrees, strategy_[edge.consumer].degrees), found);
      result_.pairs[e] = builder_.pairs(e, strategy_);
    } else {
      const bool any = !own.producers.empty() || !own.consumers.empty();
      if (any && may_have_collectives(graph_, edge, strategy_, own))
        if (const EdgeCollectives::Found& found = edge_collectives_.of(edge); !found.collectives.empty())
          return add_collectives(e, found.exchanges, found.collectives);
      result_.pairs[e] =
          std::make_shared<const BlockPairs>(any ? pairs_of_parts(graph_, edge, strategy_, own) : BlockPairs());
    }
    add_pairs(e);
  }

  void add_pairs(int e) {
    const Edge& edge = builder_.edges()[e];
    const bool gradient = has_gradient(graph_, edge);
    Copies copies{*this, edge};
    for (const BlockPair& pair : *result_.pairs[e]) {
      const DeviceId producer = strategy_[edge.producer].devices[pair.producer_part],
                     consumer = strategy_[edge.consumer].devices[pair.consumer_part];
      connect(TaskKind::activation, e, pair, {producer, last(Direction::forward, edge.producer, pair.producer_part)},
              {consumer, first(Direction::forward, edge.consumer, pair.consumer_part)});
      if (gradient)
        connect(TaskKind::gradient, e, pair, {consumer, last(Direction::backward, edge.consumer, pair.consumer_part)},
                {producer, first(Direction::backward, edge.producer, pair.producer_part)});
      count_copies(pair, producer == consumer, gradient, copies);
    }
  }

  struct End {
    DeviceId device;
    int32_t task;  // -1: not here
  };
  // The way of one block: an ordering edge on one device, a transfer between two.
  void connect(TaskKind kind, int e, const BlockPair& pair, End source, End destination) {
    if (source.device == destination.device) return add_order(source.task, destination.task);
    Task transfer{make_task_key(kind, e, pair.consumer_part, pair.producer_part), kind};
    transfer.edge = e;
    transfer.device = source.device;
    transfer.destination = destination.device;
    transfer.pair = &pair;
    transfer.bytes = pair.bytes;
    const int32_t index = add(transfer);
    result_.transfer_bytes += pair.bytes;
    if (source.task >= 0) add_order(source.task, index);
    if (destination.task >= 0) add_order(index, destination.task);
  }

  void add_collectives(int e, const std::shared_ptr<const EdgeExchanges>& exchanges,
                       const Vector<Collective>& collectives) {
    const Edge& edge = builder_.edges()[e];
    const bool gradient = has_gradient(graph_, edge);
    Copies copies{*this, edge};
    for (int number : collectives.indices()) {
      const Vector<DeviceId>& holders = collectives[number].holders;
      if (!whole() && !std::binary_search(holders.begin(), holders.end(), device_)) continue;
      count_copies(*exchanges, exchanges->exchanges[number], collectives[number].kind, gradient, copies);
      add_collective({e, number, collectives[number], exchanges}, gradient);
    }
  }

  void add_collective(EdgeCollective moved, bool gradient) {
    const Edge& edge = builder_.edges()[moved.edge];
    const Exchange& exchange = moved.exchange();
    const int64_t others = std::ssize(moved.collective.holders) - 1;
    const CollectiveKind kind = moved.collective.kind;
    const int64_t bytes =
        kind == CollectiveKind::all_reduce ? 2 * others * moved.collective.bytes : others * moved.collective.bytes;
    for (Direction direction : directions) {
      if (direction == Direction::backward && !gradient) break;
      const bool forward = direction == Direction::forward;
      Task task{make_task_key(collective_kind(direction), moved.edge, moved.number, 0), collective_kind(direction)};
      task.edge = moved.edge;
      task.part = moved.number;
      task.collective = static_cast<int32_t>(result_.collectives.size());
      task.bytes = moved.collective.bytes;
      const int32_t index = add(task);
      const auto order = [&](OperatorId op, const Vector<int32_t>& parts, bool before) {
        for (int32_t part : parts) {
          const int32_t end = before ? last(direction, op, part) : first(direction, op, part);
          if (end < 0) continue;
          if (before) add_order(end, index);
          else add_order(index, end);
        }
      };
      order(edge.producer, exchange.producers, forward);
      order(edge.consumer, exchange.consumers, !forward);
      result_.transfer_bytes += bytes;
    }
    result_.collectives.push_back(std::move(moved));
  }

  // Adds what an edge makes the tasks here copy (edge_copies.h).
  struct Copies {
    Assembly& assembly;
    const Edge& edge;
    void add(int32_t task, int64_t bytes) {
      if (task >= 0) assembly.task(task).copy_bytes += bytes;
    }
    void assembled(int32_t part, int64_t bytes) { add(assembly.first(Direction::forward, edge.consumer, part), bytes); }
    void packed(int32_t part, int64_t bytes) { add(assembly.last(Direction::forward, edge.producer, part), bytes); }
    void packed_gradient(int32_t part, int64_t bytes) {
      add(assembly.last(Direction::backward, edge.consumer, part), bytes);
    }
    void contributes(int32_t part, int64_t bytes, BlockUse use) {
      const int place = assembly.result_.place_of(edge.producer, part);
      if (place < 0) return;
      Vector<GradientSum>& sums = assembly.gradients_[edge.tensor];
      sums.resize(assembly.result_.parts[edge.producer].size());
      sums[place].add(bytes, use);
    }
  };

  void add_gradient_sums(OperatorId op) {
    for (TensorId tensor : graph_.operators[op].outputs)
      if (const auto found = gradients_.find(tensor); found != gradients_.end())
        for (int place : found->second.indices())
          task(first_[Direction::backward][op] + place).copy_bytes += found->second[place].copied_bytes();
  }

  // ---- recomputation ----

  void add_recomputation() {
    const int32_t begin = static_cast<int32_t>(result_.tasks.size());
    Vector<int32_t> first(graph_.operators.size(), -1);
    for (OperatorId op : graph_.operator_ids())
      if (builder_.recomputed(op)) first[op] = add_parts(op, TaskKind::recompute);
    const auto task_of = [&](OperatorId op, int32_t part) {
      const int place = result_.place_of(op, part);
      return first[op] < 0 || place < 0 ? -1 : first[op] + place;
    };
    Segments segments(begin, static_cast<int32_t>(result_.tasks.size()));
    for (int e : builder_.edges().indices()) {
      const Edge& edge = builder_.edges()[e];
      if (first[edge.producer] < 0 || first[edge.consumer] < 0 || !result_.pairs[e]) continue;
      for (const BlockPair& pair : *result_.pairs[e]) {
        const int32_t producer = task_of(edge.producer, pair.producer_part),
                      consumer = task_of(edge.consumer, pair.consumer_part);
        if (producer < 0 || consumer < 0 || !recomputed_in_place(builder_, strategy_, e, pair)) continue;
        add_order(producer, consumer);
        segments.join(producer, consumer);
      }
    }
    start_segments(begin, segments);
  }

  // Tasks that read each other's recomputed outputs.
  class Segments {
   public:
    Segments(int32_t begin, int32_t end) : begin_(begin) {
      for (int32_t task = begin; task < end; ++task) first_.push_back(task), reads_.push_back(false);
    }
    void join(int32_t producer, int32_t consumer) {
      reads_[consumer - begin_] = true;
      producer = first_of(producer), consumer = first_of(consumer);
      first_[std::max(producer, consumer) - begin_] = std::min(producer, consumer);
    }
    int32_t first_of(int32_t task) {
      while (first_[task - begin_] != task) task = first_[task - begin_] = first_[first_[task - begin_] - begin_];
      return task;
    }
    bool reads_recomputed(int32_t task) const { return reads_[task - begin_]; }

   private:
    const int32_t begin_;
    Vector<int32_t> first_;
    Vector<bool> reads_;
  };

  // A segment begins when the gradient of its last operator's outputs is there. No operator behind that one belongs to
  // the segment, so that nothing waits in a circle.
  void start_segments(int32_t begin, Segments& segments) {
    const int32_t end = static_cast<int32_t>(result_.tasks.size());
    std::map<int32_t, Vector<int32_t>> last;          // by first task of the segment: those of its last operator
    for (int32_t task = begin; task < end; ++task) {  // ascending by operator and part
      Vector<int32_t>& tasks = last[segments.first_of(task)];
      if (!tasks.empty() && this->task(tasks[0]).op != this->task(task).op) tasks.clear();
      tasks.push_back(task);
    }
    std::map<int32_t, Vector<int32_t>> gradients_of;  // by backward task of these: what it waits for
    const auto backward_of = [&](int32_t task) {
      return this->first(Direction::backward, this->task(task).op, this->task(task).part);
    };
    const auto forward_of = [&](int32_t task) {
      return this->last(Direction::forward, this->task(task).op, this->task(task).part);
    };
    for (const auto& [segment, tasks] : last)
      for (const int32_t task : tasks) gradients_of[backward_of(task)];
    for (const auto& [before, after] : order_)
      if (const auto found = gradients_of.find(after); found != gradients_of.end()) found->second.push_back(before);
    for (int32_t task = begin; task < end; ++task) {
      const Vector<int32_t>& tasks = last.at(segments.first_of(task));
      this->task(task).segment_op = this->task(tasks[0]).op;
      this->task(task).segment_part = this->task(tasks[0]).part;
      add_order(forward_of(task), task);
      add_order(task, backward_of(task));
      if (segments.reads_recomputed(task)) continue;
      for (const int32_t end_of_segment : tasks)
        for (const int32_t gradient : gradients_of.at(backward_of(end_of_segment)))
          if (gradient != forward_of(end_of_segment)) add_order(gradient, task);
    }
  }

  // ---- parameters ----

  void add_units(int group) {
    if (!whole()) {
      HeldUnits::Found held = held_units_.of(group, builder_.groups()[group]);
      result_.kept.push_back(held.pieces);
      for (SynchronizationUnit& unit : held.units) add_unit(group, std::move(unit));
      return;
    }
    const auto pieces = builder_.pieces(group, strategy_);
    result_.kept.push_back(pieces);
    for (SynchronizationUnit& unit : synchronization_units(group, *pieces, strategy_, builder_.synchronization()))
      add_unit(group, std::move(unit));
  }

  void add_unit(int group, SynchronizationUnit unit) {
    if (unit.holders.size() > 1) result_.synchronization_bytes += 2 * (std::ssize(unit.holders) - 1) * unit.bytes;
    if (has_owners()) connect_to_owner(group, unit);
    else if (unit.holders.size() > 1 && builder_.synchronization() == Synchronization::sharded) shard(group, unit);
    else all_reduce(group, unit);
    result_.units.push_back(std::move(unit));
  }

  // Bytes that each holder adds up of its own parts' gradients; of one device's graph, 0 for others.
  Vector<int64_t> own_sums(const SynchronizationUnit& unit) const {
    if (whole()) return gradient_sum_bytes(unit, graph_, strategy_);
    Vector<int64_t> sums(unit.holders.size(), 0);
    for (int h : unit.holders.indices())
      if (unit.holders[h] == device_) sums[h] = gradient_sum_bytes(unit, graph_, strategy_, device_);
    return sums;
  }

  // Of the unit that is being added.
  int32_t add_collective(TaskKind kind, int group, const SynchronizationUnit& unit) {
    Task task{make_task_key(kind, group, unit.number, 0), kind};
    task.unit = static_cast<int32_t>(result_.units.size());
    task.bytes = unit.bytes;
    return add(task);
  }
  int32_t add_update(int group, const SynchronizationUnit& unit, DeviceId holder, const HolderWork& work) {
    Task task{make_task_key(TaskKind::update, group, unit.number, holder), TaskKind::update};
    task.unit = static_cast<int32_t>(result_.units.size());
    task.device = holder;
    task.bytes = work.updated;
    task.copy_bytes = work.copied;
    return add(task);
  }

  // The last tasks of the contributors that are here.
  Vector<int32_t> contributions(const SynchronizationUnit& unit) const {
    Vector<int32_t> tasks;
    for (const auto& [op, part] : contributors_of(unit)) {
      const int32_t contributor =
          last(graph_.operators[op].has_backward ? Direction::backward : Direction::forward, op, part);
      if (contributor >= 0) tasks.push_back(contributor);
    }
    return tasks;
  }

  void all_reduce(int group, const SynchronizationUnit& unit) {
    Vector<int32_t> before = contributions(unit);  // the tasks that the updates wait for
    if (unit.holders.size() > 1) {
      const int32_t collective = add_collective(TaskKind::synchronization, group, unit);
      for (int32_t contributor : before) add_order(contributor, collective);
      before = {collective};
    }
    const Vector<int64_t> sums = own_sums(unit);
    for (int h : unit.holders.indices()) {
      const DeviceId holder = unit.holders[h];
      if (!whole() && holder != device_) continue;
      const int32_t update =
          add_update(group, unit, holder, work_of_holder(holder, no_owner, unit.holders.count(), unit.bytes, sums[h]));
      for (int32_t earlier : before) add_order(earlier, update);
    }
  }

  // ---- shards ----

  void shard(int group, const SynchronizationUnit& unit) {
    const int32_t reduce_scatter = add_collective(TaskKind::synchronization, group, unit);
    for (int32_t contributor : contributions(unit)) add_order(contributor, reduce_scatter);
    const int32_t all_gather = add_collective(TaskKind::parameter_all_gather, group, unit);
    const Vector<int64_t> sums = own_sums(unit);
    const int64_t shard_bytes = element_bytes * shard_elements(packed(unit).elements, unit.holders.count());
    for (int h : unit.holders.indices()) {
      const DeviceId holder = unit.holders[h];
      if (!whole() && holder != device_) continue;
      const int32_t update = add_update(group, unit, holder, work_with_shards(shard_bytes, sums[h]));
      add_order(reduce_scatter, update);
      add_order(update, all_gather);
      Task copy{make_task_key(TaskKind::parameter_copy, group, unit.number, holder), TaskKind::parameter_copy};
      copy.unit = static_cast<int32_t>(result_.units.size());
      copy.device = holder;
      copy.copy_bytes = unit.bytes;
      add_order(all_gather, add(copy));
    }
  }

  // ---- owners ----

  // Of each device with parts here, behind all of these.
  void add_barriers() {
    for (OperatorId op : graph_.operator_ids())
      for (const int32_t part : result_.parts[op]) {
        const DeviceId device = strategy_[op].devices[part];
        const auto [barrier, added] = barriers_.try_emplace(device, static_cast<int32_t>(result_.tasks.size()));
        if (added) {
          Task task{make_task_key(TaskKind::barrier, 0, device, 0), TaskKind::barrier};
          task.device = device;
          add(task);
        }
        add_order(last(graph_.operators[op].has_backward ? Direction::backward : Direction::forward, op, part),
                  barrier->second);
      }
  }

  // -1: it is not here.
  int32_t barrier_of(DeviceId device) const {
    const auto found = barriers_.find(device);
    return found == barriers_.end() ? -1 : found->second;
  }

  // The owner's update waits for its own gradients and those of the other holders, whose updates wait for its values.
  void connect_to_owner(int group, const SynchronizationUnit& unit) {
    const Vector<int64_t> sums = own_sums(unit);
    const auto work = [&](int h) {
      return work_of_holder(unit.holders[h], unit.owner, unit.holders.count(), unit.bytes, sums[h]);
    };
    int32_t owners_update = -1;
    for (int h : unit.holders.indices())
      if (unit.holders[h] == unit.owner && (whole() || unit.owner == device_)) {
        owners_update = add_update(group, unit, unit.owner, work(h));
        add_order(barrier_of(unit.owner), owners_update);
      }
    for (int h : unit.holders.indices()) {
      const DeviceId holder = unit.holders[h];
      if (holder == unit.owner || (!whole() && device_ != holder && device_ != unit.owner)) continue;
      const int32_t barrier = barrier_of(holder);
      if (barrier >= 0) task(barrier).copy_bytes += work(h).packed;
      transfer_parameters(TaskKind::parameter_gradient, group, unit, {holder, barrier}, {unit.owner, owners_update});
      const int32_t update = barrier >= 0 ? add_update(group, unit, holder, work(h)) : -1;
      transfer_parameters(TaskKind::parameter_values, group, unit, {unit.owner, owners_update}, {holder, update});
    }
  }

  void transfer_parameters(TaskKind kind, int group, const SynchronizationUnit& unit, End source, End destination) {
    const DeviceId other = kind == TaskKind::parameter_gradient ? source.device : destination.device;
    Task transfer{make_task_key(kind, group, unit.number, other), kind};
    transfer.unit = static_cast<int32_t>(result_.units.size());
    transfer.device = source.device;
    transfer.destination = destination.device;
    transfer.bytes = unit.bytes;
    const int32_t index = add(transfer);
    if (source.task >= 0) add_order(source.task, index);
    if (destination.task >= 0) add_order(index, destination.task);
  }

  void link_successors() {
    const size_t count = result_.tasks.size();
    result_.successor_begin.assign(count + 1, 0);
    result_.predecessor_count.assign(count, 0);
    for (const auto& [before, after] : order_) {
      ++result_.successor_begin[before + 1];
      ++result_.predecessor_count[after];
    }
    for (size_t t = 0; t < count; ++t) result_.successor_begin[t + 1] += result_.successor_begin[t];
    result_.successors.resize(order_.size());
    Vector<int32_t> next(result_.successor_begin.begin(), result_.successor_begin.end() - 1);
    for (const auto& [before, after] : order_) result_.successors[next[before]++] = after;
  }

  TaskGraphBuilder& builder_;
  const Graph& graph_;
  const Strategy& strategy_;
  const DeviceId device_;
  TaskGraph result_;
  EdgeCollectives edge_collectives_;
  HeldUnits held_units_;
  // [operator]: index of the first part's first and last task of the direction, which are one but for operators with
  // statistics; -1 where there is none.
  PerDirection<Vector<int32_t>> first_, last_;
  std::map<TensorId, Vector<GradientSum>> gradients_;  // [place of the part]
  std::map<DeviceId, int32_t> barriers_;               // where parameters have owners
  Vector<std::pair<int32_t, int32_t>> order_;          // (before, after)
};

}  // namespace

TaskGraph TaskGraphBuilder::build(const Strategy& strategy) { return Assembly(*this, strategy, all_devices).build(); }

TaskGraph TaskGraphBuilder::build(const Strategy& strategy, DeviceId device) {
  return Assembly(*this, strategy, device).build();
}

}  // namespace ff
