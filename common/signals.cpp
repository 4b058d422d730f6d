#include "common/signals.h"

#include <csignal>

namespace ff {

void handle_signal(int signal, void (*handler)(int)) {
  static char stack[1 << 16];
  const stack_t alternative{stack, 0, sizeof stack};
  sigaltstack(&alternative, nullptr);
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_ONSTACK;
  sigaction(signal, &action, nullptr);
}

}  // namespace ff
