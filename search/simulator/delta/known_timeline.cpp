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
  if (skip.to_end) return snapshots_[skip.from].latest_behind + skip.later;
  Nanoseconds latest = 0;
  for (size_t i = skip.from; i < skip.to; ++i) latest = std::max(latest, snapshots_[i].latest_until_next + skip.later);
  return latest;
}

void KnownTimeline::begin_recording(size_t kept_snapshots) {
  recorded_.kept_snapshots = kept_snapshots;
  recorded_.records.clear();
  recorded_.snapshots.clear();
  recorded_.repeats.clear();
  recorded_.has_snapshot = kept_snapshots > 0;
  recorded_.position = recorded_.last_snapshot = kept_snapshots == 0 ? 0 : snapshots_[kept_snapshots - 1].position;
}

// Snapshots are so far apart that taking them costs a few words an event, and where a changed timeline is most likely
// to be as it was, but for a shift: at a reduction, after which all parts begin together, else at a compute task.
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
  Snapshot& snapshot = recorded_.snapshots.add();
  snapshot.position = recorded_.last_snapshot = recorded_.position;
  recorded_.has_snapshot = true;
  snapshot.next = next.key;
  snapshot.ready = next.ready;
  snapshot.latest_until_next = 0;
  loop.save(snapshot);
}

void KnownTimeline::repeat(const Skip& skip, EventLoop& loop) {
  Repeat& repeat = recorded_.repeats.add();
  repeat.skip = skip;
  repeat.records = recorded_.records.size();
  repeat.with_first = is_snapshot_due(loop.queue().front(), loop);
  repeat.progress = loop.progress();
  const size_t end = skip.to < snapshots_.size() ? snapshots_[skip.to].position : records_.size();
  recorded_.position += end - snapshots_[skip.from].position;
  recorded_.last_snapshot = recorded_.position;
  recorded_.has_snapshot = true;
}

void KnownTimeline::adopt() {
  const size_t kept = recorded_.kept_snapshots, position = kept == 0 ? 0 : snapshots_[kept - 1].position;
  previous_.first_record = position;
  previous_.first_snapshot = kept;
  previous_.records.clear();
  previous_.snapshots.clear();
  if (!recorded_.repeats.empty()) {
    previous_.records.assign(records_.begin() + static_cast<int64_t>(position), records_.end());
    for (size_t i = kept; i < snapshots_.size(); ++i) std::swap(previous_.snapshots.add(), snapshots_[i]);
  }
  snapshots_.shrink(kept);
  if (kept > 0) snapshots_.back().latest_until_next = 0;
  for (size_t& first : first_forward_)
    if (first >= position) first = never;
  if (first_before_barrier_ >= position) first_before_barrier_ = never;
  const bool all = kept == 0 && recorded_.repeats.empty();
  if (all) records_.swap(recorded_.records);  // instead of a copy: of a large cluster's, 100 MB
  else records_.resize(position);
  const Vector<Record>& records = all ? records_ : recorded_.records;
  size_t next_repeat = 0, next_snapshot = 0;
  for (size_t i = 0, at = position;; ++i, ++at) {
    for (; next_repeat < recorded_.repeats.size() && recorded_.repeats[next_repeat].records == i; ++next_repeat) {
      adopt(recorded_.repeats[next_repeat]);
      at = records_.size();
    }
    if (i == records.size()) break;
    if (next_snapshot < recorded_.snapshots.size() && recorded_.snapshots[next_snapshot].position == at) {
      Snapshot& snapshot = recorded_.snapshots[next_snapshot++];
      std::swap(add_snapshot(snapshot.next), snapshot);
    }
    place(records[i], at);
    if (!all) records_.push_back(records[i]);
  }
  Nanoseconds latest = 0;
  for (size_t i = snapshots_.size(); i-- > 0;)
    snapshots_[i].latest_behind = latest = std::max(latest, snapshots_[i].latest_until_next);
}

void KnownTimeline::adopt(const Repeat& repeat) {
  const Skip& skip = repeat.skip;
  const auto known = [this](size_t index) -> const Snapshot& {
    return previous_.snapshots[index - previous_.first_snapshot];
  };
  const size_t known_end = previous_.first_snapshot + previous_.snapshots.size();
  const Snapshot& first = known(skip.from);
  for (size_t i = skip.from; i <= skip.to && i < known_end; ++i) {
    if (i > skip.from || repeat.with_first) {
      const Nanoseconds latest_end = std::max(snapshots_.back().latest_end, snapshots_.back().latest_until_next);
      Snapshot& snapshot = add_snapshot(known(i).next);
      snapshot = known(i);
      snapshot.shift(skip.later);
      snapshot.position = records_.size();
      snapshot.ready += skip.later;
      snapshot.latest_until_next = 0;
      snapshot.progress.add(first.progress, repeat.progress);
      snapshot.latest_end = latest_end;
    }
    if (i == skip.to) break;
    const size_t end = i + 1 < known_end ? known(i + 1).position : previous_.first_record + previous_.records.size();
    for (size_t r = known(i).position; r < end; ++r) {
      const Record& its = previous_.records[r - previous_.first_record];
      const Record shifted{its.key, its.ready + skip.later, its.start + skip.later, its.end + skip.later};
      place(shifted, records_.size());
      records_.push_back(shifted);
    }
  }
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
