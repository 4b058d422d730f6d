// Settings of a transformer that the user gives instead of a strategy file, in one of three notations.
#pragma once

#include <string>

#include "search/problem_files.h"
#include "search/settings/framework_arguments.h"

namespace ff {

// "": not given.
struct GivenSettings {
  std::string settings;              // optimizer/parallelism.h
  std::string megatron, torchtitan;  // instead: arguments of Megatron-LM, or torchtitan's file
  std::string graph, topology;       // what they are of
  int64_t batch = 0;                 // 0: the graph file's
  bool any() const { return !settings.empty() || !megatron.empty() || !torchtitan.empty(); }
};

struct PlanOfSettings {
  StrategyFile file;
  FrameworkArguments arguments;  // with all settings as they were understood
};
// Reads the graph and the topology. Throws InputError, which names the flag.
PlanOfSettings plan_of_settings(const GivenSettings& given);

// Precision and optimizer are those of the framework's arguments where flags do not say them.
CostOptions with_arguments(CostOptions costs, const FrameworkArguments& arguments, int64_t batch);

// Says what of the framework's arguments was not followed.
void note_arguments(const FrameworkArguments& arguments, Json& json, Vector<std::string>& notes);

}  // namespace ff
