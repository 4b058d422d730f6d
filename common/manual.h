// Manual pages and shell completion, from the same declarations as --help. For main.cpp files alone.
#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>

namespace ff {

// The page in section 1 of the manual, in roff.
std::string manual_page(const CLI::App& app);
// Completion of commands, flags and their words, for bash.
std::string bash_completion(const CLI::App& app);

// What `PROGRAM --manual` and `PROGRAM --completion` print, which packages are built with and --help does not list;
// nothing for any other command line.
std::optional<std::string> describe_command_line(const CLI::App& app, int argc, const char* const* argv);

}  // namespace ff
