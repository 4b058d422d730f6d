// What both command lines check in the same way. For main.cpp files, and those that declare flags for them.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <limits>
#include <string>

#include "common/json_file.h"

namespace ff {

// The end of --help.
inline const char* exit_codes_text() {
  return "Exit codes: 0 done; 1 wrong input; 2 wrong command line; 3 machine failure (no GPU, out of memory, disk "
         "full, "
         "lost rank);\n130 interrupted, best result so far written.";
}

// --help: the flags in groups, one line each: name, value, description, default. Its
// description lists the values that it takes.
class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(Vector<std::string> groups) : groups_(std::move(groups)) { column_width(28); }

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    if (mode == CLI::AppFormatMode::Sub) return make_expanded(app);
    std::string text = make_description(app) + make_usage(app, std::move(name)) + make_positionals(app);
    for (const std::string& group : groups_) {
      const auto options = app->get_options(
          [&](const CLI::Option* option) { return option->get_group() == group && option->nonpositional(); });
      if (!options.empty()) text += make_group(group, false, options);
    }
    return text + make_subcommands(app, mode) + make_footer(app);
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_items_expected_max() == 0) return "";
    const std::string type = option->get_type_name();
    return " " + type.substr(0, type.find_first_of(":{"));
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    const std::string otherwise = option->get_default_str();
    return option->get_description() + (otherwise.empty() ? "" : " (default " + otherwise + ")") +
           (option->get_required() && option->nonpositional() ? " (required)" : "");
  }

 private:
  Vector<std::string> groups_;
};

// Puts the flags of a command into the groups of its --help. `groups`: flags without dashes, by group; the other flags
// belong to the last one.
inline void set_help_groups(CLI::App& app, const Vector<std::pair<std::string, Vector<std::string>>>& groups) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty() || option->get_group().empty()) continue;
    std::string group = groups.back().first;
    for (const auto& [name, flags] : groups)
      if (std::find(flags.begin(), flags.end(), option->get_lnames()[0]) != flags.end()) group = name;
    option->group(group);
  }
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) set_help_groups(*command, groups);
}

// A whole number of 64 bits, without sign: CLI11 lets -1 and what is too large pass as another number.
inline CLI::Validator whole_number() {
  return CLI::Validator(
      [](const std::string& text) {
        uint64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool fits = error == std::errc() && end == text.data() + text.size();
        return fits ? std::string() : "found \"" + text + "\", expected a whole number from 0 to 18446744073709551615";
      },
      "UINT64");
}

// Words of earlier versions, and what they are called now. Checked before CLI::IsMember.
inline CLI::Validator renamed_words(const Vector<Renamed>& words) {
  return CLI::Validator(
      [words](const std::string& text) {
        for (const Renamed& word : words)
          if (word.before == text) return "\"" + text + "\" is now called \"" + word.now + "\"";
        return std::string();
      },
      "");
}

// A flag of earlier versions: an error that says what it is called now, and not in --help.
inline void add_renamed_flag(CLI::App& app, const std::string& before, const std::string& now) {
  app.add_option_function<std::string>(
         before, [before, now](const std::string&) { throw CLI::ValidationError(before, "is now called " + now); }, "")
      ->group("");
}

// Any text but "". `expected`: for the message; `type`: for --help.
inline CLI::Validator not_empty(const std::string& expected, const std::string& type = "") {
  return CLI::Validator(
      [expected](const std::string& text) { return text.empty() ? "found \"\", expected " + expected : std::string(); },
      type);
}

inline CLI::Validator file_name() { return not_empty("a file name", "FILE"); }

// A number, which NaN is not: CLI::Range and CLI::NonNegativeNumber let it pass. `expected`: for the message.
inline CLI::Validator number_between(double least, double most, const std::string& expected) {
  return CLI::Validator(
      [least, most, expected](const std::string& text) {
        double value = 0;
        const bool fits = CLI::detail::lexical_cast(text, value) && value >= least && value <= most;
        return fits ? std::string() : "found " + text + ", expected a number from " + expected;
      },
      "NUMBER");
}

// From 0 to the largest float.
inline CLI::Validator finite_non_negative() {
  return number_between(0, static_cast<double>(std::numeric_limits<float>::max()), "0");
}

}  // namespace ff
