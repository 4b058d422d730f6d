// The command lines of ffsearch explain and ffsearch diff.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "search/commands.h"

namespace ff {

// `add_cost_flags` adds what all commands have that simulate: --cost, --profile, --json, ...
void add_explain_commands(CLI::App& app, ExplainOptions& explain, DiffOptions& diff,
                          const std::function<void(CLI::App&, CostOptions&)>& add_cost_flags);

}  // namespace ff
