// Derives a task graph: of all devices, or of one.
#include <map>

#include "common/errors.h"
#include "common/micro_batches.h"
#include "common/task_graph/edge_copies.h"
#include "common/task_graph/held_units.h"
#include "common/task_graph/own_edges.h"
#include "common/task_graph/recomputed_edges.h"
#include "common/task_graph/sharded_units.h"
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
    if (!sharded_.empty()) limit_shards_in_flight();
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
    recomputed_.assign(graph_.operators.size(), -1);
    for (OperatorId op : graph_.operator_ids())
      if (builder_.recomputed(op)) recomputed_[op] = add_parts(op, TaskKind::recompute);
    Segments segments(begin, static_cast<int32_t>(result_.tasks.size()));
    for (int e : builder_.edges().indices()) {
      const Edge& edge = builder_.edges()[e];
      if (recomputed_[edge.producer] < 0 || recomputed_[edge.consumer] < 0 || !result_.pairs[e]) continue;
      for (const BlockPair& pair : *result_.pairs[e]) {
        const int32_t producer = recomputed(edge.producer, pair.producer_part),
                      consumer = recomputed(edge.consumer, pair.consumer_part);
        if (producer < 0 || consumer < 0 || !recomputed_in_place(builder_, strategy_, e, pair)) continue;
        add_order(producer, consumer);
        segments.join(producer, consumer);
      }
    }
    start_segments(begin, segments);
  }

  // The task that recomputes a part; -1: it is not here, or not recomputed.
  int32_t recomputed(OperatorId op, int32_t part) const {
    const int place = result_.place_of(op, part);
    return recomputed_.empty() || recomputed_[op] < 0 || place < 0 ? -1 : recomputed_[op] + place;
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

  // A segment begins when the gradient of its last operator's outputs is there. No operator after that one belongs to
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
      this->task(task).before_op = this->task(tasks[0]).op;
      this->task(task).before_part = this->task(tasks[0]).part;
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
    rounds_ = shard_rounds(builder_, group);
    if (!whole()) {
      HeldUnits::Found held = held_units_.of(group, builder_.groups()[group]);
      result_.kept.push_back(held.pieces);
      for (SynchronizationUnit& unit : held.units) add_unit(group, std::move(unit));
      return;
    }
    const auto pieces = builder_.pieces(group, strategy_);
    result_.kept.push_back(pieces);
    for (SynchronizationUnit& unit :
         synchronization_units(group, *pieces, strategy_, builder_.synchronization(), builder_.replicas()))
      add_unit(group, std::move(unit));
  }

  void add_unit(int group, SynchronizationUnit unit) {
    const bool several = unit.holder_count() > 1;
    if (several && !is_sharded(builder_.synchronization()))
      result_.synchronization_bytes += 2 * (unit.holder_count() - 1) * unit.bytes;
    if (has_owners()) connect_to_owner(group, unit);
    else if (several && rounds_.gradients) shard_in_rounds(group, unit);
    else if (several && is_sharded(builder_.synchronization())) shard_state(group, unit);
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

  // Of the unit that is being added; the `round`th of so many.
  int32_t add_collective(TaskKind kind, int group, const SynchronizationUnit& unit, int round = 0, int rounds = 1) {
    const int64_t number = int64_t{unit.number} * rounds + round;
    if (number >= 1 << 20)
      throw InputError("parameter group \"" + builder_.groups()[group].name +
                       "\": its pieces times micro-batches are " + std::to_string(number) +
                       " and more, but a task graph numbers 1048576 at most");
    Task task{make_task_key(kind, group, number, 0), kind};
    task.unit = static_cast<int32_t>(result_.units.size());
    task.round = round;
    task.bytes = unit.bytes;
    if (is_sharded(builder_.synchronization())) result_.synchronization_bytes += (unit.holder_count() - 1) * unit.bytes;
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
    if (unit.holder_count() > 1) {
      const int32_t collective = add_collective(TaskKind::synchronization, group, unit);
      for (int32_t contributor : before) add_order(contributor, collective);
      before = {collective};
    }
    const Vector<int64_t> sums = own_sums(unit);
    for (int h : unit.holders.indices()) {
      const DeviceId holder = unit.holders[h];
      if (!whole() && holder != device_) continue;
      const int32_t update =
          add_update(group, unit, holder, work_of_holder(holder, no_owner, unit.holder_count(), unit.bytes, sums[h]));
      for (int32_t earlier : before) add_order(earlier, update);
    }
  }

  // ---- shards ----

  // On the holders that are here, of their shards, after the last reduce-scatter.
  Vector<int32_t> add_updates(int group, const SynchronizationUnit& unit, int32_t reduce_scatter, bool sends) {
    const Vector<int64_t> sums = own_sums(unit);
    const int64_t shard_bytes = element_bytes * shard_elements(packed(unit).elements, unit.holder_count());
    Vector<int32_t> updates;
    for (int h : unit.holders.indices()) {
      if (!whole() && unit.holders[h] != device_) continue;
      const HolderWork work = work_with_shards(shard_bytes, sums[h], rounds_.rounds, sends);
      updates.push_back(add_update(group, unit, unit.holders[h], work));
      add_order(reduce_scatter, updates.back());
    }
    return updates;
  }

  void shard_state(int group, const SynchronizationUnit& unit) {
    const int32_t reduce_scatter = add_collective(TaskKind::synchronization, group, unit);
    for (int32_t contributor : contributions(unit)) add_order(contributor, reduce_scatter);
    const int32_t all_gather = add_collective(TaskKind::parameter_all_gather, group, unit);
    for (const int32_t update : add_updates(group, unit, reduce_scatter, /*sends=*/true)) {
      add_order(update, all_gather);
      const DeviceId holder = task(update).device;
      Task copy{make_task_key(TaskKind::parameter_copy, group, unit.number, holder), TaskKind::parameter_copy};
      copy.unit = static_cast<int32_t>(result_.units.size());
      copy.device = holder;
      copy.copy_bytes = unit.bytes;
      add_order(all_gather, add(copy));
    }
  }

  // sharded_units.h
  struct ShardedUnit {
    int32_t unit;  // index into TaskGraph::units
    ShardRounds rounds;
    OperatorId op;               // the group's
    OperatorId begin;            // where its weights are first needed again
    Vector<int32_t> reductions;  // by round
    Vector<int32_t> gatherings;  // by ShardRounds::gathering; empty: weights are not sharded
  };

  void shard_in_rounds(int group, const SynchronizationUnit& unit) {
    const OperatorId op = builder_.groups()[group].operators[0];
    ShardedUnit sharded{static_cast<int32_t>(result_.units.size()), rounds_, op, last_recomputed_with(op), {}, {}};
    for (int round = 0; round < rounds_.rounds; ++round) {
      sharded.reductions.push_back(add_collective(TaskKind::synchronization, group, unit, round, rounds_.rounds));
      if (round > 0) add_order(sharded.reductions[round - 1], sharded.reductions[round]);
    }
    for (const auto& [user, part] : contributors_of(unit))
      if (const int32_t contributor = last(Direction::backward, op, part); contributor >= 0)
        add_order(contributor, sharded.reductions[rounds_.round_of(micro_batch(op, part))]);
    const Vector<int32_t> updates = add_updates(group, unit, sharded.reductions.back(), !rounds_.parameters);
    if (rounds_.parameters) {
      for (int round = 0; round < rounds_.rounds; ++round)
        for (Direction direction : directions) {
          sharded.gatherings.push_back(add_collective(TaskKind::parameter_all_gather, group, unit,
                                                      ShardRounds::gathering(round, direction), 2 * rounds_.rounds));
          Task& gathering = task(sharded.gatherings.back());
          gathering.before_op = direction == Direction::forward ? op : sharded.begin;
          gathering.before_part = first_part(gathering.before_op, rounds_.micro_batch(round, direction));
        }
    } else {
      const int32_t all_gather = add_collective(TaskKind::parameter_all_gather, group, unit);
      for (const int32_t update : updates) add_order(update, all_gather);
    }
    sharded_.push_back(std::move(sharded));
  }

  // The first part of an operator in a micro-batch, on whatever device.
  int32_t first_part(OperatorId op, int micro_batch) const {
    if (!has_micro_batches(*graph_.operators[op].definition)) return 0;
    return static_cast<int32_t>(strategy_[op].parts() / builder_.micro_batches() * micro_batch);
  }

  // The last operator that is recomputed together with this one on any device; itself, where it is not recomputed.
  OperatorId last_recomputed_with(OperatorId op) {
    if (!builder_.recomputed(op)) return op;
    if (last_recomputed_with_.empty()) {
      const OperatorId count = graph_.operators.count();
      Segments segments(0, count);
      for (const Edge& edge : builder_.edges())
        if (builder_.recomputed(edge.producer) && builder_.recomputed(edge.consumer))
          segments.join(edge.producer, edge.consumer);
      Vector<OperatorId> last(count, 0);
      for (OperatorId one : graph_.operator_ids()) last[segments.first_of(one)] = one;
      for (OperatorId one : graph_.operator_ids()) last_recomputed_with_.push_back(last[segments.first_of(one)]);
    }
    return last_recomputed_with_[op];
  }

  int micro_batch(OperatorId op, int32_t part) const { return micro_batch_of_part(builder_, strategy_, op, part); }

  // A sharded unit as one of its holders sees it.
  struct HeldShard {
    DeviceId device;
    const ShardedUnit* of;
    Vector<int32_t> parts;  // of its operator on this device
  };

  void limit_shards_in_flight() {
    std::map<DeviceId, Vector<HeldShard>> held;
    for (const ShardedUnit& one : sharded_) {
      for (const DeviceId holder : result_.units[one.unit].holders)
        if (whole() || holder == device_) held[holder].push_back({holder, &one, {}});
      for (const auto& [op, part] : contributors_of(result_.units[one.unit]))
        if (const DeviceId device = strategy_[op].devices[part]; whole() || device == device_)
          held[device].back().parts.push_back(part);
    }
    for (auto& [device, shards] : held) {
      std::stable_sort(shards.begin(), shards.end(),
                       [](const HeldShard& a, const HeldShard& b) { return a.of->op < b.of->op; });
      for (const HeldShard& shard : shards) {
        const HeldShard* in_front = in_front_of(shards, shard.of->op);
        if (in_front) limit_gradients(shard, *in_front);
        if (shard.of->gatherings.empty()) continue;
        const HeldShard* behind = behind_of(shards, shard.of->begin);
        for (int round = 0; round < shard.of->rounds.rounds; ++round) {
          gather_for_forward(shard, round, in_front);
          gather_for_backward(shard, round, behind);
        }
      }
    }
  }

  // The unit so far in front of an operator, or after it; null: there is none.
  static const HeldShard* in_front_of(const Vector<HeldShard>& shards, OperatorId op) {
    const auto end =
        std::partition_point(shards.begin(), shards.end(), [&](const HeldShard& one) { return one.of->op < op; });
    return end - shards.begin() < shards_in_flight ? nullptr : &*(end - shards_in_flight);
  }
  static const HeldShard* behind_of(const Vector<HeldShard>& shards, OperatorId op) {
    const auto begin =
        std::partition_point(shards.begin(), shards.end(), [&](const HeldShard& one) { return one.of->op <= op; });
    return shards.end() - begin < shards_in_flight ? nullptr : &*(begin + shards_in_flight - 1);
  }

  // Calls visit(part) for the parts of the unit's operator on the device in the micro-batch.
  template <class Visit>
  void for_each_part(const HeldShard& shard, int in, const Visit& visit) const {
    for (const int32_t part : shard.parts)
      if (const int of_part = micro_batch(shard.of->op, part); of_part < 0 || of_part == in) visit(part);
  }

  void limit_gradients(const HeldShard& shard, const HeldShard& later) {
    for (const int round : shard.of->reductions.indices())
      for_each_part(later, shard.of->rounds.micro_batch(round, Direction::backward), [&](int32_t part) {
        add_order(shard.of->reductions[round], first(Direction::backward, later.of->op, part));
      });
  }

  // `before`: what must have run; null: nothing.
  void gather_for_forward(const HeldShard& shard, int round, const HeldShard* before) {
    const int in = shard.of->rounds.micro_batch(round, Direction::forward);
    const int32_t gathering = shard.of->gatherings[ShardRounds::gathering(round, Direction::forward)];
    if (before)
      for_each_part(*before, in,
                    [&](int32_t part) { add_order(last(Direction::forward, before->of->op, part), gathering); });
    for (const int32_t part : shard.parts) {
      const int of_part = shard.of->rounds.round_of(micro_batch(shard.of->op, part));
      if (of_part == round) add_order(gathering, first(Direction::forward, shard.of->op, part));
      if (of_part == round - 1) add_order(first(Direction::forward, shard.of->op, part), gathering);
    }
  }

  void gather_for_backward(const HeldShard& shard, int round, const HeldShard* before) {
    const int in = shard.of->rounds.micro_batch(round, Direction::backward);
    const int32_t gathering = shard.of->gatherings[ShardRounds::gathering(round, Direction::backward)];
    if (before)
      for_each_part(*before, in,
                    [&](int32_t part) { add_order(last(Direction::backward, before->of->op, part), gathering); });
    if (round > 0)
      for (const int32_t part : result_.parts[shard.of->begin])
        if (strategy_[shard.of->begin].devices[part] == shard.device && micro_batch(shard.of->begin, part) == in - 1)
          add_order(first(Direction::backward, shard.of->begin, part), gathering);
    for (const int32_t part : shard.parts) {
      const OperatorId op = shard.of->op;
      if (shard.of->rounds.round_of(micro_batch(op, part)) != round) continue;
      if (!before) add_order(last(Direction::forward, op, part), gathering);
      if (const int32_t again = recomputed(op, part); again >= 0) add_order(gathering, again);
      add_order(gathering, first(Direction::backward, op, part));
    }
  }

  // ---- owners ----

  // Of each device with parts here, after all of these.
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
  Vector<OperatorId> last_recomputed_with_;            // [operator]; empty: not asked for
  Vector<int32_t> recomputed_;            // [operator]: index of the first part's task; -1: none; empty: none at all
  std::map<DeviceId, int32_t> barriers_;  // where parameters have owners
  ShardRounds rounds_;                    // of the group whose units are being added
  Vector<ShardedUnit> sharded_;           // in rounds
  Vector<std::pair<int32_t, int32_t>> order_;  // (before, after)
};

}  // namespace

TaskGraph TaskGraphBuilder::build(const Strategy& strategy) { return Assembly(*this, strategy, all_devices).build(); }

TaskGraph TaskGraphBuilder::build(const Strategy& strategy, DeviceId device) {
  return Assembly(*this, strategy, device).build();
}

}  // namespace ff
