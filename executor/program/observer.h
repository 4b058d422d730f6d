// Who looks on while a program runs: Program::run calls these, in this order, and knows nothing of clocks, recordings
// and traces. An observer overrides what it needs.
#pragma once

#include <cstdint>

namespace ff {

// What a rank has done since it last told of something. wait: for a transfer to this rank.
enum class Activity : uint8_t { compute, copy, wait, send, receive, all_reduce, update };

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void begin(bool /*training*/) {}  // of an iteration
  // In a training iteration, instead of its steps: true if it has been given to the backend in another way. Then
  // nothing is told of its steps.
  virtual bool launch(int64_t /*iteration*/) { return false; }
  virtual void did(Activity, int /*task*/) {}
  virtual void step_ended(int /*step*/) {}  // its turn: an update whose all-reduce goes on comes later
  virtual void end() {}                     // the backend is done
  virtual void give_up() {}                 // a failure, instead of the end: before the transport gives up
};

}  // namespace ff
