#include "search/simulator/task_order.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

namespace ff {
namespace {

// From each task's start to the end of all, along the longest path.
Vector<Nanoseconds> paths_behind(const TaskGraph& graph, const TaskCosts& costs, const Timeline& timeline) {
  Vector<int> order = tasks_by_start(graph, timeline);
  Vector<Nanoseconds> paths(graph.tasks.size(), 0);
  for (auto task = order.rbegin(); task != order.rend(); ++task) {
    Nanoseconds longest = 0;
    for (int32_t s = graph.successor_begin[*task]; s < graph.successor_begin[*task + 1]; ++s)
      longest = std::max(longest, paths[graph.successors[s]]);
    paths[*task] = costs.duration[*task] + longest;
  }
  return paths;
}

// Dependencies that a task graph does not have itself.
struct OwnDependencies {
  Vector<int32_t> successor_begin, successors, predecessor_count;
};

// The same tasks, each a predecessor of those that it waited for.
OwnDependencies reversed(const TaskGraph& graph) {
  OwnDependencies result{{0}, Vector<int32_t>(graph.successors.size()), {}};
  for (const int32_t count : graph.predecessor_count)
    result.successor_begin.push_back(result.successor_begin.back() + count);
  Vector<int32_t> next = result.successor_begin;
  for (const int task : graph.tasks.indices()) {
    result.predecessor_count.push_back(graph.successor_begin[task + 1] - graph.successor_begin[task]);
    for (int32_t s = graph.successor_begin[task]; s < graph.successor_begin[task + 1]; ++s)
      result.successors[next[graph.successors[s]]++] = task;
  }
  return result;
}

// Which micro-batches are in flight on which device: begun, and not all of their tasks have started there. Forward
// tasks of others are held back where there are as many as may be.
class Admission {
 public:
  Admission(const TaskGraph& graph, const MicroBatchSchedule& schedule)
      : graph_(graph), schedule_(schedule), devices_(schedule.in_flight.size()) {
    for (const int task : graph.tasks.indices())
      if (const int k = schedule.micro_batch[task]; k >= 0) {
        Vector<int>& left = devices_[graph.tasks[task].device].left;
        if (k >= left.count()) left.resize(k + 1);
        ++left[k];
      }
  }

  // May the device begin with the task, which has become ready? Else it is held back.
  bool admits(int task) {
    const int k = schedule_.micro_batch[task];
    if (k < 0 || !is_forward(graph_.tasks[task].kind)) return true;
    const DeviceId device = graph_.tasks[task].device;
    OnDevice& on = devices_[device];
    if (!on.in_flight.contains(k) && std::ssize(on.in_flight) >= schedule_.in_flight[device]) {
      on.held[k].push_back(task);
      return false;
    }
    on.in_flight.insert(k);
    return true;
  }

  // The tasks that were held back and may now begin, as the last task of a micro-batch has been started on a device.
  Vector<int> started(int task) {
    const int k = schedule_.micro_batch[task];
    if (k < 0) return {};
    OnDevice& on = devices_[graph_.tasks[task].device];
    if (--on.left[k] > 0) return {};
    on.in_flight.erase(k);
    return on.held.empty() ? Vector<int>() : begin_first(on);
  }

  // Nothing runs any more: the first micro-batch that is held back anywhere begins. Empty: none is held back.
  Vector<int> let_in() {
    OnDevice* first = nullptr;
    for (OnDevice& on : devices_)
      if (!on.held.empty() && (!first || on.held.begin()->first < first->held.begin()->first)) first = &on;
    return first ? begin_first(*first) : Vector<int>();
  }

 private:
  struct OnDevice {
    Vector<int> left;                 // [micro-batch]: tasks that have not started
    std::set<int> in_flight;          // micro-batches
    std::map<int, Vector<int>> held;  // micro-batch: its forward tasks that are ready
  };

  static Vector<int> begin_first(OnDevice& on) {
    const auto first = on.held.begin();
    on.in_flight.insert(first->first);
    Vector<int> tasks = std::move(first->second);
    on.held.erase(first);
    return tasks;
  }

  const TaskGraph& graph_;
  const MicroBatchSchedule& schedule_;
  Vector<OnDevice> devices_;
};

// Of a device's tasks that are ready: the most urgent, then the first that was ready, then the key.
struct WaitingTask {
  Nanoseconds urgency, ready;
  TaskKey key;
  int task;
  bool operator<(const WaitingTask& other) const {
    return std::tie(urgency, other.ready, other.key) < std::tie(other.urgency, ready, key);
  }
};

// A device's tasks that are ready, by pass (MicroBatchSchedule). It goes through with one pass before it begins with
// another; tasks without a pass come in between.
class ReadyTasks {
 public:
  void expect(int pass) { ++left_[pass]; }
  void push(int pass, const WaitingTask& task) { of_pass_[pass].push(task); }
  bool empty() const { return of_pass_.empty(); }
  // Is there one that may be started?
  bool has_next() const { return in_ == none ? !empty() : of_pass_.contains(in_) || of_pass_.contains(none); }
  // The most urgent of those that may be started.
  int pop() {
    auto found = of_pass_.find(in_);
    if (in_ != none && found == of_pass_.end()) found = of_pass_.find(none);
    if (in_ == none)
      found = std::max_element(of_pass_.begin(), of_pass_.end(),
                               [](const auto& a, const auto& b) { return a.second.top() < b.second.top(); });
    const int pass = found->first, task = found->second.top().task;
    found->second.pop();
    if (found->second.empty()) of_pass_.erase(found);
    if (pass != none) in_ = --left_.at(pass) > 0 ? pass : none;
    return task;
  }
  // Begins with another one all the same. False if it is in none, or nothing of another one is ready.
  bool leave_pass() { return std::exchange(in_, none) != none && !empty(); }

 private:
  static constexpr int none = -1;
  std::map<int, std::priority_queue<WaitingTask>> of_pass_;  // none of them empty
  std::map<int, int> left_;                                  // [pass]: tasks that have not started
  int in_ = none;
};

// Tasks in the order of their events, as in simulate_full, but for those of a device, which wait for the device in a
// queue of its own.
class ListScheduling {
 public:
  // Of a device's tasks that are ready the one with the largest urgency is first. All must outlive the scheduling.
  // With `admission`, forward tasks may have to wait until their device begins with their micro-batch, and devices go
  // through with `passes` (MicroBatchSchedule::pass), if there are any.
  ListScheduling(const TaskGraph& graph, Dependencies dependencies, const TaskCosts& costs,
                 const Vector<Nanoseconds>& urgency, Admission* admission = nullptr,
                 const Vector<int32_t>* passes = nullptr)
      : graph_(graph), dependencies_(dependencies), costs_(costs), urgency_(urgency), admission_(admission),
        passes_(passes), free_at_(costs.resource_count, 0), waiting_(dependencies.predecessor_count),
        ready_on_(costs.resource_count), is_looked_at_(costs.resource_count, false) {
    const size_t count = graph.tasks.size();
    for (const int task : graph.tasks.indices())
      if (pass_of(task) >= 0) ready_on_[graph.tasks[task].device].expect(pass_of(task));
    timeline_.ready.assign(count, 0);
    timeline_.start.resize(count);
    timeline_.end.resize(count);
  }

  Timeline run() {
    for (const int task : graph_.tasks.indices())
      if (waiting_[task] == 0) events_.push({0, false, graph_.tasks[task].key, task});
    Nanoseconds now = 0;
    while (true) {
      if (events_.empty() && !leave_passes(now)) {
        const Vector<int> admitted = admission_ ? admission_->let_in() : Vector<int>();
        if (admitted.empty()) break;
        for (const int task : admitted) wait_for_device(task, std::max(now, timeline_.ready[task]));
      }
      const auto [time, of_device, key, number] = events_.top();
      now = time;
      events_.pop();
      if (of_device) start_next(number, time);
      else if (!occupies_device(graph_.tasks[number].kind)) start(number, time);
      else if (!admission_ || admission_->admits(number)) wait_for_device(number, time);
    }
    return std::move(timeline_);
  }

 private:
  // At a time first all tasks that become ready, by key, then devices, by number.
  using Event = std::tuple<Nanoseconds, bool, TaskKey, int>;

  void wait_for_device(int task, Nanoseconds time) {
    const DeviceId device = graph_.tasks[task].device;
    ready_on_[device].push(pass_of(task), {urgency_[task], time, graph_.tasks[task].key, task});
    if (!is_looked_at_[device] && ready_on_[device].has_next()) look_at(device, std::max(time, free_at_[device]));
  }

  int pass_of(int task) const { return passes_ ? (*passes_)[task] : -1; }

  // Nothing runs any more: devices begin with other passes than those that they are in. False if none can.
  bool leave_passes(Nanoseconds now) {
    bool any = false;
    for (const int device : ready_on_.indices())
      if (ready_on_[device].leave_pass()) {
        look_at(device, std::max(now, free_at_[device]));
        any = true;
      }
    return any;
  }

  void look_at(DeviceId device, Nanoseconds time) {
    is_looked_at_[device] = true;
    events_.push({time, true, static_cast<TaskKey>(device), device});
  }

  // The device has tasks that are ready.
  void start_next(DeviceId device, Nanoseconds time) {
    is_looked_at_[device] = false;
    if (free_at_[device] > time) return look_at(device, free_at_[device]);  // a transfer has kept it busy
    if (!ready_on_[device].has_next()) return;
    const int task = ready_on_[device].pop();
    start(task, time);
    if (admission_)
      for (const int admitted : admission_->started(task)) wait_for_device(admitted, time);
    if (ready_on_[device].has_next() && !is_looked_at_[device]) look_at(device, free_at_[device]);
  }

  // As soon as its resources are free.
  void start(int task, Nanoseconds time) {
    const auto uses = costs_.uses_of(task);
    for (const ResourceUse& use : uses) time = std::max(time, free_at_[use.resource]);
    for (const ResourceUse& use : uses) free_at_[use.resource] = time + use.occupancy;
    for (const auto& [device, work] : costs_.beside_of(task))
      free_at_[device] = free_behind(free_at_[device], time, costs_.duration[task], work);
    const Nanoseconds end = time + costs_.duration[task];
    timeline_.start[task] = time;
    timeline_.end[task] = end;
    timeline_.makespan = std::max(timeline_.makespan, end);
    for (int32_t s = dependencies_.successor_begin[task]; s < dependencies_.successor_begin[task + 1]; ++s) {
      const int32_t next = dependencies_.successors[s];
      timeline_.ready[next] = std::max(timeline_.ready[next], end);
      if (--waiting_[next] == 0) events_.push({timeline_.ready[next], false, graph_.tasks[next].key, next});
    }
  }

  const TaskGraph& graph_;
  const Dependencies dependencies_;
  const TaskCosts& costs_;
  const Vector<Nanoseconds>& urgency_;
  Admission* const admission_;
  const Vector<int32_t>* const passes_;  // null: none
  Vector<Nanoseconds> free_at_;          // [resource]
  Vector<int32_t> waiting_;              // [task]: for so many predecessors
  Vector<ReadyTasks> ready_on_;          // [device]
  Vector<uint8_t> is_looked_at_;         // [device]: an event to come does
  std::priority_queue<Event, Vector<Event>, std::greater<>> events_;
  Timeline timeline_;
};

// Each device's own tasks.
Vector<Vector<int>> by_device(const TaskGraph& tasks, const Vector<int>& order) {
  Vector<Vector<int>> result;
  for (const int task : order) {
    if (!occupies_device(tasks.tasks[task].kind)) continue;
    const DeviceId device = tasks.tasks[task].device;
    if (device >= result.count()) result.resize(device + 1);
    result[device].push_back(task);
  }
  return result;
}

// The same tasks, each of a device's own a successor of the one before it.
OwnDependencies with_chains(const TaskGraph& tasks, const Vector<Vector<int>>& chains) {
  Vector<int> next(tasks.tasks.count(), -1);
  for (const Vector<int>& chain : chains)
    for (size_t i = 1; i < chain.size(); ++i) next[chain[i - 1]] = chain[i];
  OwnDependencies chained{{0}, {}, tasks.predecessor_count};
  chained.successor_begin.reserve(tasks.successor_begin.size());
  chained.successors.reserve(tasks.successors.size() + tasks.tasks.size());
  for (const int task : tasks.tasks.indices()) {
    for (int32_t s = tasks.successor_begin[task]; s < tasks.successor_begin[task + 1]; ++s)
      chained.successors.push_back(tasks.successors[s]);
    if (next[task] >= 0) {
      chained.successors.push_back(next[task]);
      ++chained.predecessor_count[next[task]];
    }
    chained.successor_begin.push_back(static_cast<int32_t>(chained.successors.size()));
  }
  return chained;
}

}  // namespace

Timeline schedule_by_critical_path(const TaskGraph& tasks, const TaskCosts& costs, const Timeline& timeline) {
  const Vector<Nanoseconds> paths = paths_behind(tasks, costs, timeline);
  return ListScheduling(tasks, Dependencies(tasks), costs, paths).run();
}

Timeline schedule_by_latest_start(const TaskGraph& tasks, const TaskCosts& costs, const Timeline& timeline) {
  // From the end backwards a task's end is so long before the end of all.
  const OwnDependencies from_end = reversed(tasks);
  const Timeline backward = ListScheduling(tasks, Dependencies(from_end), costs, timeline.end).run();
  return ListScheduling(tasks, Dependencies(tasks), costs, backward.end).run();
}

Timeline schedule_one_forward_one_backward(const TaskGraph& tasks, const TaskCosts& costs,
                                           const MicroBatchSchedule& schedule, Passes passes) {
  const int count = std::accumulate(schedule.micro_batch.begin(), schedule.micro_batch.end(), 0,
                                    [](int most, int k) { return std::max(most, k + 1); });
  Vector<Nanoseconds> urgency;
  for (const int t : tasks.tasks.indices()) {
    const TaskKind kind = tasks.tasks[t].kind;
    const Nanoseconds first = is_forward(kind) ? count + 1 : 2 * (count + 1);  // of the micro-batches
    urgency.push_back(is_compute(kind) ? first - schedule.micro_batch[t] : 0);
  }
  Admission admission(tasks, schedule);
  return ListScheduling(tasks, Dependencies(tasks), costs, urgency, &admission,
                        passes == Passes::whole ? &schedule.pass : nullptr)
      .run();
}

Timeline simulate_in_order(const TaskGraph& tasks, const TaskCosts& costs, const Vector<int>& order) {
  const OwnDependencies chained = with_chains(tasks, by_device(tasks, order));
  Timeline timeline = simulate_full(tasks, Dependencies(chained), costs);
  // A task is ready when its data is, whatever its device does.
  std::fill(timeline.ready.begin(), timeline.ready.end(), 0);
  for (const int task : tasks.tasks.indices())
    for (int32_t s = tasks.successor_begin[task]; s < tasks.successor_begin[task + 1]; ++s)
      timeline.ready[tasks.successors[s]] = std::max(timeline.ready[tasks.successors[s]], timeline.end[task]);
  return timeline;
}

bool transfers_keep_devices_busy(const TaskGraph& tasks, const TaskCosts& costs) {
  if (!costs.beside.empty()) return true;
  DeviceId devices = 0;  // resources before the channels
  for (const Task& task : tasks.tasks)
    if (occupies_device(task.kind)) devices = std::max(devices, task.device + 1);
  for (const int task : tasks.tasks.indices()) {
    if (occupies_device(tasks.tasks[task].kind)) continue;
    for (const ResourceUse& use : costs.uses_of(task))
      if (use.resource < devices) return true;
  }
  return false;
}

bool same_on_devices(const TaskGraph& tasks, const Vector<int>& order, const Vector<int>& other) {
  return by_device(tasks, order) == by_device(tasks, other);
}

}  // namespace ff
