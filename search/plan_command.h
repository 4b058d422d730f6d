// The command `ffsearch plan`: its options, and what it does with them.
#pragma once

#include "search/commands.h"
#include "search/settings/search.h"

namespace ff {

struct PlanOptions {
  ProblemFiles files;
  CostOptions costs;
  std::string settings;  // keys that every plan has
  int top = 10;
  double budget_s = 0;    // 0: none
  std::string framework;  // whose arguments are printed for the best plan: megatron, torchtitan, deepspeed; "": none
  Vector<std::string> why, what_if;            // settings, "tp" or "tp=4"; changes (explain/what_if.h)
  bool stages = false, largest_batch = false;  // are looked at, of the best plan
  std::string out;                             // strategy file of the best plan; "": none
};

// Each throws InputError or MachineError. `out` is not written yet.
CommandResult run_plan(const PlanOptions& options, const CommandContext& context);

// Writes the best plan of `result`, what run_plan gave for these options, to `out`, for which it simulates all devices:
// of a large cluster that takes far more time and memory than the search. Returns notes on it.
Vector<std::string> write_best_plan(const PlanOptions& options, const CommandResult& result);

}  // namespace ff
