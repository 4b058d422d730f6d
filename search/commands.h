// The commands of ffsearch as functions of plain values: files in, files and a result out. They do not print.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "common/vector.h"
#include "search/cost/kernel_costs.h"
#include "search/optimizer/mcmc/mcmc.h"
#include "search/report/summary.h"

namespace ff {

struct CommandOptions {
  std::string graph, topology, strategy;
  int64_t batch = 0, batch_per_device = 0;  // 0: the graph file's
  std::string algorithm = "mcmc";
  McmcSettings search;
  Vector<std::string> init;  // AlgorithmRequest::init
  bool check_local = false;
  Assignments assignments = Assignments::all;  // of exhaustive
  CostMode cost = CostMode::automatic;
  Precision precision = Precision::fp32;  // of GPUs' matrix products and convolutions
  Vector<std::string> profiles;
  std::string device_model;  // that profile measures; "": the only one that this machine has
  std::string out = "strategy.json", simulate_out, profile_out, trace, report;
  bool json = false, quiet = false;
};

struct CommandContext {
  const std::atomic<bool>& stop;
  std::function<void(const McmcProgress&)> search_progress;
  std::function<void(int64_t done, int64_t all, const std::string& what)> measure_progress;
  bool interactive = false;
};

struct CommandResult {
  Json json;
  std::string text;
};

// Each throws InputError or MachineError.
CommandResult run_search(const CommandOptions& options, const CommandContext& context);
CommandResult run_simulate(const CommandOptions& options, const CommandContext& context);
CommandResult run_compare(const CommandOptions& options, const CommandContext& context);
CommandResult run_profile(const CommandOptions& options, const CommandContext& context);

}  // namespace ff
