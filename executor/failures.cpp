#include "executor/failures.h"

#include <algorithm>
#include <new>

#include "common/errors.h"

namespace ff {

Failure describe_current_exception() {
  try {
    throw;
  } catch (const InputError& error) {
    return {exit_input, error.what()};
  } catch (const std::bad_alloc&) {
    return {exit_machine, "out of memory"};
  } catch (const std::exception& error) {
    return {exit_machine, error.what()};
  }
}

std::string rank_and_host(const Transport& transport) {
  return transport.size() == 1 ? "" : "rank " + std::to_string(transport.rank()) + " on " + transport.host() + ": ";
}

void run_together(Transport& transport, const std::function<void()>& function) {
  Failure mine{exit_done, ""};
  try {
    function();
  } catch (...) {
    mine = describe_current_exception();
  }
  const auto fails = [](const std::string& one) { return one[0] != exit_done; };
  // Of each rank: the exit code, the rank's name, 0, the message.
  const Vector<std::string> all =
      transport.gather(static_cast<char>(mine.exit_code) + rank_and_host(transport) + '\0' + mine.message);
  Failure first{exit_done, ""};
  if (const auto found = std::find_if(all.begin(), all.end(), fails); found != all.end()) {
    const size_t split = found->find('\0', 1);
    const bool everywhere = std::all_of(all.begin(), all.end(), fails);
    first = {(*found)[0], (everywhere ? "" : found->substr(1, split - 1)) + found->substr(split + 1)};
  }
  first.exit_code = transport.broadcast(std::string(1, static_cast<char>(first.exit_code)))[0];
  if (first.exit_code != exit_done) throw CommonFailure(first.exit_code, first.message);
}

}  // namespace ff
