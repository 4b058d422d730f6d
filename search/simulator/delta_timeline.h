// What a delta simulation keeps while events are taken, and of a timeline to restart from.
#pragma once

#include <algorithm>
#include <vector>

#include "common/task_graph/task_graph.h"
#include "search/simulator/timeline.h"

namespace ff::delta {

// A task that is ready to be taken.
struct Event {
  Nanoseconds ready;
  TaskKey key;
  int32_t index;  // transfers: the pair; synchronization and update: the unit
  int32_t holder;  // update
};
inline bool earlier(const Event& a, const Event& b) { return a.ready != b.ready ? a.ready < b.ready : a.key < b.key; }

// Ready tasks in the order in which they are taken: a sorted array, since most tasks become ready behind nearly all others that are, and a heap of
// those that would have to move many.
class EventQueue {
 public:
  bool empty() const { return size() == 0; }
  size_t size() const { return events_.size() - head_ + heap_.size(); }
  void clear() {
    events_.clear();
    heap_.clear();
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
    const auto end = events_.begin() + static_cast<int64_t>(at);
    const auto place = std::upper_bound(events_.begin() + static_cast<int64_t>(head_), end, event, earlier);
    if (end - place <= most_moved) {
      std::copy_backward(place, end, end + 1);
      *place = event;
      return;
    }
    for (; at + 1 < events_.size(); ++at) events_[at] = events_[at + 1];  // back to where they were
    events_.pop_back();
    heap_.push_back(event);
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  const Event& front() const { return heap_is_first() ? heap_.front() : events_[head_]; }
  Event pop() {
    if (heap_is_first()) {
      std::pop_heap(heap_.begin(), heap_.end(), later);
      const Event event = heap_.back();
      heap_.pop_back();
      return event;
    }
    const Event event = events_[head_++];
    if (head_ >= 4096 && 2 * head_ >= events_.size()) {
      events_.erase(events_.begin(), events_.begin() + static_cast<int64_t>(head_));
      head_ = 0;
    }
    return event;
  }
  // All events, in order.
  const Event* sorted() {
    if (!heap_.empty()) {
      std::sort(heap_.begin(), heap_.end(), earlier);
      const int64_t middle = static_cast<int64_t>(events_.size());
      events_.insert(events_.end(), heap_.begin(), heap_.end());
      std::inplace_merge(events_.begin() + static_cast<int64_t>(head_), events_.begin() + middle, events_.end(), earlier);
      heap_.clear();
    }
    return events_.data() + head_;
  }
  void save(std::vector<Event>& events) {
    const Event* first = sorted();
    events.assign(first, first + size());
  }
  // The saved events, so much later.
  void load(const std::vector<Event>& events, Nanoseconds later) {
    events_ = events;
    heap_.clear();
    head_ = 0;
    if (later != 0)
      for (Event& event : events_) event.ready += later;
  }

 private:
  static constexpr int64_t most_moved = 256;
  static bool later(const Event& a, const Event& b) { return earlier(b, a); }
  bool heap_is_first() const { return !heap_.empty() && (head_ == events_.size() || earlier(heap_.front(), events_[head_])); }

  std::vector<Event> events_;  // sorted from head_ on
  std::vector<Event> heap_;
  size_t head_ = 0;
};

inline TaskKind kind_of(TaskKey key) { return static_cast<TaskKind>(key >> 60); }
inline int what_of(TaskKey key) { return static_cast<int>(key >> 40 & 0xFFFFF); }
inline int part_of(TaskKey key) { return static_cast<int>(key >> 20 & 0xFFFFF); }

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
  TaskKey next = 0;                  // of the event to be taken then
  Nanoseconds ready = 0;             // of that event
  std::vector<Partial> partial;
  std::vector<Event> queue;
  std::vector<Nanoseconds> free_at;  // [resource]
  std::vector<Nanoseconds> done;     // [device]: compute and update work taken so far
  Nanoseconds makespan = 0;          // latest end so far
  Nanoseconds latest_until_next = 0;  // latest end of the events up to the next snapshot
  Nanoseconds latest_behind = 0;      // of all events behind this
};

}  // namespace ff::delta
