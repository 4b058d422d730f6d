// Derives a task graph: of all devices, or of some.
#include <map>

#include "common/task_graph/assembly/draft.h"
#include "common/task_graph/assembly/recomputation.h"
#include "common/task_graph/assembly/shard_rounds.h"
#include "common/task_graph/assembly/units.h"
#include "common/task_graph/edge_copies.h"
#include "common/task_graph/held_units.h"
#include "common/task_graph/late_reductions.h"
#include "common/task_graph/own_edges.h"
#include "common/task_graph/task_graph.h"

namespace ff {
namespace assembly {
namespace {

class Assembly {
 public:
  Assembly(TaskGraphBuilder& builder, const Strategy& strategy, const Vector<DeviceId>& devices)
      : draft_(builder, strategy, devices), builder_(builder), graph_(builder.graph()), strategy_(strategy),
        edge_collectives_(graph_, strategy, builder.alike(), builder.least_collective_size()),
        held_units_(graph_, strategy, builder.synchronization(), builder.alike(), draft_.result.parts,
                    builder.replicas()),
        recomputation_(draft_), shard_rounds_(draft_, recomputation_) {}

  TaskGraph build() {
    for (OperatorId op : graph_.operator_ids())
      for (Direction direction : directions) add_compute_tasks(op, direction);
    for (int edge : builder_.edges().indices()) add_edge(edge);
    for (OperatorId op : graph_.operator_ids()) add_gradient_sums(op);
    if (builder_.recomputes()) recomputation_.add();
    if (has_owners()) add_barriers();
    for (int group : builder_.groups().indices())
      if (builder_.groups()[group].trained) add_units(group);
    shard_rounds_.limit_in_flight();
    return draft_.finish();
  }

 private:
  bool has_owners() const { return builder_.synchronization() == Synchronization::parameter_server; }

  // ---- operators ----

  void add_compute_tasks(OperatorId op, Direction direction) {
    const bool backward = direction == Direction::backward;
    if (backward && !graph_.operators[op].has_backward) return draft_.set_parts(direction, -1, -1);
    const bool statistics = graph_.operators[op].definition->has_statistics(strategy_[op].degrees, backward);
    const int32_t first = statistics ? draft_.add_parts(op, statistics_kind(direction)) : -1;
    const int32_t last = draft_.add_parts(op, compute_kind(direction));
    draft_.set_parts(direction, statistics ? first : last, last);
    if (statistics) add_reductions(op, direction);
    if (backward)
      for (const int32_t part : draft_.result.parts[op])
        draft_.add_order(draft_.last(Direction::forward, op, part), draft_.first(Direction::backward, op, part));
  }

  void add_reductions(OperatorId op, Direction direction) {
    const OperatorDefinition& definition = *graph_.operators[op].definition;
    if (!draft_.whole()) {
      for (OwnReduction& own : statistics_reductions(definition, strategy_[op], draft_.result.parts[op], direction))
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
    task.reduction = static_cast<int32_t>(draft_.result.reductions.size());
    task.bytes = reduction.bytes;
    draft_.connect(reduction_join(direction, op, reduction.parts), draft_.add(task));
    draft_.result.reductions.push_back(std::move(reduction));
  }

  // ---- edges ----

  void add_edge(int e) {
    const Edge& edge = builder_.edges()[e];
    const EdgeParts own{draft_.result.parts[edge.producer], draft_.result.parts[edge.consumer]};
    if (draft_.whole()) {
      if (Vector<Collective> found = builder_.collectives(e, strategy_); !found.empty())
        return add_collectives(
            e, builder_.exchanges(e, strategy_[edge.producer].degrees, strategy_[edge.consumer].degrees), found);
      draft_.result.pairs[e] = builder_.pairs(e, strategy_);
    } else {
      const bool any = !own.producers.empty() || !own.consumers.empty();
      if (any && may_have_collectives(graph_, edge, strategy_, own, builder_.least_collective_size()))
        if (const EdgeCollectives::Found& found = edge_collectives_.of(edge); !found.collectives.empty())
          return add_collectives(e, found.exchanges, found.collectives);
      draft_.result.pairs[e] = any ? own_pairs(e, own) : std::make_shared<const BlockPairs>();
    }
    add_pairs(e);
  }

  // Those of similar layers are found once.
  std::shared_ptr<const BlockPairs> own_pairs(int e, const EdgeParts& own) {
    const Edge& edge = builder_.edges()[e];
    Vector<int>& known = with_pairs_[builder_.first_alike(e)];
    for (const int other : known)
      if (strategy_[builder_.edges()[other].producer] == strategy_[edge.producer] &&
          strategy_[builder_.edges()[other].consumer] == strategy_[edge.consumer])
        return draft_.result.pairs[other];
    known.push_back(e);
    return std::make_shared<const BlockPairs>(pairs_of_parts(graph_, edge, strategy_, own));
  }

  void add_pairs(int e) {
    const Edge& edge = builder_.edges()[e];
    const bool gradient = has_gradient(graph_, edge);
    Copies copies{*this, edge};
    for (const BlockPair& pair : *draft_.result.pairs[e]) {
      connect(Direction::forward, e, pair);
      if (gradient) connect(Direction::backward, e, pair);
      count_copies(pair, device_of(edge.producer, pair.producer_part) == device_of(edge.consumer, pair.consumer_part),
                   gradient, copies);
    }
  }

  DeviceId device_of(OperatorId op, int32_t part) const { return strategy_[op].devices[part]; }

  // The way of one block: an ordering edge on one device, a transfer between two.
  void connect(Direction direction, int e, const BlockPair& pair) {
    const Edge& edge = builder_.edges()[e];
    const OperatorId sender = sender_of(edge, direction), receiver = receiver_of(edge, direction);
    const int32_t from = sender_of(pair, direction), to = receiver_of(pair, direction);
    const int32_t sends = draft_.last(direction, sender, from), receives = draft_.first(direction, receiver, to);
    const DeviceId source = device_of(sender, from), destination = device_of(receiver, to);
    if (source == destination) return draft_.add_order(sends, receives);
    const TaskKind kind = transfer_kind(direction);
    Task transfer{make_task_key(kind, e, pair.consumer_part, pair.producer_part), kind};
    transfer.edge = e;
    transfer.device = source;
    transfer.destination = destination;
    transfer.pair = &pair;
    transfer.bytes = pair.bytes;
    const int32_t index = draft_.add(transfer);
    draft_.add_order(sends, index);
    draft_.add_order(index, receives);
  }

  void add_collectives(int e, const std::shared_ptr<const EdgeExchanges>& exchanges,
                       const Vector<Collective>& collectives) {
    const Edge& edge = builder_.edges()[e];
    const bool gradient = has_gradient(graph_, edge);
    Copies copies{*this, edge};
    for (int number : collectives.indices()) {
      const Vector<DeviceId>& holders = collectives[number].holders;
      if (!draft_.any_here(holders)) continue;
      copies.exchanged = collectives[number].kind == CollectiveKind::all_to_all;
      count_copies(*exchanges, exchanges->exchanges[number], collectives[number].kind, gradient, copies);
      EdgeCollective moved{e, number, collectives[number], exchanges};
      add_collective(moved, Direction::forward);
      if (gradient) add_collective(moved, Direction::backward);
      draft_.result.collectives.push_back(std::move(moved));
    }
  }

  void add_collective(const EdgeCollective& moved, Direction direction) {
    const TaskKind kind = collective_kind(direction);
    Task task{make_task_key(kind, moved.edge, moved.number, 0), kind};
    task.edge = moved.edge;
    task.part = moved.number;
    task.collective = static_cast<int32_t>(draft_.result.collectives.size());
    task.bytes = moved.collective.bytes;
    draft_.connect(exchange_join(direction, builder_.edges()[moved.edge], moved.exchange()), draft_.add(task));
  }

  // Adds what an edge makes the tasks here copy (edge_copies.h).
  struct Copies {
    Assembly& assembly;
    const Edge& edge;
    bool exchanged = false;  // by an all-to-all
    void add(int32_t task, int64_t bytes) {
      if (task < 0) return;
      assembly.draft_.task(task).copy_bytes += bytes;
      if (exchanged) assembly.draft_.task(task).exchange_copy_bytes += bytes;
    }
    void assembled(int32_t part, int64_t bytes) {
      add(assembly.draft_.first(Direction::forward, edge.consumer, part), bytes);
    }
    void packed(int32_t part, int64_t bytes) {
      add(assembly.draft_.last(Direction::forward, edge.producer, part), bytes);
    }
    void packed_gradient(int32_t part, int64_t bytes) {
      add(assembly.draft_.last(Direction::backward, edge.consumer, part), bytes);
    }
    void contributes(int32_t part, int64_t bytes, BlockUse use) {
      const int place = assembly.draft_.result.place_of(edge.producer, part);
      if (place < 0) return;
      Vector<GradientSum>& sums = assembly.gradients_[edge.tensor];
      sums.resize(assembly.draft_.result.parts[edge.producer].size());
      sums[place].add(bytes, use);
      sums[place].exchanged = exchanged;
    }
  };

  void add_gradient_sums(OperatorId op) {
    for (TensorId tensor : graph_.operators[op].outputs)
      if (const auto found = gradients_.find(tensor); found != gradients_.end())
        for (int place : found->second.indices()) {
          const GradientSum& sum = found->second[place];
          Task& task = draft_.task(draft_.first(Direction::backward, op, draft_.result.parts[op][place]));
          task.copy_bytes += sum.copied_bytes();
          if (sum.count == 1 && sum.exchanged) task.exchange_copy_bytes += sum.copied_bytes();
        }
  }

  // ---- parameters ----

  // Of each device with parts here, after all of these.
  void add_barriers() {
    for (OperatorId op : graph_.operator_ids())
      for (const int32_t part : draft_.result.parts[op]) {
        const DeviceId device = device_of(op, part);
        const auto [barrier, added] = barriers_.try_emplace(device, static_cast<int32_t>(draft_.result.tasks.size()));
        if (added) {
          Task task{make_task_key(TaskKind::barrier, 0, device, 0), TaskKind::barrier};
          task.device = device;
          draft_.add(task);
        }
        draft_.add_order(draft_.very_last(op, part), barrier->second);
      }
  }

  void add_units(int group) {
    const ShardRounds rounds = shard_rounds(builder_, group);
    if (!draft_.whole()) {
      HeldUnits::Found held = held_units_.of(group, builder_.groups()[group]);
      draft_.result.kept.push_back(held.pieces);
      for (SynchronizationUnit& unit : held.units) add_unit(std::move(unit), rounds);
      return;
    }
    const auto pieces = builder_.pieces(group, strategy_);
    draft_.result.kept.push_back(pieces);
    for (SynchronizationUnit& unit :
         synchronization_units(group, *pieces, strategy_, builder_.synchronization(group), builder_.replicas()))
      add_unit(std::move(unit), rounds);
  }

  void add_unit(SynchronizationUnit unit, const ShardRounds& rounds) {
    UnitDraft draft(draft_, unit);
    const bool shards = unit.holder_count() > 1 && is_sharded(builder_.synchronization(unit.group));
    if (has_owners()) add_owned(draft);
    else if (!shards) add_all_reduced(draft);
    else if (rounds.gradients) shard_rounds_.add(draft, rounds);
    else add_with_sharded_state(draft);
    draft_.result.units.push_back(std::move(unit));
  }

  HolderWork work_of(const SynchronizationUnit& unit, int place, const Vector<int64_t>& sums) const {
    const int64_t holders = has_owners() ? unit.holders.count() : unit.holder_count();
    return work_of_holder(unit.holders[place], unit.owner, holders, unit.bytes, sums[place]);
  }

  void add_all_reduced(UnitDraft& draft) {
    const SynchronizationUnit& unit = draft.unit;
    if (unit.holder_count() > 1) draft.add_collective(TaskKind::synchronization);
    const Vector<int64_t> sums = draft.own_sums();
    for (int place : unit.holders.indices())
      if (draft_.is_here(unit.holders[place])) draft.add_update(place, work_of(unit, place, sums));
    draft.link_contributors();
    draft.link(AfterUpdate::nothing);
  }

  void add_with_sharded_state(UnitDraft& draft) {
    draft.add_collective(TaskKind::synchronization);
    draft.add_collective(TaskKind::parameter_all_gather);
    draft.add_shard_updates(/*rounds=*/1, /*sends=*/true);
    for (int place : draft.unit.holders.indices())
      if (draft_.is_here(draft.unit.holders[place])) draft.add_copy(place);
    draft.link_contributors();
    draft.link(AfterUpdate::gather_and_copy);
  }

  void add_owned(UnitDraft& draft) {
    const SynchronizationUnit& unit = draft.unit;
    const Vector<int64_t> sums = draft.own_sums();
    const int32_t owner = place_of(unit, unit.owner);
    if (draft_.is_here(unit.owner)) draft.add_update(owner, work_of(unit, owner, sums));
    for (int place : unit.holders.indices()) {
      const bool is_here = draft_.is_here(unit.holders[place]);
      if (place == owner || (!is_here && !draft_.is_here(unit.owner))) continue;
      const HolderWork work = work_of(unit, place, sums);
      if (is_here) draft_.task(barriers_.at(unit.holders[place])).copy_bytes += work.packed;
      draft.add_transfer(TaskKind::parameter_gradient, place);
      if (is_here) draft.add_update(place, work);
      draft.add_transfer(TaskKind::parameter_values, place);
    }
    draft.link_barriers(barriers_);
    draft.link(AfterUpdate::owner_sends);
  }

  Draft draft_;
  TaskGraphBuilder& builder_;
  const Graph& graph_;
  const Strategy& strategy_;
  EdgeCollectives edge_collectives_;
  HeldUnits held_units_;
  Recomputation recomputation_;
  ShardRoundsDraft shard_rounds_;
  std::map<int, Vector<int>> with_pairs_;              // edges of some devices, by the first of all that are alike
  std::map<TensorId, Vector<GradientSum>> gradients_;  // [place of the part]
  std::map<DeviceId, int32_t> barriers_;               // where parameters have owners
};

}  // namespace
}  // namespace assembly

TaskGraph TaskGraphBuilder::build(const Strategy& strategy) { return build(strategy, Vector<DeviceId>()); }

TaskGraph TaskGraphBuilder::build(const Strategy& strategy, const Vector<DeviceId>& devices) {
  TaskGraph tasks = assembly::Assembly(*this, strategy, devices).build();
  if (!overlaps_reductions_) reduce_after_backward(tasks, *this, strategy);
  return tasks;
}

}  // namespace ff
