// Ready tasks in the order in which they are taken.
#pragma once

#include <algorithm>
#include <bit>
#include <limits>

#include "common/task_graph/task_graph.h"
#include "common/vector.h"
#include "search/simulator/timeline.h"

namespace ff::delta {

// A task that is ready to be taken.
struct Event {
  Nanoseconds ready;
  TaskKey key;
  int32_t index;   // transfers of edges: the pair; synchronization, update, transfers of parameters: the unit
  int32_t holder;  // update, transfers of parameters: the place among the holders
};
// An object, not a function: sorting then compares in place.
constexpr auto earlier = [](const Event& a, const Event& b) {
  return a.ready != b.ready ? a.ready < b.ready : a.key < b.key;
};

// A calendar queue (Brown 1988): time is cut into buckets of equal width, few enough events each, and only the bucket
// that is being emptied is sorted. Nothing is ready before what was taken last.
class EventQueue {
 public:
  // So that about 8 events fall into a bucket, when so many are taken in so much time; one bucket is enough for a
  // queue that stays short. Empties the queue.
  void set_density(size_t events, Nanoseconds time) {
    clear();
    const uint64_t width =
        static_cast<uint64_t>(std::max<Nanoseconds>(1, time / static_cast<Nanoseconds>(events / 8 + 1)));
    shift_ = largest_ <= short_queue ? 62 : std::bit_width(width) - 1;
    largest_ = 0;
  }

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  void clear() {
    for (size_t word = 0; word < occupied_.size(); ++word)
      for (uint64_t left = occupied_[word]; left != 0; left &= left - 1)
        give_back(ring_[word * 64 + static_cast<size_t>(std::countr_zero(left))]);
    occupied_.fill(0);
    now_.clear();
    far_.clear();
    head_ = size_ = 0;
    bucket_ = 0;
    far_first_ = never;
  }

  void push(const Event& event) {
    largest_ = std::max(largest_, ++size_);
    const int64_t bucket = event.ready >> shift_;
    if (bucket <= bucket_) insert_now(event);
    else place(event, bucket);
  }
  const Event& front() {
    settle();
    return now_[head_];
  }
  Event pop() {
    settle();
    --size_;
    const Event event = now_[head_++];
    if (head_ >= 4096 && 2 * head_ >= now_.size()) {
      now_.erase(now_.begin(), now_.begin() + static_cast<int64_t>(head_));
      head_ = 0;
    }
    return event;
  }

  // All events, in order.
  void save(Vector<Event>& events) {
    events.assign(now_.begin() + static_cast<int64_t>(head_), now_.end());
    for (int64_t bucket = next_occupied(); bucket != never; bucket = next_occupied(bucket)) {
      Vector<Event>& its = ring_[slot(bucket)];
      sort(its);
      events.insert(events.end(), its.begin(), its.end());
    }
    std::sort(far_.begin(), far_.end(), earlier);
    events.insert(events.end(), far_.begin(), far_.end());
  }
  // The saved events, so much later.
  void load(const Vector<Event>& events, Nanoseconds later) {
    clear();
    if (events.empty()) return;
    bucket_ = (events.front().ready + later) >> shift_;
    for (Event event : events) {
      event.ready += later;
      push(event);
    }
  }

 private:
  static constexpr size_t ring_size = 4096, short_queue = 512;
  static constexpr int64_t never = std::numeric_limits<int64_t>::max();

  static size_t slot(int64_t bucket) { return static_cast<size_t>(bucket) % ring_size; }
  static void sort(Vector<Event>& events) {
    if (!std::is_sorted(events.begin(), events.end(), earlier)) std::sort(events.begin(), events.end(), earlier);
  }

  // Most tasks become ready after nearly all others that are.
  void insert_now(const Event& event) {
    now_.push_back(event);
    size_t at = now_.size() - 1;
    for (int near = 0; near < 8; ++near, --at) {
      if (at == head_ || !earlier(event, now_[at - 1])) {
        now_[at] = event;
        return;
      }
      now_[at] = now_[at - 1];
    }
    const auto end = now_.begin() + static_cast<int64_t>(at);
    const auto place = std::upper_bound(now_.begin() + static_cast<int64_t>(head_), end, event, earlier);
    std::copy_backward(place, end, end + 1);
    *place = event;
  }
  void place(const Event& event, int64_t bucket) {
    if (bucket - bucket_ >= static_cast<int64_t>(ring_size)) {
      far_.push_back(event);
      far_first_ = std::min(far_first_, bucket);
      return;
    }
    const size_t at = slot(bucket);
    const uint64_t bit = uint64_t{1} << at % 64;
    if ((occupied_[at / 64] & bit) == 0 && !spare_.empty()) {
      ring_[at].swap(spare_.back());
      spare_.pop_back();
    }
    ring_[at].push_back(event);
    occupied_[at / 64] |= bit;
  }
  // Empties a bucket. Memory goes from bucket to bucket: if each kept the most that it ever held, 4,096 would be many
  // times what the queue needs.
  void give_back(Vector<Event>& bucket) {
    bucket.clear();
    spare_.emplace_back();
    spare_.back().swap(bucket);
  }

  // The first bucket after `bucket` with events, within the ring; `never` if there is none.
  int64_t next_occupied(int64_t bucket) const {
    const int64_t end = bucket_ + static_cast<int64_t>(ring_size);
    for (++bucket; bucket < end;) {
      const size_t at = slot(bucket);
      const uint64_t left = occupied_[at / 64] >> at % 64;
      if (left != 0) {
        bucket += std::countr_zero(left);
        return bucket < end ? bucket : never;
      }
      bucket += 64 - static_cast<int64_t>(at % 64);
    }
    return never;
  }
  int64_t next_occupied() const { return next_occupied(bucket_); }

  // Makes now_ hold the first event. The queue is not empty.
  void settle() {
    if (head_ < now_.size()) return;
    now_.clear();
    head_ = 0;
    int64_t next = next_occupied();
    bucket_ = next != never ? next : far_first_;
    if (far_first_ != never && far_first_ - bucket_ < static_cast<int64_t>(ring_size)) bring_near();
    const size_t at = slot(bucket_);
    now_.swap(ring_[at]);
    give_back(ring_[at]);
    occupied_[at / 64] &= ~(uint64_t{1} << at % 64);
    sort(now_);
  }
  void bring_near() {
    far_first_ = never;
    moved_.swap(far_);
    for (const Event& event : moved_) place(event, event.ready >> shift_);
    moved_.clear();
  }

  int shift_ = 10;      // a bucket is 2^shift ns
  int64_t bucket_ = 0;  // that of now_
  Vector<Event> now_;   // sorted from head_ on
  size_t head_ = 0, size_ = 0, largest_ = 0;
  Array<Vector<Event>, ring_size> ring_;        // the buckets after bucket_
  Array<uint64_t, ring_size / 64> occupied_{};  // a bit a bucket
  Vector<Vector<Event>> spare_;                 // memory of empty buckets
  Vector<Event> far_, moved_;                   // after the ring
  int64_t far_first_ = never;                   // the first bucket of these
};

}  // namespace ff::delta
