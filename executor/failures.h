// How ranks fail: with one message for people and one exit code.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

#include "executor/transport/transport.h"

namespace ff {

struct Failure {
  int exit_code;
  std::string message;
};

// Of the exception that is being handled.
Failure describe_current_exception();

// "rank 2 on node1: "; "" for a single rank.
std::string rank_and_host(const Transport& transport);

// A failure that all ranks know of. They end alike, and rank 0, which alone has the message, prints it.
class CommonFailure : public std::runtime_error {
 public:
  CommonFailure(int exit_code, const std::string& message) : std::runtime_error(message), exit_code(exit_code) {}
  int exit_code;
};

// Runs something that needs no other rank on all ranks. When any of them fails, all throw CommonFailure, with the exit
// code and message of the first one.
void run_together(Transport& transport, const std::function<void()>& function);

}  // namespace ff
