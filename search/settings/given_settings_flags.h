// The command line of what is simulated: a strategy file, or settings.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "search/settings/given_settings.h"

namespace ff {

// --strategy, or --settings, --megatron or --torchtitan with --graph and --topo. `replaces_topology`: --topo also goes
// with a strategy, instead of its own.
void add_plan_flags(CLI::App& app, std::string& strategy, GivenSettings& given, bool replaces_topology);

}  // namespace ff
