// The three ways things go wrong, decided once for the whole product:
//   InputError    the user's file or flag value is at fault       -> exit code 1
//   MachineError  the machine is (no GPU, disk full, a lost rank) -> exit code 3
//   assert        an invariant of our own code is broken          -> abort
// Libraries throw; only the main.cpp files print and exit.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "common/vector.h"

namespace ff {

class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class MachineError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum ExitCode { exit_done = 0, exit_input = 1, exit_usage = 2, exit_machine = 3, exit_interrupted = 130 };

// The candidate nearest to `name` by edit distance, or "" when none is near (distance above a third of the length, at
// least 2).
std::string nearest_name(std::string_view name, const Vector<std::string>& candidates);

// `; did you mean "x"?` or, with no near candidate, `; known: a, b, c`.
std::string suggestion(std::string_view name, const Vector<std::string>& candidates);

}  // namespace ff
