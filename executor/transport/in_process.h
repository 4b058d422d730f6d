// Ranks as threads of one process: for tests, for the one-device run of --verify, and for ffexec without mpirun (one
// rank, on the calling thread). All-reduces add in rank order, so results are deterministic.
#pragma once

#include <functional>
#include <memory>

#include "executor/transport/transport.h"

namespace ff {

// Calls `run` on `ranks` threads, each with its transport, and returns when all have ended. An exception in one rank
// wakes the others out of whatever they wait for (they throw MachineError there); the first exception is thrown here.
void run_in_process(int ranks, const std::function<void(Transport&)>& run);

}  // namespace ff
