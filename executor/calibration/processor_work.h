// What processors do for messages while they compute: the protocol of the network, copies, and the thread that lets
// messages go on (progress_thread.h).
#pragma once

#include "common/kernels/backend.h"
#include "executor/transport/transport.h"

namespace ff {

// Of this rank, in ns for each byte that it sends or receives, while it exchanges messages with `peer` and both compute:
// how much longer its kernels take than alone. Both call. `gb_per_s`: what the link between them carries each way.
double measure_processor_ns_per_byte(Backend& backend, Transport& transport, int peer, double gb_per_s);

}  // namespace ff
