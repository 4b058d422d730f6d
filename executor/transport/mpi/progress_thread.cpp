#include "executor/transport/mpi/progress_thread.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <ctime>

namespace ff {
namespace {

// Linux 6.12 and later let a thread that asks for short slices of time interrupt one that computes, where it would else
// wait until the end of that one's slice of some 3 ms. Older kernels refuse, and prefer whoever has slept anyway.
void ask_for_short_slices() {
  struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
  } attributes{};
  attributes.size = sizeof attributes;
  attributes.runtime_ns = 100'000;
  attributes.nice = getpriority(PRIO_PROCESS, 0);
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace

void nap(int microseconds) {
  // Else naps end up to 50 microseconds late.
  [[maybe_unused]] thread_local const int punctual = prctl(PR_SET_TIMERSLACK, 1000UL);
  const timespec time{0, microseconds * 1000L};
  nanosleep(&time, nullptr);
}

ProgressThread::ProgressThread(std::mutex& mutex, std::function<Progress()> advance)
    : mutex_(mutex), advance_(std::move(advance)), thread_([this] { run(); }) {}

ProgressThread::~ProgressThread() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void ProgressThread::run() {
  constexpr int shortest_us = 400, longest_us = 1000;
  ask_for_short_slices();
  sigset_t all;  // signals are the program's
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  int nap_us = shortest_us;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return pending_ || ending_; });
      if (ending_) return;
      if (!resting_.load(std::memory_order_relaxed)) {
        try {
          const Progress progress = advance_();
          pending_ = progress.pending;
          nap_us = progress.steps > 0 ? shortest_us : std::min(2 * nap_us, longest_us);
        } catch (...) {
          failure_ = std::current_exception();
          pending_ = false;
        }
      }
    }
    nap(nap_us);
  }
}

}  // namespace ff
