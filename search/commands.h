// The commands of ffsearch as functions of plain values: files in, files and a result out. They do not print.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "search/algorithms/algorithms.h"
#include "search/explain/explain.h"
#include "search/interruption.h"
#include "search/problem_files.h"
#include "search/settings/choice.h"
#include "search/settings/given_settings.h"
#include "search/settings/plan_by_settings.h"

namespace ff {

// Files to write; "": none.
struct SearchOptions {
  ProblemFiles files;
  CostOptions costs;
  std::string algorithm = "mcmc";
  StrategySettings strategy;
  SettingsChoice choose;    // instead of what `strategy` says
  DecidedSettings decided;  // what `strategy` says because a flag does
  AlgorithmSettings settings;
  std::string out = "strategy.json", trace, report, html;
  Vector<std::string> background;  // strategies that run on the same devices
};

struct SimulateOptions {
  std::string strategy;
  GivenSettings given;                             // or these; of a strategy the topology, if not its own
  std::optional<Vector<std::string>> recompute;    // instead of the strategy's
  std::optional<Synchronization> synchronization;  // none: the strategy's own
  std::string sharding;                            // "": the strategy's own
  CostOptions costs;
  std::string out, trace, html, measured;  // measured: a trace that ffexec wrote, for the report; "": none
  Vector<std::string> background;
  bool explain_costs = false;
  bool compared = true;  // with data parallelism and the lower bound
};

struct EditOptions {
  std::string strategy;
  Vector<std::string> edits;  // report/plan_text.h
  CostOptions costs;
  std::string out;  // "": none
};

struct ExportOptions {
  std::string strategy;
  std::string framework;  // megatron, torchtitan, deepspeed
  CostOptions costs;
};

struct ExplainOptions {
  std::string strategy;
  GivenSettings given;  // or these
  CostOptions costs;
  ExplainSettings settings;
  int micro_batches = 0;  // to explain; 0: explained_part
};

struct DiffOptions {
  std::string a, b;  // strategies
  CostOptions costs;
  int limit = 10;
  int micro_batches = 0;  // to compare; 0: compared_part
};

struct CompareOptions {
  ProblemFiles files;
  CostOptions costs;
  StrategySettings strategy;
  AlgorithmSettings settings;
  std::string html;  // of the best; "": none
  Vector<std::string> background;
};

struct ProfileOptions {
  ProblemFiles files;
  std::optional<Precision> precision;
  std::string device_model;  // to be measured; "": the only one that this machine has
  std::string out;
};

struct CommandContext {
  const std::atomic<bool>& stop;
  BestKnown& best_known;  // for whoever must end the search
  std::function<void(const SearchProgress&)> search_progress;
  std::function<void(const SettingsSearchProgress&)> settings_progress;
  std::function<void(int64_t done, int64_t all, const std::string& what)> measure_progress;
};

struct CommandResult {
  Json json;
  std::string text;
  Vector<std::string> notes = {};  // what the user should know in addition to the result
};

// Each throws InputError or MachineError.
CommandResult run_search(const SearchOptions& options, const CommandContext& context);
CommandResult run_simulate(const SimulateOptions& options);
CommandResult run_edit(const EditOptions& options);
CommandResult run_export(const ExportOptions& options);
CommandResult run_explain(const ExplainOptions& options);
CommandResult run_diff(const DiffOptions& options);
CommandResult run_compare(const CompareOptions& options, const CommandContext& context);
CommandResult run_profile(const ProfileOptions& options, const CommandContext& context);

}  // namespace ff
