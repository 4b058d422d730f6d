// How a search is watched and ended from outside.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>

#include "common/strategy.h"
#include "search/cost/duration.h"
#include "search/optimizer/prediction.h"

namespace ff {

// When a search is to be over; by default never.
inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class Deadline {
 public:
  Deadline() = default;
  explicit Deadline(double seconds_from_now)  // 0: never
      : limited_(seconds_from_now > 0), end_(seconds_from_now > 0 ? now_s() + seconds_from_now : 0) {}

  bool limited() const { return limited_; }
  double left_s() const { return limited_ ? end_ - now_s() : 1e300; }
  bool passed() const { return limited_ && left_s() <= 0; }
  // So much earlier.
  Deadline before(double seconds) const {
    Deadline earlier = *this;
    earlier.end_ -= seconds;
    return earlier;
  }

 private:
  static double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  bool limited_ = false;
  double end_ = 0;
};

struct SearchProgress {
  double elapsed_s = 0;
  int64_t proposals = 0, accepted = 0;  // of exhaustive search: partial strategies bounded, strategies simulated
  Nanoseconds current = 0, best = 0;    // of exhaustive search, current: the proven lower bound
  int devices = 0;                      // of a level of a multilevel search with fewer devices; 0: all
};

struct SearchControl {
  const std::atomic<bool>& stop;  // ends the search early, with the best so far
  // Called a few times a second, by one thread at a time; may be empty.
  std::function<void(const SearchProgress&)> progress = nullptr;
  Deadline deadline = {};
  // Called, by any thread, with strategies that may be the best one and whose prediction is known; may be empty.
  std::function<void(const Strategy&, const Prediction&)> found = nullptr;

  bool ended() const { return stop || deadline.passed(); }
};

}  // namespace ff
