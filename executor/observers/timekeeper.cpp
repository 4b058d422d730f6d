#include "executor/observers/timekeeper.h"

#include <chrono>

namespace ff {
namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class HostTimekeeper : public Timekeeper {
 public:
  void begin(bool) override {
    shares_ = {};
    last_ns_ = now_ns();
  }
  void did(Activity activity, int task) override {
    const int64_t now = now_ns();
    add({activity, task, last_ns_, now});
    last_ns_ = now;
  }

 private:
  int64_t last_ns_ = 0;
};

class DeviceTimekeeper : public Timekeeper {
 public:
  explicit DeviceTimekeeper(std::unique_ptr<DeviceClock> clock) : clock_(std::move(clock)) {}

  void begin(bool training) override {
    shares_ = {};
    begin_ns_ = now_ns();
    trainings_ += training;
    runs_ = events_ || (training && trainings_ == 2);
    if (runs_) clock_->begin();
  }

  void did(Activity activity, int task) override {
    if (!runs_) return;
    clock_->mark();
    marks_.push_back({activity, task, 0, 0});
  }

  void end() override {
    const int64_t total_ns = now_ns() - begin_ns_;
    if (!runs_) {
      if (timed_ns_ == 0) return;
      const double scale = static_cast<double>(total_ns) / static_cast<double>(timed_ns_);
      const auto scaled = [&](int64_t ns) { return static_cast<int64_t>(static_cast<double>(ns) * scale); };
      shares_ = {scaled(timed_shares_.busy_ns), scaled(timed_shares_.transfer_ns)};
      return;
    }
    const Vector<int64_t> times = clock_->times_ns();
    int64_t before = 0;
    for (size_t i = 0; i < marks_.size(); ++i) {
      add({marks_[i].activity, marks_[i].task, begin_ns_ + before, begin_ns_ + times[i]});
      before = times[i];
    }
    marks_.clear();
    timed_shares_ = shares_;
    timed_ns_ = total_ns;
  }

 private:
  std::unique_ptr<DeviceClock> clock_;
  int64_t trainings_ = 0, begin_ns_ = 0;
  bool runs_ = false;        // in this iteration
  Vector<Event> marks_;      // without their times
  TimeShares timed_shares_;  // of the last iteration in which the clock ran
  int64_t timed_ns_ = 0;
};

}  // namespace

void Timekeeper::add(const Event& event) {
  const int64_t duration = event.end_ns - event.begin_ns;
  switch (event.activity) {
    case Activity::compute:
    case Activity::copy:
    case Activity::update: shares_.busy_ns += duration; break;
    case Activity::send:
    case Activity::receive:
    case Activity::all_reduce: shares_.transfer_ns += duration; break;
    case Activity::wait: break;
  }
  if (events_) events_->push_back(event);
}

std::unique_ptr<Timekeeper> make_host_timekeeper() { return std::make_unique<HostTimekeeper>(); }
std::unique_ptr<Timekeeper> make_device_timekeeper(std::unique_ptr<DeviceClock> clock) {
  return std::make_unique<DeviceTimekeeper>(std::move(clock));
}

}  // namespace ff
