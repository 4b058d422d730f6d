// What processors do for messages while they compute: the protocol of the network, copies, and the thread that lets
// messages go on (progress_thread.h).
#pragma once

#include "common/kernels/backend.h"
#include "executor/transport/transport.h"

namespace ff {

// Of one rank, for each message that it sends or receives, of any size, and for each of its bytes.
struct ProcessorWork {
  double us, ns_per_byte;
};

// Of this rank, while it exchanges messages with `peer` and both compute: how much longer its kernels take than alone.
// Both call. `gb_per_s`: what the link between them carries each way; 0: bytes are not looked at.
ProcessorWork measure_processor_work(Backend& backend, Transport& transport, int peer, double gb_per_s);

}  // namespace ff
