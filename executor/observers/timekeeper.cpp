#include "executor/observers/timekeeper.h"

#include <chrono>

namespace ff {
namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class HostClock : public Clock {
 public:
  void begin() override {
    begin_ns_ = now_ns();
    times_ns_.clear();
  }
  void mark() override { times_ns_.push_back(now_ns() - begin_ns_); }
  const Vector<int64_t>& times_ns() override { return times_ns_; }

 private:
  int64_t begin_ns_ = 0;
  Vector<int64_t> times_ns_;
};

void add(TimeShares& shares, const Event& event) {
  switch (event.activity) {
    case Activity::compute:
    case Activity::copy:
    case Activity::update: shares.busy_ns += event.end_ns - event.begin_ns; break;
    case Activity::send:
    case Activity::receive:
    case Activity::all_reduce: shares.transfer_ns += event.end_ns - event.begin_ns; break;
    case Activity::wait: break;
  }
}

}  // namespace

std::unique_ptr<Clock> make_host_clock() { return std::make_unique<HostClock>(); }

void Timekeeper::begin(bool training) {
  training_ = training;
  iterations_ += training;
  timed_ = training && (every_iteration_ || iterations_ == 2);
  begin_ns_ = now_ns();
  if (!timed_) return;
  events_.clear();
  clock_->begin();
}

void Timekeeper::did(Activity activity, int task) {
  if (!timed_) return;
  clock_->mark();
  events_.push_back({activity, task, 0, 0});
}

void Timekeeper::end() {
  const int64_t total_ns = now_ns() - begin_ns_;
  if (timed_) {
    timed_shares_ = {};
    timed_ns_ = total_ns;
    const Vector<int64_t>& times_ns = clock_->times_ns();
    for (size_t i = 0; i < events_.size(); ++i) {
      events_[i].begin_ns = i > 0 ? events_[i - 1].end_ns : begin_ns_;
      events_[i].end_ns = begin_ns_ + times_ns[i];
      add(timed_shares_, events_[i]);
    }
  }
  if (!training_ || timed_ns_ == 0) return;
  const double scale = static_cast<double>(total_ns) / static_cast<double>(timed_ns_);
  total_.busy_ns += static_cast<int64_t>(static_cast<double>(timed_shares_.busy_ns) * scale);
  total_.transfer_ns += static_cast<int64_t>(static_cast<double>(timed_shares_.transfer_ns) * scale);
}

}  // namespace ff
