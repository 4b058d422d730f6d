#include <algorithm>
#include <cstring>

#include "executor/transport/mpi/all_reduce.h"

namespace ff {
namespace {

enum Tag { values_tag, sums_tag };

class SlicedAllReduce : public AllReduce {
 public:
  int advance() override {
    int steps = 0;
    for (bool moved = true; moved && !done();) {
      moved = false;
      if (added_ < begun_ && all_complete(lane(added_).requests)) {
        add_slice(added_);
        moved = true;
      }
      if (finished_ < added_ && (exchange_ || all_complete(lane(finished_).requests))) {
        if (++finished_ == count_) finish();
        if (begun_ < count_) begin(begun_);
        moved = true;
      }
      steps += moved;
    }
    return steps;
  }

 private:
  static constexpr int64_t exchange_bytes = 16 << 10;

  // What one of the slices on their way waits for.
  struct Lane {
    Vector<MPI_Request> requests;
    Vector<float> received;  // [other ranks, elements of a part]
  };

  void start() override {
    exchange_ = elements() * 4 <= exchange_bytes;
    count_ = exchange_ ? 1 : slices(members().size);
    begun_ = added_ = finished_ = 0;
    lanes_.resize(static_cast<size_t>(members().one_host() ? 1 : std::min(slices_between_hosts, count_)));
    while (begun_ < static_cast<int64_t>(lanes_.size())) begin(begun_);
  }

  Lane& lane(int64_t slice) { return lanes_[slice % static_cast<int64_t>(lanes_.size())]; }
  Range part(int64_t slice, int owner) const {
    return exchange_ ? Range{0, elements()} : AllReduce::part(slice, owner, members().size);
  }
  float* received(int64_t slice, int from) {
    return lane(slice).received.data() + (from < rank() ? from : from - 1) * (exchange_ ? elements() : part_elements);
  }

  void begin(int64_t slice) {
    Lane& lane = this->lane(slice);
    const Range own = part(slice, rank());
    const size_t needed = static_cast<size_t>((members().size - 1) * (exchange_ ? elements() : part_elements));
    if (lane.received.size() < needed) lane.received.resize(needed);
    lane.requests.clear();
    for (int other = 0; other < members().size; ++other)
      if (other != rank()) receive(lane.requests, received(slice, other), own.size(), other, values_tag);
    for (int other = 0; other < members().size; ++other)
      if (other != rank()) {
        const Range theirs = part(slice, other);
        send(lane.requests, values() + theirs.begin, theirs.size(), other, values_tag);
      }
    ++begun_;
  }

  // In rank order, so that every rank computes the same bits.
  void add_slice(int64_t slice) {
    const Range own = part(slice, rank());
    float* mine = values() + own.begin;
    if (rank() > 0) {
      float* sum = received(slice, 0);
      for (int other = 1; other < members().size; ++other)
        add(sum, other == rank() ? mine : received(slice, other), own.size());
      std::memcpy(mine, sum, static_cast<size_t>(own.size()) * sizeof(float));
    } else {
      for (int other = 1; other < members().size; ++other) add(mine, received(slice, other), own.size());
    }
    if (!exchange_) send_sums(slice);
    ++added_;
  }

  void send_sums(int64_t slice) {
    Lane& lane = this->lane(slice);
    const Range own = part(slice, rank());
    lane.requests.clear();
    for (int other = 0; other < members().size; ++other)
      if (other != rank()) {
        const Range theirs = part(slice, other);
        receive(lane.requests, values() + theirs.begin, theirs.size(), other, sums_tag);
      }
    for (int other = 0; other < members().size; ++other)
      if (other != rank()) send(lane.requests, values() + own.begin, own.size(), other, sums_tag);
  }

  bool exchange_ = false;
  int64_t count_ = 0;
  // Slices in [0, begun_) have sent their values, those in [0, added_) their sums, those in [0, finished_) are done.
  // Ranks take slices in order in each step, so that messages match by it.
  int64_t begun_ = 0, added_ = 0, finished_ = 0;
  Vector<Lane> lanes_;
};

}  // namespace

std::unique_ptr<AllReduce> sliced_all_reduce() { return std::make_unique<SlicedAllReduce>(); }

}  // namespace ff
