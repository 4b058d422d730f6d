#include "search/simulator/delta/known_timeline.h"

#include <algorithm>

namespace ff::delta {

void KnownTimeline::clear() {
  snapshots_.clear();
  position_.assign(layout_.count(), -1);
  snapshot_at_.assign(layout_.count(), -1);
  first_forward_.assign(state_.operators.size(), 0);
  first_before_barrier_ = 0;
}

Nanoseconds KnownTimeline::latest_of(const Skip& skip) const {
  if (skip.to_end) return known(skip.from).latest_behind + skip.later;
  Nanoseconds latest = 0;
  for (size_t i = skip.from; i < skip.to; ++i) latest = std::max(latest, known(i).latest_until_next + skip.later);
  return latest;
}

void KnownTimeline::begin_recording(size_t kept_snapshots, bool may_return) {
  recording_ = true;
  const size_t position = kept_snapshots == 0 ? 0 : snapshots_[kept_snapshots - 1].position;
  previous_.records.clear();
  previous_.snapshots.clear();
  previous_.first_record = position;
  previous_.first_snapshot = kept_snapshots;
  if (may_return) {
    previous_.records.assign(records_.begin() + static_cast<int64_t>(position), records_.end());
    for (size_t i = kept_snapshots; i < snapshots_.size(); ++i) std::swap(previous_.snapshots.add(), snapshots_[i]);
  }
  snapshots_.shrink(kept_snapshots);
  if (kept_snapshots > 0) snapshots_.back().latest_until_next = 0;
  records_.resize(position);
  for (size_t& first : first_forward_)
    if (first >= position) first = never;
  if (first_before_barrier_ >= position) first_before_barrier_ = never;
}

// Snapshots are so far apart that taking them costs a few words an event, and where a changed timeline is most likely
// to be as it was, but for a shift: at a reduction, behind which all parts begin together, else at a compute task.
size_t KnownTimeline::snapshot_distance(const Event& next, const EventLoop& loop) const {
  const size_t words = loop.arrivals().partial_count() * 3 + loop.queue().size() * 3 + loop.free_at().size();
  const TaskKind kind = kind_of(next.key);
  const size_t factor = is_reduction(kind) ? 1 : kind == TaskKind::forward || kind == TaskKind::backward ? 2 : 4;
  return factor * std::max(least_snapshot_distance, words / 16);
}

Snapshot& KnownTimeline::add_snapshot(TaskKey next) {
  if (const int32_t slot = layout_.slot(next); slot >= 0) snapshot_at_[slot] = static_cast<int32_t>(snapshots_.size());
  return snapshots_.add();
}

void KnownTimeline::take_snapshot(const Event& next, EventLoop& loop) {
  Snapshot& snapshot = add_snapshot(next.key);
  snapshot.position = records_.size();
  snapshot.next = next.key;
  snapshot.ready = next.ready;
  snapshot.latest_until_next = 0;
  loop.save(snapshot);
}

void KnownTimeline::repeat(const Skip& skip, EventLoop& loop) {
  const Snapshot& first = known(skip.from);
  for (size_t i = skip.from; i <= skip.to && i < known_end(); ++i) {
    if (i > skip.from || is_snapshot_due(loop.queue().front(), loop)) {
      const Nanoseconds latest_end = std::max(snapshots_.back().latest_end, snapshots_.back().latest_until_next);
      Snapshot& snapshot = add_snapshot(known(i).next);
      snapshot = known(i);
      snapshot.shift(skip.later);
      snapshot.position = records_.size();
      snapshot.ready += skip.later;
      snapshot.latest_until_next = 0;
      snapshot.progress.add(first.progress, loop.progress());
      snapshot.latest_end = latest_end;
    }
    if (i == skip.to) break;
    const size_t end = i + 1 < known_end() ? known(i + 1).position : previous_.first_record + previous_.records.size();
    Nanoseconds latest = 0;
    for (size_t r = known(i).position; r < end; ++r) {
      const Record& its = previous_.records[r - previous_.first_record];
      append({its.key, its.ready + skip.later, its.start + skip.later, its.end + skip.later});
      latest = std::max(latest, its.end + skip.later);
    }
    snapshots_.back().latest_until_next = std::max(snapshots_.back().latest_until_next, latest);
  }
}

void KnownTimeline::end_recording() {
  recording_ = false;
  Nanoseconds latest = 0;
  for (size_t i = snapshots_.size(); i-- > 0;)
    snapshots_[i].latest_behind = latest = std::max(latest, snapshots_[i].latest_until_next);
}

void KnownTimeline::recount_progress(const Bounds& bounds) {
  Progress progress;
  progress.done.resize(state_.topology.devices.size());
  size_t next = 0;
  for (size_t taken = 0; next < snapshots_.size(); ++taken) {
    for (; next < snapshots_.size() && snapshots_[next].position == taken; ++next) snapshots_[next].progress = progress;
    if (taken == records_.size()) break;
    const Record& record = records_[taken];
    bounds.count(record.key, record.end - record.start, progress);
  }
}

}  // namespace ff::delta
