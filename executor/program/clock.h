// Times of a device's work: the host's (observers/timekeeper.h) or those of a GPU's stream (cuda/device_clock.h).
#pragma once

#include <cstdint>

#include "common/vector.h"

namespace ff {

// When is the work given to a device done?
class Clock {
 public:
  virtual ~Clock() = default;
  virtual void begin() = 0;                       // time 0; forgets the marks
  virtual void mark() = 0;                        // when all that was submitted so far is done
  virtual const Vector<int64_t>& times_ns() = 0;  // of the marks, since begin; the backend has been waited for
};

}  // namespace ff
