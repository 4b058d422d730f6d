// The command `ffsearch import`: its options, and what it does with them.
#pragma once

#include "search/commands.h"
#include "search/import/import.h"

namespace ff {

// Throws InputError or MachineError.
CommandResult run_import(const ImportOptions& options);

}  // namespace ff
