// Measures this machine as ffexec uses it, and describes it as a topology: kernels through the backend, messages and
// all-reduces through the transport's own calls.
#pragma once

#include "common/json_file.h"
#include "common/kernels/backend.h"
#include "executor/transport/transport.h"

namespace ff {

// Rank 0: an fftopology/1; the others return null. All ranks call. `cores` is what the backend was made with.
Json calibrate(Backend& backend, Transport& transport, int cores);

}  // namespace ff
