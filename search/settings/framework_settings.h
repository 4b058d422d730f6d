// Plans in the words of training frameworks.
#pragma once

#include <string>

#include "common/graph.h"
#include "common/vector.h"
#include "search/optimizer/parallelism.h"

namespace ff {

struct FrameworkSettings {
  std::string text;               // flags, TOML or JSON
  Vector<std::string> not_there;  // what the framework's settings cannot say of these
};
// `framework`: megatron (arguments of Megatron-LM's pretrain_gpt.py), torchtitan (its TOML), deepspeed (its JSON).
// `layers`: of the transformer. framework_arguments.h reads the first two back: what they say gives the same settings
// and the same prediction.
FrameworkSettings framework_settings(const std::string& framework, const Parallelism& parallelism, const Graph& graph,
                                     int layers, Precision precision);

// The framework whose conventions (optimizer/parallelism.h) predict plans for this one.
std::string convention_of(const std::string& framework);

}  // namespace ff
