// The commands of ffexec as functions of plain values: files in, files and a result out. All ranks call the same one;
// they do not print.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "common/json_file.h"
#include "executor/trainer.h"
#include "executor/transport/transport.h"

namespace ff {

struct TrainOptions {
  std::string strategy;
  std::string backend = "auto", transport = "auto";  // DeviceRequest
  std::string precision;                             // "": the strategy's
  std::string data, eval, save, load, trace;         // paths; "" for none
  int64_t iterations = 10, epochs = 0;               // RunSettings
  int64_t save_every = 0;                            // iterations; 0: at the end alone
  OptimizerFlags optimizer;                          // instead of what the strategy file says
  uint64_t seed = 0;
  bool verify = false, share_gpu = false, no_cuda_graph = false;
};

// Whom train tells what happens meanwhile.
struct TrainContext {
  std::function<void(const std::string& line)> note;  // on rank 0
  RunCallbacks run;
};

// On rank 0; the others have the exit code alone.
struct CommandResult {
  Json json;
  std::string text;
  int exit_code = 0;
  std::string failure;  // for people, where the outcome is not what was asked for
};

// Each throws CommonFailure, where it fails on all ranks alike, or InputError or MachineError on any rank alone.
CommandResult run_train(const TrainOptions& options, const TrainContext& context, Transport& host);
// Of the options backend, transport and share_gpu count.
CommandResult run_calibrate(const TrainOptions& options, const std::string& out, const TrainContext& context,
                            Transport& host);

}  // namespace ff
