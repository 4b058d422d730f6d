// Gathers what chains have done so far for the progress line.
#pragma once

#include <chrono>
#include <mutex>

#include "search/optimizer/search_control.h"

namespace ff {

// A strategy better than all before it.
struct Improvement {
  double after_s;  // since the search began
  Nanoseconds makespan;
};

class ProgressBoard {
 public:
  explicit ProgressBoard(const SearchControl& control) : control_(control) {}

  void add(int64_t proposals, int64_t accepted, Nanoseconds current, Nanoseconds best) {
    std::lock_guard lock(mutex_);
    total_.proposals += proposals;
    total_.accepted += accepted;
    total_.current = current;
    if (total_.best == 0 || best < total_.best) total_.best = best;
    total_.elapsed_s = elapsed_s();
    if (control_.progress && total_.elapsed_s >= next_report_s_) {
      next_report_s_ = total_.elapsed_s + 0.2;
      control_.progress(total_);
    }
  }
  // A chain's best strategy so far, which fits into memory.
  void found(const Strategy& strategy, const Prediction& prediction) {
    std::lock_guard lock(mutex_);
    if (!improvements_.empty() && prediction.makespan >= improvements_.back().makespan) return;
    improvements_.push_back({elapsed_s(), prediction.makespan});
    if (control_.found) control_.found(strategy, prediction);
  }
  const Vector<Improvement>& improvements() const { return improvements_; }
  double elapsed_s() const { return seconds_since(begin_); }  // of the search

 private:
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  const SearchControl& control_;
  std::mutex mutex_;
  SearchProgress total_;
  Vector<Improvement> improvements_;
  double next_report_s_ = 0;
};

}  // namespace ff
