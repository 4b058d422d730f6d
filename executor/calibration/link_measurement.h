// Messages and all-reduces between ranks, through the transport's own calls, timed.
#pragma once

#include "executor/calibration/line.h"
#include "executor/transport/transport.h"

namespace ff {

// One kind of operation between two ranks.
struct MeasuredLine {
  Line line;
  Deviation deviation;    // where it is most wrong
  int64_t largest_bytes;  // of the sizes that were timed
  bool constant;          // the rate had become constant there
};

struct LinkRates {
  MeasuredLine message, all_reduce;
  double both_ways_gb_per_s;  // of each direction, when both carry large messages at once
  bool full_duplex() const { return both_ways_gb_per_s > message.line.gb_per_s / 1.5; }
};

// Between this rank and `peer`; both call and get the same. `group`: of the two. `one_host`: small and large messages
// count alike for the rate (line.h).
LinkRates measure_link(Transport& transport, int peer, GroupId group, bool one_host);

// Every rank of `active` sends to `destination` and receives from `source` at once, messages of `bytes`. All ranks
// call. Returns, on all ranks, the time of the slowest.
double measure_at_once_us(Transport& transport, bool active, int destination, int source, int64_t bytes);

}  // namespace ff
