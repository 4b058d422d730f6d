// What a delta simulation keeps while events are taken, and of a timeline to restart from.
#pragma once

#include "common/vector.h"
#include "search/simulator/delta/event_queue.h"

namespace ff::delta {

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

// Where a simulation stands: everything that a restart needs. Small, since what has not begun to arrive needs no
// mention.
struct Snapshot {
  struct Partial {
    Waiting waiting;
    int32_t arrived;
    Nanoseconds ready;
  };
  size_t position = 0;    // events taken
  TaskKey next = 0;       // of the event to be taken then
  Nanoseconds ready = 0;  // of that event
  Vector<Partial> partial;
  Vector<Event> queue;
  Vector<Nanoseconds> free_at;        // [resource]
  Vector<Nanoseconds> done;           // [device]: compute and update work taken so far
  Nanoseconds makespan = 0;           // latest end so far
  Nanoseconds latest_until_next = 0;  // latest end of the events up to the next snapshot
  Nanoseconds latest_behind = 0;      // of all events behind this
};

}  // namespace ff::delta
