#include "executor/failures.h"

#include <catch2/catch.hpp>

#include "common/errors.h"
#include "executor/transport/in_process.h"

namespace ff {
namespace {

// What each of three ranks knows when `function(rank)` has run on all: exit code and message, or "".
Vector<std::string> outcomes(const std::function<void(int)>& function) {
  Vector<std::string> all(3);
  run_in_process(3, [&](Transport& transport) {
    try {
      run_together(transport, [&] { function(transport.rank()); });
    } catch (const CommonFailure& failure) {
      all[transport.rank()] = std::to_string(failure.exit_code) + " " + failure.what();
    }
  });
  return all;
}

}  // namespace

TEST_CASE("ranks fail together, with the first one's message") {
  CHECK(outcomes([](int) {}) == Vector<std::string>{"", "", ""});
  CHECK(outcomes([](int rank) {
          if (rank == 1) throw InputError("s.json: no such file");
          if (rank == 2) throw MachineError("out of disk");
        }) == Vector<std::string>{"1 rank 1 on localhost: s.json: no such file", "1 ", "1 "});
  // What all of them say needs no name of a rank.
  CHECK(outcomes([](int) { throw std::bad_alloc(); }) == Vector<std::string>{"3 out of memory", "3 ", "3 "});
}

}  // namespace ff
