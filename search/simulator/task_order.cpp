#include "search/simulator/task_order.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "search/simulator/take_task.h"

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
  void expect(int pass) {
    if (pass >= left_.count()) left_.resize(pass + 1);
    ++left_[pass];
  }
  void push(int pass, const WaitingTask& task) {
    int at = find(pass);
    if (at < 0) {
      at = ready_++;
      if (at == of_pass_.count()) of_pass_.emplace_back();
      of_pass_[at].pass = pass;
    }
    of_pass_[at].tasks.push(task);
  }
  bool empty() const { return ready_ == 0; }
  // Is there one that may be started?
  bool has_next() const { return in_ == none ? !empty() : find(in_) >= 0 || find(none) >= 0; }
  // The most urgent of those that may be started.
  int pop() {
    int found = in_ == none ? 0 : find(in_);
    if (found < 0) found = find(none);
    if (in_ == none)
      for (int other = 1; other < ready_; ++other)
        if (of_pass_[found].tasks.top() < of_pass_[other].tasks.top()) found = other;
    OfPass& next = of_pass_[found];
    const int pass = next.pass, task = next.tasks.top().task;
    next.tasks.pop();
    if (next.tasks.empty() && found != --ready_) std::swap(next, of_pass_[ready_]);
    if (pass != none) in_ = --left_[pass] > 0 ? pass : none;
    return task;
  }
  // Begins with another one all the same. False if it is in none, or nothing of another one is ready.
  bool leave_pass() { return std::exchange(in_, none) != none && !empty(); }

 private:
  static constexpr int none = -1;
  struct OfPass {
    int pass;
    std::priority_queue<WaitingTask> tasks;
  };
  int find(int pass) const {  // -1: no task of it is ready
    for (int at = 0; at < ready_; ++at)
      if (of_pass_[at].pass == pass) return at;
    return -1;
  }

  Vector<OfPass> of_pass_;  // the first `ready_`, in any order, have tasks; the others keep their memory
  int ready_ = 0;           // few: of micro-batches that may be in flight
  Vector<int> left_;        // [pass]: tasks that have not started
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
                 const Vector<int32_t>* passes = nullptr, RepetitionWatch* watch = nullptr)
      : dependencies_(dependencies), costs_(costs), admission_(admission), watch_(watch),
        free_at_(costs.resource_count, 0), ready_on_(costs.resource_count), is_looked_at_(costs.resource_count, false) {
    tasks_.reserve(graph.tasks.size());
    for (const int number : graph.tasks.indices()) {
      const Task& task = graph.tasks[number];
      const int pass = passes ? (*passes)[number] : -1;
      if (pass >= 0) ready_on_[task.device].expect(pass);
      tasks_.push_back({task.key, 0, 0, costs.duration[number], urgency[number], dependencies.predecessor_count[number],
                        occupies_device(task.kind) ? task.device : -1, pass});
    }
  }

  Timeline run() {
    for (const int task : tasks_.indices())
      if (tasks_[task].waiting == 0) events_.push({0, false, tasks_[task].key, task});
    Nanoseconds now = 0;
    while (true) {
      if (events_.empty() && !leave_passes(now)) {
        const Vector<int> admitted = admission_ ? admission_->let_in() : Vector<int>();
        if (admitted.empty()) break;
        for (const int task : admitted) wait_for_device(task, std::max(now, tasks_[task].ready));
      }
      const auto [time, of_device, key, number] = events_.top();
      now = time;
      events_.pop();
      if (of_device) start_next(number, time);
      else if (tasks_[number].device < 0) start(number, time);
      else if (!admission_ || admission_->admits(number)) wait_for_device(number, time);
    }
    return timeline();
  }

 private:
  // At a time first all tasks that become ready, by key, then devices, by number.
  struct Event {
    Nanoseconds time;
    bool of_device;
    TaskKey key;
    int number;
    bool operator>(const Event& other) const {
      if (time != other.time) return time > other.time;
      return of_device != other.of_device ? of_device : key > other.key;
    }
  };

  void wait_for_device(int number, Nanoseconds time) {
    const Scheduled& task = tasks_[number];
    const DeviceId device = task.device;
    ready_on_[device].push(task.pass, {task.urgency, time, task.key, number});
    if (!is_looked_at_[device] && ready_on_[device].has_next()) look_at(device, std::max(time, free_at_[device]));
  }

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
  void start(int number, Nanoseconds time) {
    if (watch_) watch_->take(number, time, free_at_);
    Scheduled& task = tasks_[number];
    task.start = take_task(costs_, number, time, free_at_);
    const Nanoseconds end = task.start + task.duration;
    for (int32_t s = dependencies_.successor_begin[number]; s < dependencies_.successor_begin[number + 1]; ++s) {
      Scheduled& next = tasks_[dependencies_.successors[s]];
      next.ready = std::max(next.ready, end);
      if (--next.waiting == 0) events_.push({next.ready, false, next.key, dependencies_.successors[s]});
    }
  }

  Timeline timeline() const {
    Timeline result;
    for (Vector<Nanoseconds>* const times : {&result.ready, &result.start, &result.end}) times->reserve(tasks_.size());
    for (const Scheduled& task : tasks_) {
      const Nanoseconds end = task.start + task.duration;
      result.ready.push_back(task.ready);
      result.start.push_back(task.start);
      result.end.push_back(end);
      result.makespan = std::max(result.makespan, end);
    }
    return result;
  }

  // What is needed of a task, in one place: tasks of a large graph are met in an order that no cache knows.
  struct Scheduled {
    TaskKey key;
    Nanoseconds ready, start, duration, urgency;
    int32_t waiting;  // for so many predecessors
    DeviceId device;  // that it occupies; -1: none
    int32_t pass;     // MicroBatchSchedule::pass; -1: none
  };

  const Dependencies dependencies_;
  const TaskCosts& costs_;
  Admission* const admission_;
  RepetitionWatch* const watch_;
  Vector<Scheduled> tasks_;
  Vector<Nanoseconds> free_at_;   // [resource]
  Vector<ReadyTasks> ready_on_;   // [device]
  Vector<uint8_t> is_looked_at_;  // [device]: an event to come does
  std::priority_queue<Event, Vector<Event>, std::greater<>> events_;
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
  return with_further(tasks, [&](int task, const auto& visit) {
    if (next[task] >= 0) visit(next[task]);
  });
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
                                           const MicroBatchSchedule& schedule, Passes passes, RepetitionWatch* watch) {
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
                        passes == Passes::mixed ? nullptr : &schedule.pass, watch)
      .run();
}

Timeline simulate_in_order(const TaskGraph& tasks, const TaskCosts& costs, const Vector<int>& order) {
  return simulate_in_order(tasks, costs, order, nullptr).first;
}

std::pair<Timeline, std::optional<Repetition>> simulate_in_order(const TaskGraph& tasks, const TaskCosts& costs,
                                                                 const Vector<int>& order, RepetitionWatch* watch) {
  const OwnDependencies chained = with_chains(tasks, by_device(tasks, order));
  const Dependencies dependencies(chained);
  Timeline timeline = simulate_full(tasks, dependencies, costs, watch);
  const auto repetition = watch ? watch->found(tasks, dependencies, timeline) : std::nullopt;
  // A task is ready when its data is, whatever its device does.
  std::fill(timeline.ready.begin(), timeline.ready.end(), 0);
  for (const int task : tasks.tasks.indices())
    for (int32_t s = tasks.successor_begin[task]; s < tasks.successor_begin[task + 1]; ++s)
      timeline.ready[tasks.successors[s]] = std::max(timeline.ready[tasks.successors[s]], timeline.end[task]);
  return {std::move(timeline), repetition};
}

bool transfers_keep_devices_busy(const TaskGraph& tasks, const TaskCosts& costs) {
  if (!costs.beside.empty()) return true;
  for (const int task : tasks.tasks.indices()) {
    if (occupies_device(tasks.tasks[task].kind)) continue;
    for (const ResourceUse& use : costs.uses_of(task))
      if (costs.is_device(use.resource)) return true;
  }
  return false;
}

bool same_on_devices(const TaskGraph& tasks, const Vector<int>& order, const Vector<int>& other) {
  return by_device(tasks, order) == by_device(tasks, other);
}

}  // namespace ff
