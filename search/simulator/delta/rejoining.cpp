#include "search/simulator/delta/rejoining.h"

#include <algorithm>

namespace ff::delta {

std::optional<Skip> Rejoining::find_from(size_t index, Nanoseconds ready) {
  const Snapshot& snapshot = timeline_.snapshots()[index];
  if (snapshot.position <= touched_.last_forward() || snapshot.position < known_initial_) return std::nullopt;
  Skip skip{index, index, snapshot.position > touched_.last_backward(), ready - snapshot.ready};
  if (skip.to_end) {
    skip.to = timeline_.snapshots().size();
  } else {
    while (skip.to + 1 < timeline_.snapshots().size() &&
           timeline_.snapshots()[skip.to + 1].position <= touched_.first_backward())
      ++skip.to;
    if (skip.to == index) return std::nullopt;
  }
  if (!stands_at(snapshot, skip.later)) return std::nullopt;
  return skip;
}

// Is everything as after the snapshot but for a shift, and untouched by the change?
bool Rejoining::stands_at(const Snapshot& snapshot, Nanoseconds later) {
  const Arrivals& arrivals = loop_.arrivals();
  if (loop_.queue().size() != snapshot.queue.size() || arrivals.partial_count() != snapshot.partial.size())
    return false;
  // Times before the next event make no difference any more.
  for (size_t resource = 0; resource < snapshot.free_at.size(); ++resource)
    if (std::max(loop_.free_at()[resource] - later, snapshot.ready) !=
        std::max(snapshot.free_at[resource], snapshot.ready))
      return false;
  for (const Arrivals::Partial& known : snapshot.partial)
    if (!arrivals.equal(known, snapshot.ready, later) || touched_.contains(layout_.waiting(known.slot))) return false;
  loop_.queue().save(queue_);  // last, since it takes longest
  for (size_t i = 0; i < queue_.size(); ++i) {
    const Event &event = queue_[i], &known = snapshot.queue[i];
    if (event.key != known.key || event.ready != known.ready + later || event.index != known.index ||
        event.holder != known.holder || touched_.contains(known.key))
      return false;
  }
  return true;
}

}  // namespace ff::delta
