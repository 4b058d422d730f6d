// Messages and all-reduces between ranks, through the transport's own calls, timed.
#pragma once

#include "common/kernels/backend.h"
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

// Groups of two ranks: of the transport, and of the one for host memory (the same where that is the transport).
struct PairGroups {
  GroupId of_transport, of_host;
};

// Between this rank and `peer`, of memory of the backend; both call and get the same. `one_host`: small and large
// messages count alike for the rate (line.h).
LinkRates measure_link(Backend& backend, Transport& transport, int peer, const PairGroups& groups, bool one_host);

// Every rank of `active` sends to `destination` and receives from `source` at once, messages of `bytes`. All ranks
// call. Returns, on all ranks, the time of the slowest.
double measure_at_once_us(Backend& backend, Transport& transport, bool active, int destination, int source,
                          int64_t bytes);

}  // namespace ff
