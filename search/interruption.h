// How a signal ends a command of ffsearch.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>

#include "search/optimizer/evaluator.h"

namespace ff {

// The best strategy that a running search has predicted so far, kept so that it can be written while the search is
// still in the middle of an evaluation. Thread-safe.
class BestKnown {
 public:
  // A search begins whose result is for the file `out` ("": for none). `problem` is read until done().
  void begin(const Problem& problem, std::string algorithm, std::string out);
  void found(const Strategy& strategy, const Prediction& prediction);
  // This is the search's result, which it is about to write itself; and then: it has written it, other files follow.
  void complete(const Strategy& strategy, const Prediction& prediction);
  void written();
  bool is_complete();

  // The command finds no strategy: all that write() says is this.
  void nothing_to_write(std::string text);

  // Writes the strategy, without an issue order, unless that is done; says so in one line. To be called as the last
  // thing of a process: it keeps the lock.
  std::string write();

 private:
  std::mutex mutex_;
  const Problem* problem_ = nullptr;
  std::string algorithm_, out_;
  Strategy strategy_;
  Prediction prediction_;
  bool complete_ = false, written_ = false;
  std::string without_strategy_ = "before any strategy was found; nothing was written";
};

// The first SIGINT or SIGTERM sets the flag that is returned: a search ends with its best result, other commands go on.
// A process that still runs a second later, in the middle of one long evaluation, is ended with the exit code for
// interruption, after `best` is written; one that has its result has half a second more to write it. A second signal
// ends it at once. Call it once, on the main thread.
const std::atomic<bool>& handle_interruption(BestKnown& best);

}  // namespace ff
