#include "search/simulator/delta.h"

#include <algorithm>
#include <cassert>
#include <limits>

#include "search/simulator/delta_bound.h"
#include "search/simulator/delta_state.h"

namespace ff {

using namespace delta;

namespace {

constexpr Nanoseconds unlimited = std::numeric_limits<Nanoseconds>::max();
constexpr size_t before_all = 0;  // position of the first event
constexpr size_t never = std::numeric_limits<size_t>::max();

// A task that is ready to be taken.
struct Event {
  Nanoseconds ready;
  TaskKey key;
  int32_t index;  // transfers: the pair; synchronization and update: the unit
  int32_t holder;  // update
};
bool earlier(const Event& a, const Event& b) { return a.ready != b.ready ? a.ready < b.ready : a.key < b.key; }

// Ready tasks in the order in which they are taken: a sorted array, since most tasks become ready behind nearly all others that are.
class EventQueue {
 public:
  bool empty() const { return head_ == events_.size(); }
  size_t size() const { return events_.size() - head_; }
  void clear() {
    events_.clear();
    head_ = 0;
  }
  void push(const Event& event) {
    events_.push_back(event);
    size_t at = events_.size() - 1;
    for (int near = 0; near < 8; ++near, --at) {
      if (at == head_ || !earlier(event, events_[at - 1])) {
        events_[at] = event;
        return;
      }
      events_[at] = events_[at - 1];
    }
    const auto place = std::upper_bound(events_.begin() + static_cast<int64_t>(head_), events_.begin() + static_cast<int64_t>(at), event, earlier);
    std::copy_backward(place, events_.begin() + static_cast<int64_t>(at), events_.begin() + static_cast<int64_t>(at) + 1);
    *place = event;
  }
  Event pop() {
    const Event event = events_[head_++];
    if (head_ >= 4096 && 2 * head_ >= events_.size()) {
      events_.erase(events_.begin(), events_.begin() + static_cast<int64_t>(head_));
      head_ = 0;
    }
    return event;
  }
  void save(std::vector<Event>& events) const { events.assign(events_.begin() + static_cast<int64_t>(head_), events_.end()); }
  void load(const std::vector<Event>& events) {
    events_ = events;
    head_ = 0;
  }

 private:
  std::vector<Event> events_;
  size_t head_ = 0;
};

TaskKind kind_of(TaskKey key) { return static_cast<TaskKind>(key >> 60); }
int what_of(TaskKey key) { return static_cast<int>(key >> 40 & 0xFFFFF); }
int part_of(TaskKey key) { return static_cast<int>(key >> 20 & 0xFFFFF); }

// Something that waits for several predecessors.
struct Waiting {
  enum class Kind : uint8_t { forward, backward, forward_reduction, backward_reduction, unit } kind;
  int32_t which;  // operator; of a unit: group
  int32_t part;   // part; of a reduction: statistics group; of a unit: its index
};

// How far it is. Slots of another epoch have not been reached: nothing has arrived.
struct Slot {
  Nanoseconds ready = 0;  // latest end of a predecessor so far
  int32_t left = 0;       // predecessors that have not ended
  uint32_t epoch = 0;
};

// Where a simulation stands: everything that a restart needs. Small, since what has not begun to arrive needs no mention.
struct Snapshot {
  struct Partial {
    Waiting waiting;
    int32_t arrived;
    Nanoseconds ready;
  };
  size_t position = 0;               // events taken
  std::vector<Partial> partial;
  std::vector<Event> queue;
  std::vector<Nanoseconds> free_at;  // [resource]
  std::vector<Nanoseconds> done;     // [device]: compute and update work taken so far
  Nanoseconds makespan = 0;
};

}  // namespace

class DeltaSimulator::State {
 public:
  State(TaskGraphBuilder& builder, const Topology& topology, TaskCostModel& costs)
      : state_(builder, topology, costs), bound_(state_), device_count_(static_cast<int>(topology.devices.size())),
        resource_count_(topology.devices.size() + topology.channels.size()), first_position_(state_.operators.size()) {}

  void reset(const Strategy& strategy) {
    state_.reset(strategy);
    lay_out_slots();
    record_from(before_all);
  }

  std::optional<Nanoseconds> propose(OperatorId op, const Configuration& configuration, Nanoseconds limit) {
    ++statistics.proposals;
    changed_ = false;
    if (limit != unlimited && bound_.exceeds(op, configuration, known_before(op), limit)) {
      ++statistics.rejected_before_simulation;
      return std::nullopt;
    }
    proposed_ = op;
    changed_ = true;
    restarted_from_ = 1;  // nothing is simulated yet
    state_.change(op, configuration);
    if (*std::max_element(state_.work.begin(), state_.work.end()) > limit) {
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
    record_from(restarted_from_);  // the snapshots before hold: the change touches nothing that has happened or begun by then
    state_.keep();
  }

  void reject() {
    if (!changed_) return;
    changed_ = false;
    state_.undo();
    if (restarted_from_ == before_all) initial_of_current_.swap(initial_);
  }

  const Strategy& strategy() const { return state_.strategy; }
  Nanoseconds makespan = 0;  // of the current strategy
  std::vector<Record> records;
  DeltaStatistics statistics;

 private:
  // ---- slots ----

  void lay_out_slots() {
    int32_t next = 0;
    const size_t operators = state_.operators.size(), groups = state_.groups.size();
    for (auto* slots : {&forward_slot_, &backward_slot_, &forward_reduction_slot_, &backward_reduction_slot_, &capacity_}) slots->resize(operators);
    unit_slot_.resize(groups);
    unit_capacity_.resize(groups);
    for (size_t op = 0; op < operators; ++op) {
      capacity_[op] = std::max(device_count_, state_.operators[op].parts());
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
      unit_capacity_[g] = std::max(2 * device_count_, 2 * static_cast<int32_t>(state_.groups[g].units.size()));
      next += unit_capacity_[g];
    }
    slots_.assign(static_cast<size_t>(next), {});
    epoch_ = 1;
    partial_.clear();
    partial_at_.assign(static_cast<size_t>(next), 0);
    ended_at_.assign(static_cast<size_t>(next), 0);
    position_.assign(static_cast<size_t>(next), never);
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

  int32_t predecessors_of(Waiting waiting) const {
    switch (waiting.kind) {
      case Waiting::Kind::forward: return state_.tasks[waiting.which].parts[waiting.part].forward_waits;
      case Waiting::Kind::backward: return state_.tasks[waiting.which].parts[waiting.part].backward_waits;
      case Waiting::Kind::forward_reduction:
      case Waiting::Kind::backward_reduction: return static_cast<int32_t>(state_.operators[waiting.which].reductions[waiting.part].parts.size());
      case Waiting::Kind::unit: return state_.groups[waiting.which].units[waiting.part].waits;
    }
    return 0;
  }

  // A predecessor has ended; true when it was the last one. A recorded run keeps the list of what has begun to arrive.
  template <bool recording>
  bool arrive(Waiting waiting, int32_t slot_number, const int32_t& predecessors, Nanoseconds end) {
    Slot& slot = slots_[slot_number];
    if (slot.epoch != epoch_) {
      slot = {end, predecessors - 1, epoch_};
      if (recording && slot.left > 0) {
        partial_at_[slot_number] = static_cast<int32_t>(partial_.size());
        partial_.push_back(waiting);
      }
      return slot.left == 0;
    }
    slot.ready = std::max(slot.ready, end);
    if (--slot.left > 0) return false;
    if (recording) {
      const int32_t hole = partial_at_[slot_number];
      partial_[hole] = partial_.back();
      partial_at_[slot_of(partial_[hole])] = hole;
      partial_.pop_back();
    }
    return true;
  }

  // ---- snapshots ----

  void take_snapshot() {
    if (snapshot_count_ == snapshots_.size()) snapshots_.emplace_back();
    Snapshot& snapshot = snapshots_[snapshot_count_++];
    snapshot.position = taken_;
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

  void restore(const Snapshot& snapshot) {
    next_epoch();
    taken_ = snapshot.position;
    queue_.load(snapshot.queue);
    free_at_ = snapshot.free_at;
    done_ = snapshot.done;
    makespan_ = snapshot.makespan;
    partial_.clear();
    for (const Snapshot::Partial& partial : snapshot.partial) {
      const int32_t slot = slot_of(partial.waiting);
      slots_[slot] = {partial.ready, predecessors_of(partial.waiting) - partial.arrived, epoch_};
      partial_at_[slot] = static_cast<int32_t>(partial_.size());
      partial_.push_back(partial.waiting);
    }
  }

  void start_fresh() {
    next_epoch();
    taken_ = 0;
    partial_.clear();
    queue_.clear();
    initial_.clear();
    free_at_.assign(resource_count_, 0);
    done_.assign(static_cast<size_t>(device_count_), 0);
    makespan_ = 0;
    for (OperatorId op = 0; op < state_.count(); ++op)
      for (int part = 0; part < state_.operators[op].parts(); ++part)
        if (state_.tasks[op].parts[part].forward_waits == 0) initial_.push_back({0, make_task_key(first_forward(op), op, part, 0), 0, 0});
    std::sort(initial_.begin(), initial_.end(), earlier);
  }

  // Units of the proposed operator's groups are other ones now. Has any gradient for them been ready before `position`?
  bool units_have_begun(size_t position) const {
    for (const auto& [g, own] : state_.groups_of[proposed_])
      for (OperatorId other : state_.builder.groups()[g].operators) {
        if (other == proposed_) continue;
        const int32_t slots = state_.has_backward(other) ? backward_slot_[other] : forward_slot_[other];
        for (int part = 0; part < state_.operators[other].parts(); ++part)
          if (position_[slots + part] < position) return true;
      }
    return false;
  }

  // What no change of this operator affects: the events before the first forward task of a producer, as long as all parts wait for one.
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
    for (int e : state_.in_edges[proposed_]) first = std::min(first, first_position_[state_.edge(e).producer]);
    // A part that reads graph inputs alone is ready from the start, so it is in every snapshot's past.
    const auto reads_inputs_alone = [](const OperatorTasks& tasks) {
      return std::any_of(tasks.parts.begin(), tasks.parts.end(), [](const PartTasks& part) { return part.forward_waits == 0; });
    };
    for (size_t i = 0; i < state_.touched(); ++i)
      if (state_.before(i).op == proposed_ && (reads_inputs_alone(state_.before(i).tasks) || reads_inputs_alone(state_.tasks[proposed_])))
        first = 0;
    restarted_from_ = before_all;
    if (!fits_slots(proposed_)) lay_out_slots();
    else if (first > 0) {
      size_t from = static_cast<size_t>(std::upper_bound(snapshots_.begin(), snapshots_.begin() + static_cast<int64_t>(snapshot_count_), first,
                                                         [](size_t position, const Snapshot& snapshot) { return position < snapshot.position; }) -
                                        snapshots_.begin());
      while (from > 0 && units_have_begun(snapshots_[from - 1].position)) --from;
      restarted_from_ = from;  // 1 is the first snapshot
    }
    if (restarted_from_ == before_all) {
      initial_of_current_.swap(initial_);
      start_fresh();
    } else {
      restore(snapshots_[restarted_from_ - 1]);
    }
  }

  // Simulates the current strategy, keeping the timeline, from the beginning or from a snapshot that still holds.
  void record_from(size_t snapshot) {
    if (snapshot == before_all) {
      snapshot_count_ = 0;
      start_fresh();
    } else {
      snapshot_count_ = snapshot;
      restore(snapshots_[snapshot - 1]);
    }
    records.resize(taken_);
    for (size_t& position : first_position_)
      if (position >= taken_) position = never;
    for (size_t& position : position_)
      if (position >= taken_) position = never;
    run<true>(unlimited);
    makespan = makespan_;
  }

  // ---- the event loop ----

  bool has_statistics(OperatorId op) const { return state_.has_statistics[op]; }
  TaskKind first_forward(OperatorId op) const { return has_statistics(op) ? TaskKind::forward_statistics : TaskKind::forward; }
  TaskKind first_backward(OperatorId op) const { return has_statistics(op) ? TaskKind::backward_statistics : TaskKind::backward; }

  void push(const Event& event) { queue_.push(event); }

  template <bool recording>
  void arrive_forward(OperatorId op, int part, Nanoseconds end) {
    const int32_t slot = forward_slot_[op] + part;
    if (arrive<recording>({Waiting::Kind::forward, op, part}, slot, state_.tasks[op].parts[part].forward_waits, end))
      push({slots_[slot].ready, make_task_key(first_forward(op), op, part, 0), 0, 0});
  }
  template <bool recording>
  void arrive_backward(OperatorId op, int part, Nanoseconds end) {
    const int32_t slot = backward_slot_[op] + part;
    if (arrive<recording>({Waiting::Kind::backward, op, part}, slot, state_.tasks[op].parts[part].backward_waits, end))
      push({slots_[slot].ready, make_task_key(first_backward(op), op, part, 0), 0, 0});
  }
  template <bool recording>
  void arrive_units(OperatorId op, int part, Nanoseconds end) {
    for (const auto& [g, position] : state_.groups_of[op]) {
      const GroupState& group = state_.groups[g];
      if (group.one_unit) {
        arrive_unit<recording>(g, 0, group.units[0], end);
        continue;
      }
      for (int32_t u : group.units_of_shard[group.lists[position]->shard_of_part[part]]) arrive_unit<recording>(g, u, group.units[u], end);
    }
  }
  template <bool recording>
  void arrive_unit(int g, int32_t u, const UnitState& unit, Nanoseconds end) {
    const int32_t slot = unit_slot_[g] + u;
    if (!arrive<recording>({Waiting::Kind::unit, g, u}, slot, unit.waits, end)) return;
    if (unit.holders.size() > 1) push({slots_[slot].ready, make_task_key(TaskKind::synchronization, g, unit.number, 0), u, 0});
    else push({slots_[slot].ready, make_task_key(TaskKind::update, g, unit.number, unit.holders[0]), u, 0});
  }
  // A statistics task of `part` has ended.
  template <bool recording>
  void arrive_reduction(TaskKind kind, OperatorId op, int part, Nanoseconds end) {
    const OperatorState& state = state_.operators[op];
    const int group = state.reduction_of[part];
    const bool forward = kind == TaskKind::forward_reduction;
    const int32_t slot = (forward ? forward_reduction_slot_ : backward_reduction_slot_)[op] + group;
    const Waiting waiting{forward ? Waiting::Kind::forward_reduction : Waiting::Kind::backward_reduction, op, group};
    if (arrive<recording>(waiting, slot, static_cast<int32_t>(state.reductions[group].parts.size()), end))
      push({slots_[slot].ready, make_task_key(kind, op, group, 0), 0, 0});
  }

  // Takes the compute or update task; false when the limit is certain to be passed.
  bool take_on_device(const Event& event, DeviceId device, Nanoseconds duration, Nanoseconds behind, Nanoseconds limit, Nanoseconds& start,
                      Nanoseconds& end) {
    start = std::max(event.ready, free_at_[device]);
    end = start + duration;
    free_at_[device] = end;
    done_[device] += duration;
    return end + std::max(behind, state_.work[device] - done_[device]) <= limit;
  }

  void occupy(Nanoseconds ready, const CommunicationCost& cost, Nanoseconds& start, Nanoseconds& end) {
    start = ready;
    for (const ResourceUse& use : cost.uses) start = std::max(start, free_at_[use.resource]);
    for (const ResourceUse& use : cost.uses) free_at_[use.resource] = start + use.occupancy;
    end = start + cost.duration;
  }

  template <bool recording>
  bool take_transfer(const Event& event, Nanoseconds limit, Nanoseconds& start, Nanoseconds& end) {
    const bool activation = kind_of(event.key) == TaskKind::activation;
    const int e = what_of(event.key);
    const Edge& edge = state_.edge(e);
    const BlockPair& pair = (*state_.edges[e].plan->pairs)[event.index];
    const DeviceId producer = state_.operators[edge.producer].devices[pair.producer_part];
    const DeviceId consumer = state_.operators[edge.consumer].devices[pair.consumer_part];
    state_.costs.communication().transfer(activation ? producer : consumer, activation ? consumer : producer, pair.bytes, transfer_cost_);
    occupy(event.ready, transfer_cost_, start, end);
    const OperatorPaths& paths = state_.paths;
    if (activation) {
      arrive_forward<recording>(edge.consumer, pair.consumer_part, end);
      return end + paths.least_forward[edge.consumer] + paths.tail_forward[edge.consumer] <= limit;
    }
    arrive_backward<recording>(edge.producer, pair.producer_part, end);
    return end + paths.least_backward[edge.producer] + paths.tail_backward[edge.producer] <= limit;
  }

  template <bool recording>
  void follow_forward(OperatorId op, int part, Nanoseconds end) {
    const DeviceId device = state_.tasks[op].parts[part].device;
    for (int e : state_.out_edges[op]) {
      const EdgePlan& plan = *state_.edges[e].plan;
      const OperatorId consumer = state_.edge(e).consumer;
      const std::vector<PartTasks>& parts = state_.tasks[consumer].parts;
      if (plan.one_to_one) {
        if (parts[part].device == device) arrive_forward<recording>(consumer, part, end);
        else push({end, make_task_key(TaskKind::activation, e, part, part), part, 0});
        continue;
      }
      for (int32_t i = plan.producer_begin[part]; i < plan.producer_begin[part + 1]; ++i) {
        const int32_t index = plan.by_producer[i];
        const int consumer_part = (*plan.pairs)[index].consumer_part;
        if (parts[consumer_part].device == device) arrive_forward<recording>(consumer, consumer_part, end);
        else push({end, make_task_key(TaskKind::activation, e, consumer_part, part), index, 0});
      }
    }
    if (!state_.has_backward(op)) arrive_units<recording>(op, part, end);
    else if (state_.tasks[op].parts[part].backward_waits == 0) push({end, make_task_key(first_backward(op), op, part, 0), 0, 0});
  }

  template <bool recording>
  void follow_backward(OperatorId op, int part, Nanoseconds end) {
    const DeviceId device = state_.tasks[op].parts[part].device;
    for (int e : state_.in_edges[op]) {
      if (!state_.edge_has_gradient[e]) continue;
      const EdgePlan& plan = *state_.edges[e].plan;
      const OperatorId producer = state_.edge(e).producer;
      const std::vector<PartTasks>& parts = state_.tasks[producer].parts;
      if (plan.one_to_one) {
        if (parts[part].device == device) arrive_backward<recording>(producer, part, end);
        else push({end, make_task_key(TaskKind::gradient, e, part, part), part, 0});
        continue;
      }
      for (int32_t index = plan.consumer_begin[part]; index < plan.consumer_begin[part + 1]; ++index) {
        const int producer_part = (*plan.pairs)[index].producer_part;
        if (parts[producer_part].device == device) arrive_backward<recording>(producer, producer_part, end);
        else push({end, make_task_key(TaskKind::gradient, e, part, producer_part), index, 0});
      }
    }
    arrive_units<recording>(op, part, end);
  }

  // Takes one task; false when the limit is certain to be passed.
  template <bool recording>
  bool take(const Event& event, Nanoseconds limit, Nanoseconds& start, Nanoseconds& end) {
    const int what = what_of(event.key), part = part_of(event.key);
    switch (kind_of(event.key)) {
      case TaskKind::forward: {
        const PartTasks& tasks = state_.tasks[what].parts[part];
        if (!take_on_device(event, tasks.device, tasks.forward, state_.paths.tail_forward[what], limit, start, end))
          return false;
        follow_forward<recording>(what, part, end);
        return true;
      }
      case TaskKind::backward: {
        const PartTasks& tasks = state_.tasks[what].parts[part];
        if (!take_on_device(event, tasks.device, tasks.backward, state_.paths.tail_backward[what], limit, start, end))
          return false;
        follow_backward<recording>(what, part, end);
        return true;
      }
      case TaskKind::forward_statistics: {
        const OperatorState& state = state_.operators[what];
        const Nanoseconds behind = state_.paths.tail_forward[what] + state.forward_kernel[part] - state.forward_statistics_kernel[part] +
                                   state.reductions[state.reduction_of[part]].collective.duration;
        if (!take_on_device(event, state.devices[part], state_.tasks[what].forward_statistics[part], behind, limit, start, end)) return false;
        arrive_reduction<recording>(TaskKind::forward_reduction, what, part, end);
        return true;
      }
      case TaskKind::backward_statistics: {
        const OperatorState& state = state_.operators[what];
        const Nanoseconds behind = state_.paths.tail_backward[what] + state.backward_kernel[part] - state.backward_statistics_kernel[part] +
                                   state.reductions[state.reduction_of[part]].collective.duration;
        if (!take_on_device(event, state.devices[part], state_.tasks[what].backward_statistics[part], behind, limit, start, end)) return false;
        arrive_reduction<recording>(TaskKind::backward_reduction, what, part, end);
        return true;
      }
      case TaskKind::forward_reduction:
      case TaskKind::backward_reduction: {
        const ReductionState& reduction = state_.operators[what].reductions[part];
        occupy(event.ready, reduction.collective, start, end);
        const TaskKind next = kind_of(event.key) == TaskKind::forward_reduction ? TaskKind::forward : TaskKind::backward;
        for (int member : reduction.parts) push({end, make_task_key(next, what, member, 0), 0, 0});
        return end + (next == TaskKind::forward ? state_.paths.tail_forward[what] : state_.paths.tail_backward[what]) <= limit;
      }
      case TaskKind::activation:
      case TaskKind::gradient:
        return take_transfer<recording>(event, limit, start, end);
      case TaskKind::synchronization: {
        const UnitState& unit = state_.groups[what].units[event.index];
        occupy(event.ready, unit.collective, start, end);
        for (size_t h = 0; h < unit.holders.size(); ++h)
          push({end, make_task_key(TaskKind::update, what, unit.number, unit.holders[h]), event.index, static_cast<int32_t>(h)});
        return end <= limit;
      }
      case TaskKind::update: {
        const UnitState& unit = state_.groups[what].units[event.index];
        return take_on_device(event, unit.holders[event.holder], unit.update[event.holder], 0, limit, start, end);
      }
    }
    return true;
  }

  // Takes all events; false as soon as the makespan is certain to exceed the limit. A recorded run keeps the timeline and snapshots of it.
  template <bool recording>
  bool run(Nanoseconds limit) {
    // So far apart that taking them costs a few words an event.
    size_t next_snapshot = taken_ == 0 ? 0 : taken_ + least_snapshot_distance;
    while (taken_ < initial_.size() || !queue_.empty()) {
      if (recording && taken_ >= next_snapshot) {
        take_snapshot();
        next_snapshot = taken_ + std::max(least_snapshot_distance, (partial_.size() * 3 + queue_.size() * 3 + resource_count_) / 16);
      }
      // Tasks without predecessors are ready at 0 and all others later: they come first, in the order of their keys.
      const Event event = taken_ < initial_.size() ? initial_[taken_] : queue_.pop();
      Nanoseconds start = 0, end = 0;
      ++statistics.events;
      if (!take<recording>(event, limit, start, end)) return false;
      makespan_ = std::max(makespan_, end);
      if (recording) {
        records.push_back({event.key, event.ready, start, end});
        remember(event, end);
      }
      ++taken_;
    }
    return true;
  }

  void remember(const Event& event, Nanoseconds end) {
    const TaskKind kind = kind_of(event.key);
    if (kind != TaskKind::forward && kind != TaskKind::backward) return;
    const OperatorId op = what_of(event.key);
    const int32_t slot = (kind == TaskKind::forward ? forward_slot_[op] : backward_slot_[op]) + part_of(event.key);
    ended_at_[slot] = end;
    position_[slot] = taken_;
    if (kind == TaskKind::forward) first_position_[op] = std::min(first_position_[op], taken_);
  }

  static constexpr size_t least_snapshot_distance = 32;  // events; fewer restart closer to a change and take longer to record

  StrategyState state_;
  ProposalBound bound_;
  const int device_count_;
  const size_t resource_count_;

  OperatorId proposed_ = -1;
  bool changed_ = false;
  size_t restarted_from_ = before_all;  // number of snapshots that the proposal's simulation left as they were

  // The simulation.
  std::vector<int32_t> forward_slot_, backward_slot_, forward_reduction_slot_, backward_reduction_slot_, capacity_;  // [operator]
  std::vector<int32_t> unit_slot_, unit_capacity_;                                                                   // [group]
  std::vector<Slot> slots_;
  uint32_t epoch_ = 1;
  size_t taken_ = 0;
  std::vector<Event> initial_;             // tasks without predecessors, in the order in which they are taken
  std::vector<Event> initial_of_current_;  // those of the current strategy while a proposal has its own
  EventQueue queue_;
  std::vector<Nanoseconds> free_at_, done_;
  Nanoseconds makespan_ = 0;
  CommunicationCost transfer_cost_;  // scratch

  // Of a recorded run: what has begun to arrive, and where in the list each slot stands.
  std::vector<Waiting> partial_;
  std::vector<int32_t> partial_at_;

  // Of the current strategy's timeline.
  std::vector<Snapshot> snapshots_;
  size_t snapshot_count_ = 0;
  std::vector<size_t> first_position_;  // [operator]: of its first forward task
  std::vector<Nanoseconds> ended_at_;   // [slot]: end of a forward or backward task
  std::vector<size_t> position_;        // [slot]: when it was taken
};

DeltaSimulator::DeltaSimulator(TaskGraphBuilder& builder, const Topology& topology, TaskCostModel& costs)
    : state_(std::make_unique<State>(builder, topology, costs)) {}
DeltaSimulator::~DeltaSimulator() = default;

void DeltaSimulator::reset(const Strategy& strategy) { state_->reset(strategy); }
const Strategy& DeltaSimulator::strategy() const { return state_->strategy(); }
Nanoseconds DeltaSimulator::makespan() const { return state_->makespan; }
std::optional<Nanoseconds> DeltaSimulator::propose(OperatorId op, const Configuration& configuration, Nanoseconds limit) {
  return state_->propose(op, configuration, limit);
}
void DeltaSimulator::accept() { state_->accept(); }
void DeltaSimulator::reject() { state_->reject(); }
const std::vector<DeltaSimulator::Record>& DeltaSimulator::records() const { return state_->records; }
const DeltaStatistics& DeltaSimulator::statistics() const { return state_->statistics; }

}  // namespace ff
