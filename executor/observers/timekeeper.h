// How a rank spends its time: what it did from when to when, and the fractions of an iteration.
#pragma once

#include <memory>

#include "common/vector.h"
#include "executor/program/clock.h"
#include "executor/program/observer.h"

namespace ff {

// For a backend whose calls return with the work done. For a GPU's: cuda/device_clock.h.
std::unique_ptr<Clock> make_host_clock();

// Times are the host's steady_clock's.
struct Event {
  Activity activity;
  int task;
  int64_t begin_ns;
  int64_t end_ns;
};

// busy: kernels, copies, updates. transfer: in calls that send, receive and all-reduce, the wait for an all-reduce
// included. The rest of an iteration is idle: waiting for another rank's data.
struct TimeShares {
  int64_t busy_ns = 0;
  int64_t transfer_ns = 0;
};

class Timekeeper : public Observer {
 public:
  // Of training iterations: every one, or, with a clock that costs too much for that, the second, whose fractions count
  // for those of all others in proportion to their time.
  Timekeeper(std::unique_ptr<Clock> clock, bool every_iteration)
      : clock_(std::move(clock)), every_iteration_(every_iteration) {}

  const Vector<Event>& events() const { return events_; }  // of the last iteration that was timed
  const TimeShares& total() const { return total_; }       // of all iterations

  void begin(bool training) override;
  void did(Activity activity, int task) override;
  void end() override;

 private:
  std::unique_ptr<Clock> clock_;
  const bool every_iteration_;
  int64_t iterations_ = 0, begin_ns_ = 0;
  bool training_ = false, timed_ = false;  // this iteration
  Vector<Event> events_;
  TimeShares timed_shares_;  // of the last iteration that was timed
  int64_t timed_ns_ = 0;
  TimeShares total_;
};

}  // namespace ff
