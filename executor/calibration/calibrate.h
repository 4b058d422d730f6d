// Measures this machine as ffexec uses it, and describes it as a topology: kernels through the backend, messages and
// all-reduces through the transport's own calls.
#pragma once

#include "common/json_file.h"
#include "common/kernels/backend.h"
#include "executor/processor_share.h"
#include "executor/transport/transport.h"

namespace ff {

struct Calibration {
  Json topology;              // fftopology/1
  std::string text;           // for people: what was measured, and how well it fits what a topology can say
  Vector<std::string> notes;  // what they should know before they believe it
};

// On rank 0; on the others it is empty. All ranks call. `cores` is what the backend was made with, `processors` what
// each rank may use.
Calibration calibrate(Backend& backend, Transport& transport, int cores, const Vector<RankProcessors>& processors);

}  // namespace ff
