// A thread that lets transfers go on while the rank computes. It mostly sleeps: a rank has often one processor, and a
// thread that spins would take half of it. It naps for 400 microseconds after a look that moved something, longer and
// longer after one that did not; the buffers of the sockets hold what a link brings meanwhile (0.5 MB at 10 Gb/s). A
// nap is not free: on a virtual machine its timer took 22 microseconds of the processor, so that naps of 100
// microseconds cost what computes a fifth of its time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace ff {

class ProgressThread {
 public:
  struct Progress {
    bool pending;  // something is still on its way
    int steps;     // what has moved
  };

  // `advance` is called with `mutex` held.
  ProgressThread(std::mutex& mutex, std::function<Progress()> advance);
  ~ProgressThread();

  // Something is on its way. The mutex is held.
  void wake() {
    if (pending_) return;
    pending_ = true;
    wake_.notify_one();
  }
  // While the rank itself waits for transfers, and lets them go on, the thread only sleeps.
  void rest(bool resting) { resting_.store(resting, std::memory_order_relaxed); }
  // Throws what has failed in `advance`. The mutex is held.
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void run();

  std::mutex& mutex_;
  const std::function<Progress()> advance_;
  std::condition_variable wake_;
  bool pending_ = false, ending_ = false;
  std::atomic<bool> resting_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // last: it uses all of these
};

// Sleeps for so long, within microseconds.
void nap(int microseconds);

}  // namespace ff
