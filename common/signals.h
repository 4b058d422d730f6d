// Handlers of signals that cannot harm what they interrupt.
#pragma once

namespace ff {

// Calls `handler` for a signal, on a stack of its own: while oneDNN's AVX-512 matrix product runs (2.6), the stack
// pointer can lie within a buffer of the heap, and what the kernel puts on the stack for a handler would overwrite the
// memory before that buffer (signals_test.cpp). Call it on the main thread, to which signals go.
void handle_signal(int signal, void (*handler)(int));

}  // namespace ff
