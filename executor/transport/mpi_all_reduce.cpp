#include "executor/transport/mpi_all_reduce.h"

#include <algorithm>
#include <cstring>

namespace ff {

void AllReduce::start(const Members& members, int tag, float* values, int64_t elements) {
  members_ = members;
  tag_ = tag;
  values_ = values;
  elements_ = elements;
  exchange_ = elements * 4 <= exchange_bytes;
  begun_ = added_ = finished_ = 0;
  done_ = elements == 0 || members.size == 1;
  if (done_) return;
  lanes_.resize(static_cast<size_t>(members.one_host ? 1 : std::min(slices_between_hosts, slices())));
  while (begun_ < static_cast<int64_t>(lanes_.size())) begin(begun_);
}

int AllReduce::advance() {
  int steps = 0;
  for (bool moved = true; moved && !done_;) {
    moved = false;
    if (added_ < begun_ && all_complete(lane(added_).requests)) {
      add(added_);
      moved = true;
    }
    if (finished_ < added_ && (exchange_ || all_complete(lane(finished_).requests))) {
      ++finished_;
      done_ = finished_ == slices();
      if (begun_ < slices()) begin(begun_);
      moved = true;
    }
    steps += moved;
  }
  return steps;
}

int64_t AllReduce::slices() const {
  const int64_t size = part_elements * members_.size;
  return exchange_ ? 1 : (elements_ + size - 1) / size;
}

std::pair<int64_t, int64_t> AllReduce::slice_range(int64_t slice) const {
  const int64_t size = part_elements * members_.size;
  return {slice * size, std::min(elements_, (slice + 1) * size)};
}

std::pair<int64_t, int64_t> AllReduce::part(int64_t slice, int owner) const {
  if (exchange_) return {0, elements_};
  const auto [begin, end] = slice_range(slice);
  return {begin + owner * (end - begin) / members_.size, begin + (owner + 1) * (end - begin) / members_.size};
}

float* AllReduce::received(int64_t slice, int from) {
  return lane(slice).received.data() +
         (from < members_.rank ? from : from - 1) * (exchange_ ? elements_ : part_elements);
}

void AllReduce::send(Lane& lane, int to, int64_t begin, int64_t end, int tag) {
  lane.requests.emplace_back();
  check_mpi(MPI_Isend(values_ + begin, static_cast<int>(end - begin), MPI_FLOAT, to, tag, members_.communicator,
                      &lane.requests.back()),
            "MPI_Isend of an all-reduce");
}

void AllReduce::receive(Lane& lane, int from, float* memory, int64_t elements, int tag) {
  lane.requests.emplace_back();
  check_mpi(
      MPI_Irecv(memory, static_cast<int>(elements), MPI_FLOAT, from, tag, members_.communicator, &lane.requests.back()),
      "MPI_Irecv of an all-reduce");
}

void AllReduce::begin(int64_t slice) {
  Lane& lane = this->lane(slice);
  const auto [begin, end] = part(slice, members_.rank);
  const size_t needed = static_cast<size_t>((members_.size - 1) * (exchange_ ? elements_ : part_elements));
  if (lane.received.size() < needed) lane.received.resize(needed);
  lane.requests.clear();
  for (int other = 0; other < members_.size; ++other)
    if (other != members_.rank) receive(lane, other, received(slice, other), end - begin, tag_);
  for (int other = 0; other < members_.size; ++other)
    if (other != members_.rank) {
      const auto [from, to] = part(slice, other);
      send(lane, other, from, to, tag_);
    }
  ++begun_;
}

// In rank order, so that every rank computes the same bits.
void AllReduce::add(int64_t slice) {
  const auto [begin, end] = part(slice, members_.rank);
  float* __restrict mine = values_ + begin;
  const int64_t count = end - begin;
  if (members_.rank > 0) {
    float* __restrict sum = received(slice, 0);
    for (int other = 1; other < members_.size; ++other) {
      const float* __restrict values = other == members_.rank ? mine : received(slice, other);
      for (int64_t i = 0; i < count; ++i) sum[i] += values[i];
    }
    std::memcpy(mine, sum, static_cast<size_t>(count) * sizeof(float));
  } else {
    for (int other = 1; other < members_.size; ++other) {
      const float* __restrict values = received(slice, other);
      for (int64_t i = 0; i < count; ++i) mine[i] += values[i];
    }
  }
  if (!exchange_) send_sums(slice);
  ++added_;
}

void AllReduce::send_sums(int64_t slice) {
  Lane& lane = this->lane(slice);
  const auto [begin, end] = part(slice, members_.rank);
  lane.requests.clear();
  for (int other = 0; other < members_.size; ++other)
    if (other != members_.rank) {
      const auto [from, to] = part(slice, other);
      receive(lane, other, values_ + from, to - from, tag_ + 1);
    }
  for (int other = 0; other < members_.size; ++other)
    if (other != members_.rank) send(lane, other, begin, end, tag_ + 1);
}

}  // namespace ff
