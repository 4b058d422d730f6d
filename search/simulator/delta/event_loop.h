// A simulation: tasks are taken in order of (ready time, key), occupy their resources, and make others ready.
#pragma once

#include "common/task_graph/wiring.h"
#include "common/vector.h"
#include "search/simulator/delta/arrivals.h"
#include "search/simulator/delta/bounds/bounds.h"
#include "search/simulator/delta/event_queue.h"

namespace ff::delta {

// Where a simulation stands: everything that going on from there needs. Small, since what has not begun to arrive needs
// no mention.
struct LoopState {
  Vector<Arrivals::Partial> partial;
  Vector<Event> queue;
  Vector<Nanoseconds> free_at;  // [resource]
  Progress progress;
  Nanoseconds latest_end = 0;  // of the tasks taken so far

  void shift(Nanoseconds later);
};

// Backward is forward with producers and consumers in each other's place. The direction is known at compile time, since
// this is where the search spends its time (5 % of its instructions otherwise).
class EventLoop {
 public:
  EventLoop(StrategyState& state, Bounds& bounds, const SlotLayout& layout)
      : state_(state), bounds_(bounds), layout_(layout), arrivals_(state, layout) {}

  void lay_out() { arrivals_.lay_out(); }

  // Tasks without predecessors, in the order in which they are taken: before all others, since these are ready later.
  // They are not in the queue.
  static Vector<Event> initial_events(const StrategyState& state);

  void start();  // nothing has been taken
  void resume(const LoopState& from);
  // What follows up to `to` is what followed `from`, so much later. Its latest end is to be given.
  void skip(const LoopState& from, const LoopState& to, Nanoseconds later);
  void end_at_least(Nanoseconds end) { latest_end_ = std::max(latest_end_, end); }

  // Takes the task; no time when the makespan is certain to exceed the limit.
  TaskTime take(const Event& event, Nanoseconds limit);

  Nanoseconds latest_end() const { return latest_end_; }
  const Arrivals& arrivals() const { return arrivals_; }
  const Vector<Nanoseconds>& free_at() const { return free_at_; }
  const Progress& progress() const { return progress_; }
  EventQueue& queue() { return queue_; }
  const EventQueue& queue() const { return queue_; }
  void save(LoopState& to);

 private:
  template <Direction direction>
  TaskTime take_compute(const Event& event, Nanoseconds limit);
  template <Direction direction>
  TaskTime take_reduction(const Event& event, Nanoseconds limit);
  template <Direction direction>
  TaskTime take_transfer(const Event& event, Nanoseconds limit);
  template <Direction direction>
  TaskTime take_collective(const Event& event, Nanoseconds limit);
  TaskTime take_synchronization(const Event& event, Nanoseconds limit);
  TaskTime take_update(const Event& event, Nanoseconds limit);
  TaskTime take_barrier(const Event& event, Nanoseconds limit);
  TaskTime take_parameter_gradient(const Event& event, Nanoseconds limit);
  TaskTime take_parameter_values(const Event& event, Nanoseconds limit);
  TaskTime take_on_device(const Event& event, const DeviceTask& task, Nanoseconds limit);
  TaskTime occupy(Nanoseconds ready, const CommunicationCost& cost);

  template <Direction direction>
  void follow(OperatorId op, int part, Nanoseconds end);
  template <Direction direction>
  void arrive(OperatorId op, int part, Nanoseconds end);
  template <Direction direction>
  void arrive_collective(int e, int part, Nanoseconds end);
  void arrive_reduction(Direction direction, OperatorId op, int part, Nanoseconds end);
  void arrive_barrier(DeviceId device, Nanoseconds end);
  void arrive_units(OperatorId op, int part, Nanoseconds end);
  void arrive_unit(int g, int32_t u, const UnitState& unit, Nanoseconds end);
  template <TaskKind kind>
  void release_successors(const UnitState& unit, const Event& event, Nanoseconds end);
  template <TaskKind before>
  void release(int g, int32_t u, const UnitState& unit, UnitTask next, Nanoseconds end);
  void push(int g, int32_t u, const UnitState& unit, UnitTask task, Nanoseconds ready);
  void load(const LoopState& from, Nanoseconds later);

  StrategyState& state_;
  const Bounds& bounds_;
  const SlotLayout& layout_;
  Arrivals arrivals_;
  EventQueue queue_;
  Vector<Nanoseconds> free_at_;  // [resource]
  Progress progress_;
  Nanoseconds latest_end_ = 0;
  // Scratch:
  CommunicationCost transfer_cost_;
  struct HeldUnit {
    int group;
    int32_t unit;
    int place;  // among the holders
  };
  Vector<HeldUnit> held_;  // of one device
};

}  // namespace ff::delta
