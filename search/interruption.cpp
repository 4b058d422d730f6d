#include "search/interruption.h"

#include <semaphore.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <system_error>
#include <thread>

#include "common/errors.h"
#include "common/json_file.h"
#include "common/signals.h"
#include "common/strategy.h"
#include "common/version.h"
#include "search/report/summary.h"

namespace ff {
namespace {

std::atomic<bool> stop_requested{false};
sem_t first_signal;

void request_stop(int) {
  if (stop_requested.exchange(true)) _exit(exit_interrupted);  // a second Ctrl-C does not wait
  sem_post(&first_signal);
}

void end_when_interrupted(BestKnown& best) {
  constexpr auto patience = std::chrono::milliseconds(1000), patience_for_files = std::chrono::milliseconds(500);
  while (sem_wait(&first_signal) != 0 && errno == EINTR) {}
  std::this_thread::sleep_for(patience);
  if (best.is_complete()) std::this_thread::sleep_for(patience_for_files);
  std::string text;
  try {
    text = best.write();
  } catch (const std::exception& error) {
    text = error.what();
  }
  remove_unfinished_files();
  std::fprintf(stderr, "%sffsearch: interrupted%s%s\n", isatty(STDERR_FILENO) == 1 ? "\n" : "", text.empty() ? "" : " ",
               text.c_str());
  _exit(exit_interrupted);
}

}  // namespace

void BestKnown::begin(const Problem& problem, std::string algorithm, std::string out) {
  const std::lock_guard lock(mutex_);
  problem_ = &problem;
  algorithm_ = std::move(algorithm);
  out_ = std::move(out);
  strategy_.clear();
  complete_ = written_ = false;
}

void BestKnown::found(const Strategy& strategy, const Prediction& prediction) {
  const std::lock_guard lock(mutex_);
  if (!problem_ || (!strategy_.empty() && !better(prediction, prediction_))) return;
  strategy_ = strategy;
  prediction_ = prediction;
}

void BestKnown::complete(const Strategy& strategy, const Prediction& prediction) {
  const std::lock_guard lock(mutex_);
  strategy_ = strategy;
  prediction_ = prediction;
  complete_ = true;
}

void BestKnown::written() {
  const std::lock_guard lock(mutex_);
  problem_ = nullptr;
  written_ = true;
}

bool BestKnown::is_complete() {
  const std::lock_guard lock(mutex_);
  return complete_;
}

void BestKnown::nothing_to_write(std::string text) {
  const std::lock_guard lock(mutex_);
  without_strategy_ = std::move(text);
}

std::string BestKnown::write() {
  mutex_.lock();  // for good
  if (written_)
    return out_.empty() ? "while writing" : "while writing; " + out_ + " is complete, other files may be missing";
  if (!problem_ || strategy_.empty()) return without_strategy_;
  const std::string result =
      std::string(complete_ ? "while writing; the strategy found" : "within a simulation; the best strategy so far") +
      " is predicted to take " + time_text(prediction_.makespan);
  if (out_.empty()) return result + "; without --out it was not written";
  const Json found_by = {{"program", std::string("ffsearch ") + FF_VERSION},
                         {"algorithm", algorithm_},
                         {"note", "interrupted: the best strategy up to then"},
                         {"predicted_us", to_us(prediction_.makespan)}};
  StrategyFile file{problem_->whole(), problem_->topology, strategy_, {}, found_by};
  file.settings = problem_->settings;
  save_strategy(out_, file);
  return result + "; it is written to " + out_ + " without an issue order";
}

const std::atomic<bool>& handle_interruption(BestKnown& best) {
  sem_init(&first_signal, 0, 0);
  for (const int signal : {SIGINT, SIGTERM}) handle_signal(signal, request_stop);
  sigset_t both, before;  // which go to the main thread
  sigemptyset(&both);
  for (const int signal : {SIGINT, SIGTERM}) sigaddset(&both, signal);
  pthread_sigmask(SIG_BLOCK, &both, &before);
  try {
    std::thread(end_when_interrupted, std::ref(best)).detach();
  } catch (const std::system_error&) {
    // The limit of threads is reached: signals are seen between two evaluations, as the search does by itself.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return stop_requested;
}

}  // namespace ff
