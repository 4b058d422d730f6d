#include "search/simulator/delta.h"

#include <algorithm>
#include <cassert>
#include <limits>

#include "search/simulator/delta/bounds/configuration_bound.h"
#include "search/simulator/delta/strategy_state.h"
#include "search/simulator/delta/known_timeline.h"

namespace ff {

using namespace delta;

namespace {

constexpr Nanoseconds unlimited = std::numeric_limits<Nanoseconds>::max();
constexpr size_t before_all = 0;  // position of the first event
constexpr size_t never = std::numeric_limits<size_t>::max();

}  // namespace

class DeltaSimulator::State {
 public:
  State(TaskGraphBuilder& builder, const Topology& topology, TaskCostModel& costs)
      : state_(builder, topology, costs), bound_(state_), device_count_(static_cast<int>(topology.devices.size())),
        resource_count_(topology.devices.size() + topology.channels.size()), is_touched_(state_.operators.size(), 0),
        is_proposed_(state_.operators.size(), 0), is_proposed_group_(state_.groups.size(), 0),
        first_position_(state_.operators.size()) {}

  void reset(const Strategy& strategy) {
    state_.reset(strategy);
    lay_out_slots();
    record_from(before_all, false);
  }

  std::optional<Nanoseconds> propose(const Vector<Change>& changes, Nanoseconds limit) {
    ++statistics.proposals;
    changed_ = false;
    if (limit != unlimited && changes.size() == 1) {
      const auto& [op, configuration] = changes[0];
      if (bound_.exceeds(op, configuration, known_before(op), limit)) {
        ++statistics.rejected_before_simulation;
        return std::nullopt;
      }
    }
    set_proposed(changes);
    changed_ = true;
    restarted_from_ = 1;  // nothing is simulated yet
    state_.change(changes);
    if (work_exceeds(limit)) {
      ++statistics.rejected_before_simulation;
      return std::nullopt;
    }
    restart();
    if (!run<false>(limit)) {
      ++statistics.rejected_during_simulation;
      return std::nullopt;
    }
    return makespan_;
  }

  void accept() {
    assert(changed_);
    changed_ = false;
    // the snapshots before hold: the change touches nothing that has happened or begun by then
    record_from(restarted_from_, true);
    if (state_.keep()) recount_done();
  }

  void reject() {
    if (!changed_) return;
    changed_ = false;
    state_.undo();
    if (restarted_from_ == before_all) initial_of_current_.swap(initial_);
  }

  const Strategy& strategy() const { return state_.strategy; }
  Nanoseconds makespan = 0;  // of the current strategy
  Vector<Record> records;
  DeltaStatistics statistics;

 private:
  // ---- slots ----

  // For the proposed strategy and, since capacities never shrink, for the current one too.
  void lay_out_slots() {
    int32_t next = 0;
    const size_t operators = state_.operators.size(), groups = state_.groups.size();
    for (auto* slots :
         {&forward_slot_, &backward_slot_, &forward_reduction_slot_, &backward_reduction_slot_, &capacity_})
      slots->resize(operators);
    unit_slot_.resize(groups);
    unit_capacity_.resize(groups);
    for (size_t op = 0; op < operators; ++op) {
      capacity_[op] = std::max({capacity_[op], device_count_, state_.operators[op].parts()});
      for (auto* slots : {&forward_slot_, &backward_slot_}) {
        (*slots)[op] = next;
        next += capacity_[op];
      }
      if (!state_.has_statistics[op]) continue;
      for (auto* slots : {&forward_reduction_slot_, &backward_reduction_slot_}) {
        (*slots)[op] = next;
        next += capacity_[op];
      }
    }
    for (size_t g = 0; g < groups; ++g) {
      unit_slot_[g] = next;
      unit_capacity_[g] =
          std::max({unit_capacity_[g], 2 * device_count_, 2 * static_cast<int32_t>(state_.groups[g].units.size())});
      next += unit_capacity_[g];
    }
    slots_.assign(next, {});
    epoch_ = 1;
    partial_.clear();
    partial_at_.assign(next, 0);
    snapshot_at_.assign(next, -1);
    ended_at_.assign(next, 0);
    position_.assign(next, never);
    std::fill(first_position_.begin(), first_position_.end(), before_all);  // nothing is known of the timeline any more
    snapshot_count_ = 0;
  }

  bool fits_slots(OperatorId op) const {
    if (state_.operators[op].parts() > capacity_[op]) return false;
    for (const auto& [g, position] : state_.groups_of[op])
      if (static_cast<int32_t>(state_.groups[g].units.size()) > unit_capacity_[g]) return false;
    return true;
  }

  int32_t slot_of(Waiting waiting) const {
    switch (waiting.kind) {
      case Waiting::Kind::forward: return forward_slot_[waiting.which] + waiting.part;
      case Waiting::Kind::backward: return backward_slot_[waiting.which] + waiting.part;
      case Waiting::Kind::forward_reduction: return forward_reduction_slot_[waiting.which] + waiting.part;
      case Waiting::Kind::backward_reduction: return backward_reduction_slot_[waiting.which] + waiting.part;
      case Waiting::Kind::unit: return unit_slot_[waiting.which] + waiting.part;
    }
    return 0;
  }

  // Of a compute task or reduction that has one, else -1.
  int32_t slot_of(const Event& event) const {
    const int what = subject_of(event.key), part = part_of(event.key);
    switch (kind_of(event.key)) {
      case TaskKind::forward: return forward_slot_[what] + part;
      case TaskKind::backward: return backward_slot_[what] + part;
      case TaskKind::forward_reduction: return forward_reduction_slot_[what] + part;
      case TaskKind::backward_reduction: return backward_reduction_slot_[what] + part;
      default: return -1;
    }
  }

  int32_t predecessors_of(Waiting waiting) const {
    switch (waiting.kind) {
      case Waiting::Kind::forward: return state_.tasks[waiting.which].parts[waiting.part].forward_waits;
      case Waiting::Kind::backward: return state_.tasks[waiting.which].parts[waiting.part].backward_waits;
      case Waiting::Kind::forward_reduction:
      case Waiting::Kind::backward_reduction:
        return static_cast<int32_t>(state_.operators[waiting.which].reductions[waiting.part].parts.size());
      case Waiting::Kind::unit: return state_.groups[waiting.which].units[waiting.part].waits;
    }
    return 0;
  }

  // A predecessor has ended; true when it was the last one.
  bool arrive(Waiting waiting, int32_t slot_number, const int32_t& predecessors, Nanoseconds end) {
    Slot& slot = slots_[slot_number];
    if (slot.epoch != epoch_) {
      slot = {end, predecessors - 1, epoch_};
      if (slot.left > 0) {
        partial_at_[slot_number] = static_cast<int32_t>(partial_.size());
        partial_.push_back(waiting);
      }
      return slot.left == 0;
    }
    slot.ready = std::max(slot.ready, end);
    if (--slot.left > 0) return false;
    const int32_t hole = partial_at_[slot_number];
    partial_[hole] = partial_.back();
    partial_at_[slot_of(partial_[hole])] = hole;
    partial_.pop_back();
    return true;
  }

  // ---- snapshots ----

  void take_snapshot(const Event& next) {
    if (snapshot_count_ == snapshots_.size()) snapshots_.emplace_back();
    if (const int32_t slot = slot_of(next); slot >= 0) snapshot_at_[slot] = static_cast<int32_t>(snapshot_count_);
    Snapshot& snapshot = snapshots_[snapshot_count_++];
    snapshot.position = taken_;
    snapshot.next = next.key;
    snapshot.ready = next.ready;
    snapshot.latest_until_next = 0;
    snapshot.partial.clear();
    for (const Waiting& waiting : partial_) {
      const Slot& slot = slots_[slot_of(waiting)];
      snapshot.partial.push_back({waiting, predecessors_of(waiting) - slot.left, slot.ready});
    }
    queue_.save(snapshot.queue);
    snapshot.free_at = free_at_;
    snapshot.done = done_;
    snapshot.makespan = makespan_;
  }

  void next_epoch() {
    if (++epoch_ == 0) {
      for (Slot& slot : slots_) slot.epoch = 0;
      epoch_ = 1;
    }
  }

  // Goes on as behind the snapshot, so much later.
  void restore(const Snapshot& snapshot, Nanoseconds later) {
    next_epoch();
    taken_ = std::max(snapshot.position, initial_.size());
    queue_.load(snapshot.queue, later);
    free_at_ = snapshot.free_at;
    if (later != 0)
      for (Nanoseconds& free_at : free_at_) free_at += later;
    partial_.clear();
    for (const Snapshot::Partial& partial : snapshot.partial) {
      const int32_t slot = slot_of(partial.waiting);
      slots_[slot] = {partial.ready + later, predecessors_of(partial.waiting) - partial.arrived, epoch_};
      partial_at_[slot] = static_cast<int32_t>(partial_.size());
      partial_.push_back(partial.waiting);
    }
  }

  // What is done in each snapshot of the tasks before late groups, which are other ones now.
  void recount_done() {
    Vector<Nanoseconds> done(done_.size(), 0);
    size_t next = 0;
    for (size_t taken = 0; next < snapshot_count_; ++taken) {
      for (; next < snapshot_count_ && snapshots_[next].position == taken; ++next)
        std::copy(done.begin() + device_count_, done.end(), snapshots_[next].done.begin() + device_count_);
      if (taken == records.size()) break;
      const Record& record = records[taken];
      const TaskKind kind = kind_of(record.key);
      const bool is_forward = kind == TaskKind::forward || kind == TaskKind::forward_statistics;
      if (is_forward || kind == TaskKind::backward || kind == TaskKind::backward_statistics) {
        const OperatorId op = subject_of(record.key);
        const DeviceId device = state_.tasks[op].parts[part_of(record.key)].device;
        for (size_t i = 0; i < StrategyState::late_count; ++i)
          if (((is_forward ? state_.late_forward : state_.late_backward)[op] >> i & 1) != 0)
            done[done_of_late(i) + static_cast<size_t>(device)] += record.end - record.start;
      } else if (kind == TaskKind::synchronization) {
        const GroupState& group = state_.groups[subject_of(record.key)];
        for (const UnitState& unit : group.units)
          if (make_task_key(kind, subject_of(record.key), unit.number, 0) == record.key)
            for (size_t i = 0; i < StrategyState::late_count; ++i)
              if (state_.late[i].holds && state_.late[i].contains[subject_of(record.key)])
                done[synchronized_of_late(i)] += occupancy(unit, state_.late[i].busiest);
      }
    }
  }

  bool work_exceeds(Nanoseconds limit) const {
    if (*std::max_element(state_.work.begin(), state_.work.end()) > limit) return true;
    for (const LateGroups& late : state_.late)
      if (late.holds && *std::max_element(late.work.begin(), late.work.end()) + late.length > limit) return true;
    return false;
  }

  void start_fresh() {
    next_epoch();
    taken_ = 0;
    partial_.clear();
    queue_.clear();
    initial_.clear();
    free_at_.assign(resource_count_, 0);
    done_.assign(synchronized_of_late(StrategyState::late_count), 0);
    makespan_ = 0;
    for (OperatorId op = 0; op < state_.count(); ++op)
      for (int part = 0; part < state_.operators[op].parts(); ++part)
        if (state_.tasks[op].parts[part].forward_waits == 0)
          initial_.push_back({0, make_task_key(first_forward(op), op, part, 0), 0, 0});
    std::sort(initial_.begin(), initial_.end(), earlier);
  }

  void set_proposed(const Vector<Change>& changes) {
    for (OperatorId op : proposed_) {
      is_proposed_[op] = 0;
      for (const auto& [g, position] : state_.groups_of[op]) is_proposed_group_[g] = 0;
    }
    proposed_.clear();
    for (const Change& change : changes) {
      proposed_.push_back(change.op);
      is_proposed_[change.op] = 1;
      for (const auto& [g, position] : state_.groups_of[change.op]) is_proposed_group_[g] = 1;
    }
  }

  // Units of the proposed operators' groups are other ones now. The position of the first task of another operator
  // whose gradient is for them.
  size_t first_contribution() const {
    size_t first = never;
    for (size_t g = 0; g < is_proposed_group_.size(); ++g) {
      if (!is_proposed_group_[g]) continue;
      for (OperatorId other : state_.builder.groups()[g].operators) {
        if (is_proposed_[other]) continue;
        const int32_t slots = state_.has_backward(other) ? backward_slot_[other] : forward_slot_[other];
        for (int part = 0; part < state_.operators[other].parts(); ++part)
          first = std::min(first, position_[slots + part]);
      }
    }
    return first;
  }

  // What no change of this operator affects: the events before the first forward task of a producer, as long as all
  // parts wait for one.
  KnownPrefix known_before(OperatorId op) const {
    size_t first = never;
    bool all_wait = false;
    for (int e : state_.in_edges[op]) {
      first = std::min(first, first_position_[state_.edge(e).producer]);
      all_wait = all_wait || state_.every_part_reads[e];
    }
    if (!all_wait || first >= records.size()) first = 0;
    return {first, first > 0 ? records[first].ready : 0, forward_slot_, ended_at_, position_};
  }

  // To the last snapshot before anything that the proposal touches.
  void restart() {
    size_t first = never;
    for (OperatorId op : proposed_)
      for (int e : state_.in_edges[op]) first = std::min(first, first_position_[state_.edge(e).producer]);
    // A part that reads graph inputs alone is ready from the start, so it is in every snapshot's past.
    const auto reads_inputs_alone = [](const OperatorTasks& tasks) {
      return std::any_of(tasks.parts.begin(), tasks.parts.end(),
                         [](const PartTasks& part) { return part.forward_waits == 0; });
    };
    for (size_t i = 0; i < state_.touched(); ++i) {
      const auto& [op, before] = state_.before(i);
      if (is_proposed_[op] && (reads_inputs_alone(before) || reads_inputs_alone(state_.tasks[op]))) first = 0;
    }
    restarted_from_ = before_all;
    first_contribution_ = first_contribution();
    if (!std::all_of(proposed_.begin(), proposed_.end(), [this](OperatorId op) { return fits_slots(op); }))
      lay_out_slots();
    else if (first > 0) {
      size_t from = static_cast<size_t>(
          std::upper_bound(snapshots_.begin(), snapshots_.begin() + static_cast<int64_t>(snapshot_count_), first,
                           [](size_t position, const Snapshot& snapshot) { return position < snapshot.position; }) -
          snapshots_.begin());
      while (from > 0 && snapshots_[from - 1].position > first_contribution_) --from;
      restarted_from_ = from;  // 1 is the first snapshot
    }
    if (restarted_from_ == before_all) {
      initial_of_current_.swap(initial_);
      start_fresh();
    } else {
      resume(snapshots_[restarted_from_ - 1]);
    }
    plan_rejoining();
  }

  void resume(const Snapshot& snapshot) {
    restore(snapshot, 0);
    taken_ = snapshot.position;
    done_ = snapshot.done;
    makespan_ = snapshot.makespan;
  }

  // Simulates the current strategy, keeping the timeline, from the beginning or from a snapshot that still holds.
  // `return_to_known`: the plan of the proposal that is accepted now holds too.
  void record_from(size_t snapshot, bool return_to_known) {
    const size_t known_snapshots = snapshot_count_;
    if (snapshot == before_all) {
      snapshot_count_ = 0;
      start_fresh();
    } else {
      snapshot_count_ = snapshot;
      resume(snapshots_[snapshot - 1]);
      snapshots_[snapshot - 1].latest_until_next = 0;
    }
    rejoining_ = return_to_known && rejoining_ != Rejoining::never ? Rejoining::possible : Rejoining::never;
    saved_snapshots_from_ = snapshot_count_;
    saved_records_from_ = taken_;
    saved_snapshot_count_ = 0;
    if (rejoining_ == Rejoining::possible) {
      saved_records_.assign(records.begin() + static_cast<int64_t>(taken_), records.end());
      for (size_t i = snapshot_count_; i < known_snapshots; ++i, ++saved_snapshot_count_) {
        if (saved_snapshot_count_ == saved_snapshots_.size()) saved_snapshots_.emplace_back();
        std::swap(saved_snapshots_[saved_snapshot_count_], snapshots_[i]);
      }
    }
    records.resize(taken_);
    for (size_t& position : first_position_)
      if (position >= taken_) position = never;
    for (size_t& position : position_)
      if (position >= taken_) position = never;
    run<true>(unlimited);
    makespan = makespan_;
    queue_.set_density(records.size(), makespan);
    Nanoseconds latest = 0;
    for (size_t i = snapshot_count_; i-- > 0;)
      snapshots_[i].latest_behind = latest = std::max(latest, snapshots_[i].latest_until_next);
  }

  // ---- the event loop ----

  bool has_statistics(OperatorId op) const { return state_.has_statistics[op]; }
  TaskKind first_forward(OperatorId op) const {
    return has_statistics(op) ? TaskKind::forward_statistics : TaskKind::forward;
  }
  TaskKind first_backward(OperatorId op) const {
    return has_statistics(op) ? TaskKind::backward_statistics : TaskKind::backward;
  }

  void push(const Event& event) { queue_.push(event); }

  void arrive_forward(OperatorId op, int part, Nanoseconds end) {
    const int32_t slot = forward_slot_[op] + part;
    if (arrive({Waiting::Kind::forward, op, part}, slot, state_.tasks[op].parts[part].forward_waits, end))
      push({slots_[slot].ready, make_task_key(first_forward(op), op, part, 0), 0, 0});
  }
  void arrive_backward(OperatorId op, int part, Nanoseconds end) {
    const int32_t slot = backward_slot_[op] + part;
    if (arrive({Waiting::Kind::backward, op, part}, slot, state_.tasks[op].parts[part].backward_waits, end))
      push({slots_[slot].ready, make_task_key(first_backward(op), op, part, 0), 0, 0});
  }
  void arrive_units(OperatorId op, int part, Nanoseconds end) {
    for (const auto& [g, position] : state_.groups_of[op]) {
      const GroupState& group = state_.groups[g];
      if (group.one_unit) {
        arrive_unit(g, 0, group.units[0], end);
        continue;
      }
      for (int32_t u : group.units_of_shard[group.lists[position]->shard_of_part[part]])
        arrive_unit(g, u, group.units[u], end);
    }
  }
  void arrive_unit(int g, int32_t u, const UnitState& unit, Nanoseconds end) {
    const int32_t slot = unit_slot_[g] + u;
    if (!arrive({Waiting::Kind::unit, g, u}, slot, unit.waits, end)) return;
    if (unit.holders.size() > 1)
      push({slots_[slot].ready, make_task_key(TaskKind::synchronization, g, unit.number, 0), u, 0});
    else push({slots_[slot].ready, make_task_key(TaskKind::update, g, unit.number, unit.holders[0]), u, 0});
  }
  // A statistics task of `part` has ended.
  void arrive_reduction(TaskKind kind, OperatorId op, int part, Nanoseconds end) {
    const OperatorState& state = state_.operators[op];
    const int group = state.reduction_of[part];
    const bool forward = kind == TaskKind::forward_reduction;
    const int32_t slot = (forward ? forward_reduction_slot_ : backward_reduction_slot_)[op] + group;
    const Waiting waiting{forward ? Waiting::Kind::forward_reduction : Waiting::Kind::backward_reduction, op, group};
    if (arrive(waiting, slot, static_cast<int32_t>(state.reductions[group].parts.size()), end))
      push({slots_[slot].ready, make_task_key(kind, op, group, 0), 0, 0});
  }

  // Places in done_.
  size_t done_of_late(size_t i) const { return (1 + i) * static_cast<size_t>(device_count_); }
  size_t synchronized_of_late(size_t i) const { return done_of_late(StrategyState::late_count) + i; }

  // Takes the compute or update task; false when the limit is certain to be passed. `before`: bit i: the task comes
  // before late groups i.
  bool take_on_device(const Event& event, DeviceId device, Nanoseconds duration, uint8_t before, Nanoseconds behind,
                      Nanoseconds limit, Nanoseconds& start, Nanoseconds& end) {
    start = std::max(event.ready, free_at_[device]);
    end = start + duration;
    free_at_[device] = end;
    done_[device] += duration;
    if (end + std::max(behind, state_.work[device] - done_[device]) > limit) return false;
    for (size_t i = 0; i < StrategyState::late_count; ++i) {
      const LateGroups& late = state_.late[i];
      Nanoseconds& done = done_[done_of_late(i) + static_cast<size_t>(device)];
      const bool is_before = (before >> i & 1) != 0;
      if (is_before) done += duration;
      if (!late.holds) continue;
      const Nanoseconds left = late.work[device] - done;
      if ((is_before || left > 0) && end + left + late.length > limit) return false;
    }
    return true;
  }

  // Of late groups, what has not been synchronized when this unit is, follows on the resource that they occupy longest:
  // behind this unit if it occupies it too, else not before what is ready now.
  bool late_groups_fit(const Event& event, const UnitState& unit, Nanoseconds start, Nanoseconds limit) {
    for (size_t i = 0; i < StrategyState::late_count; ++i) {
      const LateGroups& late = state_.late[i];
      if (late.contains.empty() || !late.contains[subject_of(event.key)]) continue;
      Nanoseconds& synchronized = done_[synchronized_of_late(i)];
      const Nanoseconds own = occupancy(unit, late.busiest);
      if ((own > 0 ? start : event.ready) + late.occupied[late.busiest] - synchronized > limit) return false;
      synchronized += own;
    }
    return true;
  }

  void occupy(Nanoseconds ready, const CommunicationCost& cost, Nanoseconds& start, Nanoseconds& end) {
    start = ready;
    for (const ResourceUse& use : cost.uses) start = std::max(start, free_at_[use.resource]);
    for (const ResourceUse& use : cost.uses) free_at_[use.resource] = start + use.occupancy;
    end = start + cost.duration;
  }

  bool take_transfer(const Event& event, Nanoseconds limit, Nanoseconds& start, Nanoseconds& end) {
    const bool activation = kind_of(event.key) == TaskKind::activation;
    const int e = subject_of(event.key);
    const Edge& edge = state_.edge(e);
    const BlockPair& pair = (*state_.edges[e].plan->pairs)[event.index];
    const DeviceId producer = state_.operators[edge.producer].devices[pair.producer_part];
    const DeviceId consumer = state_.operators[edge.consumer].devices[pair.consumer_part];
    state_.costs.communication().transfer(activation ? producer : consumer, activation ? consumer : producer,
                                          pair.bytes, transfer_cost_);
    occupy(event.ready, transfer_cost_, start, end);
    const OperatorPaths& paths = state_.paths;
    if (activation) {
      arrive_forward(edge.consumer, pair.consumer_part, end);
      return end + paths.least_forward[edge.consumer] + paths.tail_forward[edge.consumer] <= limit;
    }
    arrive_backward(edge.producer, pair.producer_part, end);
    return end + paths.least_backward[edge.producer] + paths.tail_backward[edge.producer] <= limit;
  }

  void follow_forward(OperatorId op, int part, Nanoseconds end) {
    const DeviceId device = state_.tasks[op].parts[part].device;
    for (int e : state_.out_edges[op]) {
      const EdgePlan& plan = *state_.edges[e].plan;
      const OperatorId consumer = state_.edge(e).consumer;
      const Vector<PartTasks>& parts = state_.tasks[consumer].parts;
      if (plan.one_to_one) {
        if (parts[part].device == device) arrive_forward(consumer, part, end);
        else push({end, make_task_key(TaskKind::activation, e, part, part), part, 0});
        continue;
      }
      for (int32_t i = plan.producer_begin[part]; i < plan.producer_begin[part + 1]; ++i) {
        const int32_t index = plan.by_producer[i];
        const int consumer_part = (*plan.pairs)[index].consumer_part;
        if (parts[consumer_part].device == device) arrive_forward(consumer, consumer_part, end);
        else push({end, make_task_key(TaskKind::activation, e, consumer_part, part), index, 0});
      }
    }
    if (!state_.has_backward(op)) arrive_units(op, part, end);
    else if (state_.tasks[op].parts[part].backward_waits == 0)
      push({end, make_task_key(first_backward(op), op, part, 0), 0, 0});
  }

  void follow_backward(OperatorId op, int part, Nanoseconds end) {
    const DeviceId device = state_.tasks[op].parts[part].device;
    for (int e : state_.in_edges[op]) {
      if (!state_.edge_has_gradient[e]) continue;
      const EdgePlan& plan = *state_.edges[e].plan;
      const OperatorId producer = state_.edge(e).producer;
      const Vector<PartTasks>& parts = state_.tasks[producer].parts;
      if (plan.one_to_one) {
        if (parts[part].device == device) arrive_backward(producer, part, end);
        else push({end, make_task_key(TaskKind::gradient, e, part, part), part, 0});
        continue;
      }
      for (int32_t index = plan.consumer_begin[part]; index < plan.consumer_begin[part + 1]; ++index) {
        const int producer_part = (*plan.pairs)[index].producer_part;
        if (parts[producer_part].device == device) arrive_backward(producer, producer_part, end);
        else push({end, make_task_key(TaskKind::gradient, e, part, producer_part), index, 0});
      }
    }
    arrive_units(op, part, end);
  }

  // Takes one task; false when the limit is certain to be passed.
  bool take(const Event& event, Nanoseconds limit, Nanoseconds& start, Nanoseconds& end) {
    const int what = subject_of(event.key), part = part_of(event.key);
    switch (kind_of(event.key)) {
      case TaskKind::forward: {
        const PartTasks& tasks = state_.tasks[what].parts[part];
        if (!take_on_device(event, tasks.device, tasks.forward, state_.late_forward[what],
                            state_.paths.tail_forward[what], limit, start, end))
          return false;
        follow_forward(what, part, end);
        return true;
      }
      case TaskKind::backward: {
        const PartTasks& tasks = state_.tasks[what].parts[part];
        if (!take_on_device(event, tasks.device, tasks.backward, state_.late_backward[what],
                            state_.paths.tail_backward[what], limit, start, end))
          return false;
        follow_backward(what, part, end);
        return true;
      }
      case TaskKind::forward_statistics: {
        const OperatorState& state = state_.operators[what];
        const Nanoseconds behind = state_.paths.tail_forward[what] + state.forward_kernel[part] -
                                   state.forward_statistics_kernel[part] +
                                   state.reductions[state.reduction_of[part]].collective.duration;
        if (!take_on_device(event, state.devices[part], state_.tasks[what].forward_statistics[part],
                            state_.late_forward[what], behind, limit, start, end))
          return false;
        arrive_reduction(TaskKind::forward_reduction, what, part, end);
        return true;
      }
      case TaskKind::backward_statistics: {
        const OperatorState& state = state_.operators[what];
        const Nanoseconds behind = state_.paths.tail_backward[what] + state.backward_kernel[part] -
                                   state.backward_statistics_kernel[part] +
                                   state.reductions[state.reduction_of[part]].collective.duration;
        if (!take_on_device(event, state.devices[part], state_.tasks[what].backward_statistics[part],
                            state_.late_backward[what], behind, limit, start, end))
          return false;
        arrive_reduction(TaskKind::backward_reduction, what, part, end);
        return true;
      }
      case TaskKind::forward_reduction:
      case TaskKind::backward_reduction: {
        const ReductionState& reduction = state_.operators[what].reductions[part];
        occupy(event.ready, reduction.collective, start, end);
        const TaskKind next =
            kind_of(event.key) == TaskKind::forward_reduction ? TaskKind::forward : TaskKind::backward;
        for (int member : reduction.parts) push({end, make_task_key(next, what, member, 0), 0, 0});
        return end + (next == TaskKind::forward ? state_.paths.tail_forward[what] : state_.paths.tail_backward[what]) <=
               limit;
      }
      case TaskKind::activation:
      case TaskKind::gradient: return take_transfer(event, limit, start, end);
      case TaskKind::synchronization: {
        const UnitState& unit = state_.groups[what].units[event.index];
        occupy(event.ready, unit.collective, start, end);
        for (size_t h = 0; h < unit.holders.size(); ++h)
          push({end, make_task_key(TaskKind::update, what, unit.number, unit.holders[h]), event.index,
                static_cast<int32_t>(h)});
        return end + *std::max_element(unit.update.begin(), unit.update.end()) <= limit &&
               late_groups_fit(event, unit, start, limit);
      }
      case TaskKind::update: {
        const UnitState& unit = state_.groups[what].units[event.index];
        return take_on_device(event, unit.holders[event.holder], unit.update[event.holder], 0, 0, limit, start, end);
      }
    }
    return true;
  }

  // Takes all events; false as soon as the makespan is certain to exceed the limit. A recorded run keeps the timeline
  // and snapshots of it.
  template <bool recording>
  bool run(Nanoseconds limit) {
    while (taken_ < initial_.size() || !queue_.empty()) {
      // Tasks without predecessors are ready at 0 and all others later: they come first, in the order of their keys.
      const bool initial = taken_ < initial_.size();
      if (!initial && rejoining_ != Rejoining::never && rejoin<recording>(queue_.front())) {
        if (rejoining_ == Rejoining::done) return makespan_ <= limit;
        continue;
      }
      if (recording && is_snapshot_due(initial ? initial_[taken_] : queue_.front()))
        take_snapshot(initial ? initial_[taken_] : queue_.front());
      const Event event = initial ? initial_[taken_] : queue_.pop();
      Nanoseconds start = 0, end = 0;
      ++statistics.events;
      if (!take(event, limit, start, end)) return false;
      makespan_ = std::max(makespan_, end);
      if (recording) record({event.key, event.ready, start, end});
      ++taken_;
    }
    return true;
  }

  // Snapshots are so far apart that taking them costs a few words an event, and where a changed timeline is most likely
  // to be as it was, but for a shift: at a reduction, behind which all parts begin together, else at a compute task.
  bool is_snapshot_due(const Event& next) const {
    if (snapshot_count_ == 0) return true;
    const size_t distance = taken_ - snapshots_[snapshot_count_ - 1].position;
    if (distance < least_snapshot_distance) return false;
    const size_t least =
        std::max(least_snapshot_distance, (partial_.size() * 3 + queue_.size() * 3 + resource_count_) / 16);
    const TaskKind kind = kind_of(next.key);
    return distance >= least * (is_reduction(kind)                                        ? 1
                                : kind == TaskKind::forward || kind == TaskKind::backward ? 2
                                                                                          : 4);
  }

  // ---- returning to the current strategy's timeline ----
  //
  // Taking tasks first in, first out does not depend on when it is: once everything that a change touches lies behind,
  // and the queue, what has arrived and the free times of resources are those of a snapshot but for a shift of all
  // times, what follows is what followed the snapshot, shifted. A change touches tasks in two places, forward and
  // backward; between them the simulation may skip to the second.

  enum class Rejoining : uint8_t { never, possible, done };  // done: all that was left is known

  void plan_rejoining() {
    rejoining_ = snapshot_count_ > 0 ? Rejoining::possible : Rejoining::never;
    known_initial_ = (restarted_from_ == before_all ? initial_of_current_ : initial_).size();
    last_touched_forward_ = last_touched_backward_ = 0;
    first_touched_backward_ = never;
    const auto include = [&](OperatorId op, size_t parts) {
      for (size_t part = 0; part < parts; ++part) {
        last_touched_forward_ =
            std::max(last_touched_forward_, position_[static_cast<size_t>(forward_slot_[op]) + part]);
        if (!state_.has_backward(op)) continue;
        const size_t position = position_[static_cast<size_t>(backward_slot_[op]) + part];
        last_touched_backward_ = std::max(last_touched_backward_, position);
        first_touched_backward_ = std::min(first_touched_backward_, position);
      }
    };
    for (OperatorId op : touched_) is_touched_[op] = 0;
    touched_.clear();
    for (size_t i = 0; i < state_.touched(); ++i) {
      const OperatorId op = state_.before(i).op;
      touched_.push_back(op);
      is_touched_[op] = 1;
      include(op, state_.before(i).tasks.parts.size());
    }
    last_touched_backward_ = std::max(last_touched_backward_, last_touched_forward_);
    // A producer's part that the operator no longer reads (a strided window may leave gaps) waits for fewer gradients,
    // and may begin before any of the events that were touched: nothing may be skipped then.
    for (OperatorId op : proposed_)
      for (int e : state_.in_edges[op])
        if (state_.edge_has_gradient[e] && !state_.every_part_is_read[e]) first_touched_backward_ = 0;
  }

  bool is_touched(TaskKey key) const {
    const int what = subject_of(key);
    const TaskKind kind = kind_of(key);
    if (is_transfer(kind)) return is_proposed_[state_.edge(what).producer] || is_proposed_[state_.edge(what).consumer];
    if (kind == TaskKind::synchronization || kind == TaskKind::update) return is_proposed_group_[what];
    return is_touched_[what];
  }
  bool is_touched(Waiting waiting) const {
    return waiting.kind == Waiting::Kind::unit ? is_proposed_group_[waiting.which] : is_touched_[waiting.which];
  }

  // Is everything as behind the snapshot but for a shift, and untouched by the change?
  bool equals(const Snapshot& snapshot, Nanoseconds later) {
    if (queue_.size() != snapshot.queue.size() || partial_.size() != snapshot.partial.size()) return false;
    // Times before the next event make no difference any more.
    const auto alike = [&](Nanoseconds time, Nanoseconds known) {
      return std::max(time - later, snapshot.ready) == std::max(known, snapshot.ready);
    };
    for (size_t resource = 0; resource < resource_count_; ++resource)
      if (!alike(free_at_[resource], snapshot.free_at[resource])) return false;
    for (const Snapshot::Partial& known : snapshot.partial) {
      const Slot& slot = slots_[slot_of(known.waiting)];
      if (slot.epoch != epoch_ || slot.left <= 0 || predecessors_of(known.waiting) - slot.left != known.arrived ||
          !alike(slot.ready, known.ready))
        return false;
      if (is_touched(known.waiting)) return false;
    }
    queue_.save(queued_);  // last, since it takes longest
    for (size_t i = 0; i < queued_.size(); ++i) {
      const Event &event = queued_[i], &known = snapshot.queue[i];
      if (event.key != known.key || event.ready != known.ready + later || event.index != known.index ||
          event.holder != known.holder)
        return false;
    }
    for (const Event& known : snapshot.queue)
      if (is_touched(known.key)) return false;
    return true;
  }

  // The timeline to return to: the current strategy's, which a recorded run has put aside from its beginning on.
  template <bool recording>
  Snapshot& known(size_t index) {
    return recording ? saved_snapshots_[index - saved_snapshots_from_] : snapshots_[index];
  }

  // Where the next event is one of a snapshot: skips what is known from there. True if anything was skipped.
  template <bool recording>
  bool rejoin(const Event& next) {
    const int32_t slot = slot_of(next);
    if (slot < 0 || snapshot_at_[slot] < 0) return false;
    const size_t index = static_cast<size_t>(snapshot_at_[slot]);
    const size_t begin = recording ? saved_snapshots_from_ : 0,
                 end = recording ? saved_snapshots_from_ + saved_snapshot_count_ : snapshot_count_;
    if (index < begin || index >= end) return false;
    const Snapshot& snapshot = known<recording>(index);
    if (snapshot.next != next.key || snapshot.position <= last_touched_forward_) return false;
    if (snapshot.position < known_initial_) return false;
    const bool behind_all = snapshot.position > last_touched_backward_;
    size_t target = index;
    if (!behind_all) {
      const size_t last = std::min(first_touched_backward_, first_contribution_);
      while (target + 1 < end && known<recording>(target + 1).position <= last) ++target;
      if (target == index) return false;
    }
    const Nanoseconds later = next.ready - snapshot.ready;
    if (!equals(snapshot, later)) return false;
    ++statistics.returned;
    if (recording) repeat_records(index, behind_all ? end : target, later);
    if (behind_all) {
      makespan_ = std::max(makespan_, snapshot.latest_behind + later);
      rejoining_ = Rejoining::done;
      return true;
    }
    for (size_t i = index; i < target; ++i)
      makespan_ = std::max(makespan_, known<recording>(i).latest_until_next + later);
    for (size_t device = 0; device < done_.size(); ++device)
      done_[device] += known<recording>(target).done[device] - snapshot.done[device];
    restore(known<recording>(target), later);
    if (recording) taken_ = records.size();
    return true;
  }

  // Records what followed one saved snapshot up to another (or the end), so much later, and the snapshots from the
  // first on.
  void repeat_records(size_t from, size_t to, Nanoseconds later) {
    const size_t end = saved_snapshots_from_ + saved_snapshot_count_;
    const Snapshot& first = known<true>(from);
    for (size_t i = from; i <= to && i < end; ++i) {
      Snapshot& saved = known<true>(i);
      if (i > from || is_snapshot_due(queue_.front())) repeat_snapshot(saved, first, later);
      if (i == to) break;
      const size_t last = i + 1 < end ? known<true>(i + 1).position : saved_records_from_ + saved_records_.size();
      for (size_t r = saved.position; r < last; ++r) {
        const Record& known_record = saved_records_[r - saved_records_from_];
        record({known_record.key, known_record.ready + later, known_record.start + later, known_record.end + later});
      }
    }
  }

  // `first`: the first of those repeated, which is where the simulation stands.
  void repeat_snapshot(const Snapshot& saved, const Snapshot& first, Nanoseconds later) {
    if (snapshot_count_ == snapshots_.size()) snapshots_.emplace_back();
    Snapshot& snapshot = snapshots_[snapshot_count_];
    snapshot = saved;
    snapshot.position = records.size();
    snapshot.ready += later;
    snapshot.latest_until_next = 0;
    for (Snapshot::Partial& partial : snapshot.partial) partial.ready += later;
    for (Event& event : snapshot.queue) event.ready += later;
    for (Nanoseconds& free_at : snapshot.free_at) free_at += later;
    for (size_t device = 0; device < done_.size(); ++device)
      snapshot.done[device] += done_[device] - first.done[device];
    snapshot.makespan =
        std::max(snapshots_[snapshot_count_ - 1].makespan, snapshots_[snapshot_count_ - 1].latest_until_next);
    if (const int32_t slot = slot_of(Event{0, saved.next, 0, 0}); slot >= 0)
      snapshot_at_[slot] = static_cast<int32_t>(snapshot_count_);
    ++snapshot_count_;
  }

  void record(const Record& record) {
    Nanoseconds& latest = snapshots_[snapshot_count_ - 1].latest_until_next;
    latest = std::max(latest, record.end);
    const TaskKind kind = kind_of(record.key);
    if (kind == TaskKind::forward || kind == TaskKind::backward) {
      const OperatorId op = subject_of(record.key);
      const int32_t slot = (kind == TaskKind::forward ? forward_slot_[op] : backward_slot_[op]) + part_of(record.key);
      ended_at_[slot] = record.end;
      position_[slot] = records.size();
      if (kind == TaskKind::forward) first_position_[op] = std::min(first_position_[op], records.size());
    }
    records.push_back(record);
  }

  // events; fewer restart closer to a change and take longer to record
  static constexpr size_t least_snapshot_distance = 32;

  StrategyState state_;
  ProposalBound bound_;
  const int device_count_;
  const size_t resource_count_;

  Vector<OperatorId> proposed_;  // operators that the proposal changes
  bool changed_ = false;
  size_t restarted_from_ = before_all;  // number of snapshots that the proposal's simulation left as they were

  // The simulation.
  // [operator]
  Vector<int32_t> forward_slot_, backward_slot_, forward_reduction_slot_, backward_reduction_slot_, capacity_;
  // [group]
  Vector<int32_t> unit_slot_, unit_capacity_;
  Vector<Slot> slots_;
  uint32_t epoch_ = 1;
  size_t taken_ = 0;
  Vector<Event> initial_;             // tasks without predecessors, in the order in which they are taken
  Vector<Event> initial_of_current_;  // those of the current strategy while a proposal has its own
  EventQueue queue_;
  Vector<Event> queued_;  // scratch
  Vector<Nanoseconds> free_at_, done_;
  Nanoseconds makespan_ = 0;
  CommunicationCost transfer_cost_;  // scratch

  // What has begun to arrive, and where in the list each slot stands.
  Vector<Waiting> partial_;
  Vector<int32_t> partial_at_;

  // Of a proposal's run: which events of the current timeline the change touches.
  Rejoining rejoining_ = Rejoining::never;
  size_t known_initial_ = 0;  // so many tasks without predecessors has the current timeline
  size_t first_contribution_ = 0;
  size_t last_touched_forward_ = 0, first_touched_backward_ = 0, last_touched_backward_ = 0;
  Vector<OperatorId> touched_;
  Vector<uint8_t> is_touched_, is_proposed_;  // [operator]
  Vector<uint8_t> is_proposed_group_;         // [group]

  // Of the current strategy's timeline.
  Vector<Snapshot> snapshots_;
  size_t snapshot_count_ = 0;
  Vector<int32_t> snapshot_at_;  // [slot]: the snapshot before its task, if there is one

  // While an accepted proposal is recorded: the timeline before it, from the restart on.
  Vector<Record> saved_records_;
  Vector<Snapshot> saved_snapshots_;
  size_t saved_records_from_ = 0, saved_snapshots_from_ = 0, saved_snapshot_count_ = 0;
  Vector<size_t> first_position_;  // [operator]: of its first forward task
  Vector<Nanoseconds> ended_at_;   // [slot]: end of a forward or backward task
  Vector<size_t> position_;        // [slot]: when it was taken
};

DeltaSimulator::DeltaSimulator(TaskGraphBuilder& builder, const Topology& topology, TaskCostModel& costs)
    : state_(std::make_unique<State>(builder, topology, costs)) {}
DeltaSimulator::~DeltaSimulator() = default;

void DeltaSimulator::reset(const Strategy& strategy) { state_->reset(strategy); }
const Strategy& DeltaSimulator::strategy() const { return state_->strategy(); }
Nanoseconds DeltaSimulator::makespan() const { return state_->makespan; }
std::optional<Nanoseconds> DeltaSimulator::propose(const Vector<Change>& changes, Nanoseconds limit) {
  return state_->propose(changes, limit);
}
void DeltaSimulator::accept() { state_->accept(); }
void DeltaSimulator::reject() { state_->reject(); }
const Vector<DeltaSimulator::Record>& DeltaSimulator::records() const { return state_->records; }
const DeltaStatistics& DeltaSimulator::statistics() const { return state_->statistics; }

}  // namespace ff
