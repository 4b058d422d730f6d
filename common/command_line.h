// What both command lines check in the same way. For main.cpp files alone.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>
#include <string>

namespace ff {

// The end of --help.
inline const char* exit_codes_text() {
  return "Exit codes: 0 done; 1 the input is at fault (the message says how); 2 the command line is; 3 the machine is "
         "(no "
         "GPU, out of memory, disk full, a rank lost); 130 interrupted, best result so far written.";
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

// A name of a file to write, which "" is not.
inline CLI::Validator file_name() {
  return CLI::Validator(
      [](const std::string& text) { return text.empty() ? "found \"\", expected a file name" : std::string(); },
      "FILE");
}

// A number from 0 to the largest float: no NaN, which CLI::NonNegativeNumber lets pass, and no infinity.
inline CLI::Validator finite_non_negative() {
  return CLI::Validator(
      [](const std::string& text) {
        double value = 0;
        const bool fits = CLI::detail::lexical_cast(text, value) && value >= 0 &&
                          value <= static_cast<double>(std::numeric_limits<float>::max());
        return fits ? std::string() : "found " + text + ", expected a number from 0";
      },
      "NONNEGATIVE");
}

}  // namespace ff
