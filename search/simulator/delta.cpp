#include "search/simulator/delta.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <chrono>
#include <cmath>
#include <limits>

#include "search/simulator/delta/rejoining.h"

namespace ff {

using namespace delta;

bool delta_simulates(const StrategySettings& settings) {
  return settings.recompute.empty() && !is_sharded(settings.synchronization) && settings.overlaps_reductions;
}

namespace {

using Clock = std::chrono::steady_clock;

// To record a proposal takes a tenth of its simulation, to simulate it again for that once it is accepted all of it.
class Simulations {
 public:
  bool are_often_accepted() const { return accepted_ * 16 >= simulated_; }
  void count() {
    if (++simulated_ < counted) return;
    simulated_ /= 2;
    accepted_ /= 2;
  }
  void count_accepted() { ++accepted_; }

 private:
  static constexpr int counted = 512;  // of the last ones
  int simulated_ = 0, accepted_ = 0;
};

// Bounds before building reject most proposals on large clusters and hardly any on small ones.
class EarlyBounds {
 public:
  bool are_worth_it() { return rejected_ * 8 >= looked_at_ || ++left_out_ % 16 == 0; }
  void count(bool rejected) {
    rejected_ += rejected;
    if (++looked_at_ < counted) return;
    looked_at_ /= 2;
    rejected_ /= 2;
  }

 private:
  static constexpr int counted = 512;                  // of the last ones
  int looked_at_ = 32, rejected_ = 32, left_out_ = 0;  // at first they are
};

}  // namespace

class DeltaSimulator::State {
 public:
  State(TaskGraphBuilder& builder, const Topology& topology, TaskCostModel& costs)
      : state_(builder, topology, costs), bounds_(state_), loop_(state_, bounds_, layout_), timeline_(state_, layout_),
        touched_(state_), rejoining_(loop_, timeline_, layout_, touched_) {}

  void reset(const Strategy& strategy) {
    in_vain_ = nullptr;
    state_.reset(strategy);
    bounds_.reset();
    lay_out();
    initial_ = EventLoop::initial_events(state_);
    kept_snapshots_ = 0;
    rejoining_.forbid();
    record();
    adopt();
  }

  std::optional<Nanoseconds> propose(const Vector<Change>& changes, Nanoseconds limit,
                                     const std::atomic<bool>* in_vain) {
    begin_ = Clock::now();
    ++statistics_.proposals;
    changed_ = false;
    if (limit != unlimited && changes.size() == 1 && early_bounds_.are_worth_it()) {
      const Bound exceeded = bounds_.exceed_before_building(changes[0], known_before(changes[0].op), limit);
      early_bounds_.count(exceeded != Bound::none);
      if (is_rejected_by(exceeded)) return std::nullopt;
    }
    state_.change(changes);
    bounds_.change();
    changed_ = true;
    if (is_rejected_by(bounds_.exceed_before_events(limit))) return std::nullopt;
    restart();
    recorded_ = simulations_.are_often_accepted();
    if (recorded_) timeline_.begin_recording(kept_snapshots_);
    const Vector<Event>& initial = kept_snapshots_ == 0 ? proposed_initial_ : initial_;
    in_vain_ = in_vain;
    const bool ended = recorded_ ? run<true>(initial, limit) : run<false>(initial, limit);
    simulations_.count();
    in_vain_ = nullptr;
    if (!ended) {
      ++statistics_.rejected_during_simulation;
      return std::nullopt;
    }
    return loop_.latest_end();
  }

  void accept() {
    assert(changed_);
    changed_ = false;
    if (kept_snapshots_ == 0) initial_.swap(proposed_initial_);
    if (!recorded_) record();
    adopt();
    simulations_.count_accepted();
    if (bounds_.accept()) timeline_.recount_progress(bounds_);
    count_time();
  }

  void reject() {
    if (changed_) {
      changed_ = false;
      state_.undo();
      bounds_.undo();
    }
    count_time();
  }

  Bound rejected_by() const { return rejected_by_; }
  const Strategy& strategy() const { return state_.strategy; }
  Nanoseconds makespan() const { return makespan_; }
  const Vector<Record>& records() const { return timeline_.records(); }
  const DeltaStatistics& statistics() const { return statistics_; }

 private:
  static constexpr Nanoseconds unlimited = std::numeric_limits<Nanoseconds>::max();

  void lay_out() {
    layout_.lay_out(state_);
    loop_.lay_out();
    timeline_.clear();
  }

  bool is_rejected_by(Bound bound) {
    rejected_by_ = bound;
    if (bound == Bound::none) return false;
    ++statistics_.rejected_before_simulation;
    ++statistics_.rejected_by[static_cast<size_t>(bound)];
    return true;
  }

  void count_time() {
    statistics_.times.add(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin_).count());
  }

  // What no change of this operator affects: the events before the first forward task of a producer, as long as all
  // parts wait for one.
  KnownPrefix known_before(OperatorId op) const {
    size_t first = KnownTimeline::never;
    bool all_wait = false;
    for (int e : state_.in_edges[op]) {
      first = std::min(first, timeline_.first_forward(state_.edge(e).producer));
      all_wait = all_wait || state_.every_part_reads[e];
    }
    if (!all_wait || first >= timeline_.records().size()) first = 0;
    return {timeline_, first, first > 0 ? timeline_.records()[first].ready : 0};
  }

  // At the last snapshot before anything that the proposal touches.
  void restart() {
    touched_.find(timeline_);
    const auto& changed = state_.replaced().operators;
    if (!std::all_of(changed.begin(), changed.end(),
                     [this](const auto& before) { return layout_.fits(state_, before.op); }))
      lay_out();
    kept_snapshots_ = touched_.from_beginning() ? 0 : timeline_.snapshots_until(touched_.first());
    if (kept_snapshots_ == 0) proposed_initial_ = EventLoop::initial_events(state_);
    if (timeline_.snapshots().empty()) rejoining_.forbid();
    else rejoining_.allow(initial_.size());
  }

  // Simulates the current strategy, recording it from the snapshots on that still hold: the change touches nothing that
  // has happened or begun by then.
  void record() {
    timeline_.begin_recording(kept_snapshots_);
    run<true>(initial_, unlimited);
  }

  // What has been simulated and recorded last is the known timeline.
  void adopt() {
    timeline_.adopt();
    makespan_ = loop_.latest_end();
    loop_.queue().set_density(timeline_.records().size(), makespan_);
  }

  // Takes all events after the kept snapshots; false as soon as it is not needed, or certain to exceed the limit.
  template <bool recording>
  bool run(const Vector<Event>& initial, Nanoseconds limit) {
    size_t taken = 0;
    if (kept_snapshots_ == 0) {
      loop_.start();
    } else {
      const Snapshot& snapshot = timeline_.snapshots()[kept_snapshots_ - 1];
      loop_.resume(snapshot);
      taken = snapshot.position;
    }
    for (; taken < initial.size(); ++taken) {
      if (recording) timeline_.before(initial[taken], loop_);
      if (!take<recording>(initial[taken], limit)) return false;
    }
    while (!loop_.queue().empty()) {
      const Event& next = loop_.queue().front();
      if (const std::optional<Skip> skip = rejoining_.find(next)) {
        ++statistics_.returned;
        if (recording) timeline_.repeat(*skip, loop_);
        loop_.end_at_least(timeline_.latest_of(*skip));
        if (skip->to_end) return loop_.latest_end() <= limit;
        loop_.skip(timeline_.snapshots()[skip->from], timeline_.snapshots()[skip->to], skip->later);
        continue;
      }
      if (recording) timeline_.before(next, loop_);
      if (!take<recording>(loop_.queue().pop(), limit)) return false;
    }
    return true;
  }

  template <bool recording>
  bool take(const Event& event, Nanoseconds limit) {
    constexpr int64_t asked_every = 256;  // events
    if (++statistics_.events % asked_every == 0 && in_vain_ && in_vain_->load(std::memory_order_relaxed)) return false;
    const TaskTime time = loop_.take(event, limit);
    if (!time) return false;
    loop_.end_at_least(time.end);
    if (recording) timeline_.record({event.key, event.ready, time.start, time.end});
    return true;
  }

  StrategyState state_;
  Bounds bounds_;
  SlotLayout layout_;
  EventLoop loop_;
  KnownTimeline timeline_;
  Touched touched_;
  Rejoining rejoining_;

  bool changed_ = false;                        // the state is a proposal's
  bool recorded_ = false;                       // its simulation
  Bound rejected_by_ = Bound::none;             // the last proposal; none: at an event
  const std::atomic<bool>* in_vain_ = nullptr;  // while it is simulated
  Simulations simulations_;
  EarlyBounds early_bounds_;
  size_t kept_snapshots_ = 0;       // so many hold for the proposal too
  Vector<Event> initial_;           // of the current strategy
  Vector<Event> proposed_initial_;  // of a proposal without snapshots
  Nanoseconds makespan_ = 0;        // of the current strategy
  Clock::time_point begin_;         // of the proposal
  DeltaStatistics statistics_;
};

const char* to_string(Bound bound) {
  switch (bound) {
    case Bound::none: return "at an event of its simulation";
    case Bound::work: return "by the bound on devices' work";
    case Bound::paths: return "by the bound on paths";
    case Bound::synchronization: return "by the bound on synchronization";
    case Bound::transfers: return "by the bound on transfers";
  }
  return "";
}

void ProposalTimes::add(int64_t nanoseconds) {
  const uint64_t time = static_cast<uint64_t>(std::max<int64_t>(4, nanoseconds));
  const int power = std::bit_width(time) - 1;
  const size_t range = static_cast<size_t>(4 * power) + (time >> (power - 2) & 3);
  ++counts_[std::min(range, counts_.size() - 1)];
}

double ProposalTimes::quantile_us(double share) const {
  int64_t all = 0, until = 0;
  for (const int64_t count : counts_) all += count;
  for (size_t range = 0; range < counts_.size(); ++range) {
    until += counts_[range];
    if (until == 0 || static_cast<double>(until) < share * static_cast<double>(all)) continue;
    const double begin = std::ldexp(1 + static_cast<double>(range % 4) / 4, static_cast<int>(range / 4));
    return begin * 1e-3;
  }
  return 0;
}

ProposalTimes& ProposalTimes::operator+=(const ProposalTimes& other) {
  for (size_t range = 0; range < counts_.size(); ++range) counts_[range] += other.counts_[range];
  return *this;
}

DeltaSimulator::DeltaSimulator(TaskGraphBuilder& builder, const Topology& topology, TaskCostModel& costs)
    : state_(std::make_unique<State>(builder, topology, costs)) {}
DeltaSimulator::~DeltaSimulator() = default;

void DeltaSimulator::reset(const Strategy& strategy) { state_->reset(strategy); }
const Strategy& DeltaSimulator::strategy() const { return state_->strategy(); }
Nanoseconds DeltaSimulator::makespan() const { return state_->makespan(); }
std::optional<Nanoseconds> DeltaSimulator::propose(const Vector<Change>& changes, Nanoseconds limit,
                                                   const std::atomic<bool>* in_vain) {
  return state_->propose(changes, limit, in_vain);
}
void DeltaSimulator::accept() { state_->accept(); }
void DeltaSimulator::reject() { state_->reject(); }
const char* DeltaSimulator::rejected_by() const { return to_string(state_->rejected_by()); }
const Vector<DeltaSimulator::Record>& DeltaSimulator::records() const { return state_->records(); }
const DeltaStatistics& DeltaSimulator::statistics() const { return state_->statistics(); }

}  // namespace ff
