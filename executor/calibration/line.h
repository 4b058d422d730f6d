// The time of a message as a straight line: latency + bytes / rate. That is all that a topology says of a link.
#pragma once

#include <cstdint>
#include <string>

#include "common/vector.h"

namespace ff {

struct TimedSize {
  int64_t bytes;
  double us;
};

struct Line {
  double latency_us = 0, gb_per_s = 0;
  double us(int64_t bytes) const { return latency_us + static_cast<double>(bytes) / gb_per_s * 1e-3; }
};

// Sizes ascend. The rate is that of the sizes up from 1/`span` of the largest; the latency is what fits all of them
// best then, at least the fastest one's time: least squares of relative errors in both cases. With a large span, all
// sizes count for the rate, and small ones as much as large ones. A network needs a small one: token buckets, and the
// buffers of switches, let the first some 10 to 100 KiB of a message pass at once, and what a line makes of these
// would be a rate that no long message ever gets.
Line fit_line(const Vector<TimedSize>& times, int64_t span);

// Whether the rate no longer changes with the size: what the last step in size added took as long a byte as what the
// step before added.
bool rate_is_constant(const Vector<TimedSize>& times);

// Where the line is most wrong.
struct Deviation {
  TimedSize at;
  double relative = 0;  // line / time - 1
};
Deviation largest_deviation(const Line& line, const Vector<TimedSize>& times);

}  // namespace ff
