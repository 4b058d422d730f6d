// How a rank spends its time: what it did from when to when, and the shares of an iteration.
#pragma once

#include <memory>

#include "common/vector.h"
#include "executor/observers/observer.h"

namespace ff {

// When is what was given to a device done?
class Clock {
 public:
  virtual ~Clock() = default;
  virtual bool cheap() const = 0;
  virtual void begin() = 0;                       // time 0; forgets the marks
  virtual void mark() = 0;                        // when all that was submitted so far is done
  virtual const Vector<int64_t>& times_ns() = 0;  // of the marks, since begin; the backend has been waited for
};
// For a backend whose calls return with the work done. For a GPU's: cuda/device_clock.h.
std::unique_ptr<Clock> make_host_clock();

// Times are steady_clock's.
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

// A clock that is not cheap runs in few iterations: what it says of the second training iteration stands for all others,
// in proportion to their time, unless events are recorded.
class Timekeeper : public Observer {
 public:
  explicit Timekeeper(std::unique_ptr<Clock> clock) : clock_(std::move(clock)) {}
  // Where it fits: adds every event of the following iterations; null for none.
  void record_events(Vector<Event>* events) { events_ = events; }
  const TimeShares& shares() const { return shares_; }  // of the last iteration

  void begin(bool training) override;
  void did(Activity activity, int task) override;
  void end() override;

 private:
  std::unique_ptr<Clock> clock_;
  Vector<Event>* events_ = nullptr;
  int64_t trainings_ = 0, begin_ns_ = 0;
  bool runs_ = false;    // in this iteration
  Vector<Event> marks_;  // without their times
  TimeShares shares_, timed_shares_;
  int64_t timed_ns_ = 0;  // of the last iteration in which the clock ran, as timed_shares_
};

}  // namespace ff
