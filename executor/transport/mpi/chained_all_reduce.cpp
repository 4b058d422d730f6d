#include <algorithm>
#include <cstring>

#include "executor/transport/mpi/all_reduce.h"

namespace ff {
namespace {

// values: within a host, to whoever adds. onward: to the next host. back: to the host before. sums: within a host.
enum Tag { values_tag, onward_tag, back_tag, sums_tag };

// A slice has a part for each place that all hosts have. A place's rank adds that part for its host.
class ChainedAllReduce : public AllReduce {
 public:
  int advance() override {
    int steps = 0;
    for (bool moved = true; moved && !done();) {
      moved = false;
      if (added_ < begun_ && all_complete(lane(added_).values)) {
        add_slice(added_++);
        moved = true;
      }
      if (spread_ < added_ && all_complete(lane(spread_).sum)) {
        spread_slice(spread_++);
        moved = true;
      }
      if (finished_ < spread_ && all_complete(lane(finished_).sums)) {
        if (++finished_ == count_) finish();
        if (begun_ < count_) begin(begun_++);
        moved = true;
      }
      steps += moved;
    }
    return steps;
  }

 private:
  // What one of the slices on their way waits for: the terms of this rank's part, and its own values being read; its
  // sum; the other parts' sums.
  struct Lane {
    Vector<MPI_Request> values, sum, sums;
    Vector<float> received;  // [ranks of this host and the host before, elements of a part]
  };

  void start() override {
    const auto& hosts = members().hosts;
    places_ = static_cast<int64_t>(hosts[0].size());
    for (const int host : hosts.indices()) {
      places_ = std::min(places_, static_cast<int64_t>(hosts[host].size()));
      const auto it = std::find(hosts[host].begin(), hosts[host].end(), rank());
      if (it == hosts[host].end()) continue;
      host_ = host;
      place_ = it - hosts[host].begin();
    }
    count_ = slices(places_);
    begun_ = added_ = spread_ = finished_ = 0;
    lanes_.resize(static_cast<size_t>(std::min(slices_between_hosts, count_)));
    while (begun_ < static_cast<int64_t>(lanes_.size())) begin(begun_++);
  }

  const Vector<int>& own_host() const { return members().hosts[host_]; }
  bool adds() const { return place_ < places_; }
  bool first_host() const { return host_ == 0; }
  bool last_host() const { return host_ + 1 == static_cast<int>(members().hosts.size()); }
  int partner(int host) const { return members().hosts[host][place_]; }
  Lane& lane(int64_t slice) { return lanes_[slice % static_cast<int64_t>(lanes_.size())]; }
  Range part(int64_t slice, int64_t place) const { return AllReduce::part(slice, place, places_); }
  // Row 0 is the host before, then this host's ranks.
  float* received(int64_t slice, int64_t row) { return lane(slice).received.data() + row * part_elements; }

  void begin(int64_t slice) {
    Lane& lane = this->lane(slice);
    for (Vector<MPI_Request>* requests : {&lane.values, &lane.sum, &lane.sums}) requests->clear();
    if (adds()) {
      const int64_t size = part(slice, place_).size();
      lane.received.resize(static_cast<size_t>(part_elements) * (own_host().size() + 1));
      if (!first_host()) receive(lane.values, received(slice, 0), size, partner(host_ - 1), onward_tag);
      for (const int place : own_host().indices())
        if (place != place_) receive(lane.values, received(slice, place + 1), size, own_host()[place], values_tag);
    }
    for (int64_t place = 0; place < places_; ++place)
      if (place != place_) {
        const Range theirs = part(slice, place);
        send(lane.values, values() + theirs.begin, theirs.size(), own_host()[place], values_tag);
      }
  }

  // Adds this host's terms in rank order to those of the hosts before.
  void add_slice(int64_t slice) {
    Lane& lane = this->lane(slice);
    for (int64_t place = 0; place < places_; ++place)
      if (place != place_) {
        const Range theirs = part(slice, place);
        receive(lane.sums, values() + theirs.begin, theirs.size(), own_host()[place], sums_tag);
      }
    if (!adds()) return;
    const Range own = part(slice, place_);
    float* mine = values() + own.begin;
    const auto term = [&](int64_t place) { return place == place_ ? mine : received(slice, place + 1); };
    const int64_t ranks = static_cast<int64_t>(own_host().size());
    float* sum = received(slice, 0);
    if (first_host()) std::memcpy(sum, term(0), static_cast<size_t>(own.size()) * sizeof(float));
    for (int64_t place = first_host() ? 1 : 0; place < ranks; ++place) add(sum, term(place), own.size());
    if (last_host()) {
      std::memcpy(mine, sum, static_cast<size_t>(own.size()) * sizeof(float));
    } else {
      receive(lane.sum, mine, own.size(), partner(host_ + 1), back_tag);
      send(lane.sum, sum, own.size(), partner(host_ + 1), onward_tag);
    }
  }

  void spread_slice(int64_t slice) {
    if (!adds()) return;
    Lane& lane = this->lane(slice);
    const Range own = part(slice, place_);
    if (!first_host()) send(lane.sums, values() + own.begin, own.size(), partner(host_ - 1), back_tag);
    for (const int place : own_host().indices())
      if (place != place_) send(lane.sums, values() + own.begin, own.size(), own_host()[place], sums_tag);
  }

  int host_ = 0;
  int64_t place_ = 0, places_ = 0;
  int64_t count_ = 0;
  // Slices in [0, begun_) have sent their values, those in [0, added_) are added up to this host, those in [0, spread_)
  // are complete in this rank's part, those in [0, finished_) in all. Ranks take slices in order in each step.
  int64_t begun_ = 0, added_ = 0, spread_ = 0, finished_ = 0;
  Vector<Lane> lanes_;
};

}  // namespace

std::unique_ptr<AllReduce> chained_all_reduce() { return std::make_unique<ChainedAllReduce>(); }

}  // namespace ff
