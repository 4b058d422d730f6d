// Returning to the known timeline.
#pragma once

#include <optional>

#include "common/vector.h"
#include "search/simulator/delta/touched.h"

namespace ff::delta {

// Taking tasks first in, first out does not depend on when it is: once all that a change touches is in the past,
// and the queue, what has arrived and the free times of resources are those of a snapshot but for a shift of all
// times, what follows is what followed the snapshot, shifted. A change touches tasks in two places, forward and
// backward; between them the simulation may skip to the second.
class Rejoining {
 public:
  Rejoining(EventLoop& loop, const KnownTimeline& timeline, const SlotLayout& layout, const Touched& touched)
      : loop_(loop), timeline_(timeline), layout_(layout), touched_(touched) {}

  // A known timeline that begins with so many initial events can be returned to.
  void allow(size_t known_initial) {
    allowed_ = true;
    known_initial_ = known_initial;
  }
  void forbid() { allowed_ = false; }
  bool allowed() const { return allowed_; }

  // What can be skipped from where the simulation stands, with this event next.
  std::optional<Skip> find(const Event& next) {
    if (!allowed_) return std::nullopt;
    const std::optional<size_t> index = timeline_.known_before(next.key);
    return index ? find_from(*index, next.ready) : std::nullopt;
  }

 private:
  std::optional<Skip> find_from(size_t index, Nanoseconds ready);
  bool stands_at(const Snapshot& snapshot, Nanoseconds later);

  EventLoop& loop_;
  const KnownTimeline& timeline_;
  const SlotLayout& layout_;
  const Touched& touched_;
  bool allowed_ = false;
  size_t known_initial_ = 0;
  Vector<Event> queue_;  // scratch
};

}  // namespace ff::delta
