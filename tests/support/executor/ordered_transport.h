// NCCL's rules in threads, to test without a GPU that programs keep them: a rank's transfers run one group after the
// other and its all-reduces one after the other (two streams), none starts before those that the rank asked for earlier
// have started, a transfer is over when both ends take part, and messages match by their order alone. Whoever waits too
// long throws MachineError "deadlock".
#pragma once

#include <memory>

#include "executor/transport/transport.h"

namespace ff {

class OrderedWorld;
std::shared_ptr<OrderedWorld> make_ordered_world();

// Of one rank; `host` is its in-process transport.
std::unique_ptr<Transport> make_ordered_transport(std::shared_ptr<OrderedWorld> world, Transport& host);

}  // namespace ff
