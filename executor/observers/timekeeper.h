// How a rank spends its time: what it did from when to when, and the shares of an iteration.
#pragma once

#include <memory>

#include "common/vector.h"
#include "executor/cuda/device_clock.h"
#include "executor/observers/observer.h"

namespace ff {

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

class Timekeeper : public Observer {
 public:
  // Where it fits: adds every event of the following iterations; null for none.
  void record_events(Vector<Event>* events) { events_ = events; }
  const TimeShares& shares() const { return shares_; }  // of the last iteration

 protected:
  void add(const Event& event);
  Vector<Event>* events_ = nullptr;
  TimeShares shares_;
};

// By the host's clock, where the backend's work is done when its calls return.
std::unique_ptr<Timekeeper> make_host_timekeeper();
// By a GPU's clock, which costs too much for every iteration: what it says of the second training iteration stands for
// all others, in proportion to their time, unless events are recorded.
std::unique_ptr<Timekeeper> make_device_timekeeper(std::unique_ptr<DeviceClock> clock);

}  // namespace ff
