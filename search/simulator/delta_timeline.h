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
  const Event& front() const { return events_[head_]; }
  const Event* begin() const { return events_.data() + head_; }
  const Event* end() const { return events_.data() + events_.size(); }
  void save(std::vector<Event>& events) const { events.assign(begin(), end()); }
  // The saved events, so much later.
  void load(const std::vector<Event>& events, Nanoseconds later) {
    events_ = events;
    head_ = 0;
    if (later != 0)
      for (Event& event : events_) event.ready += later;
  }

 private:
  std::vector<Event> events_;
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
