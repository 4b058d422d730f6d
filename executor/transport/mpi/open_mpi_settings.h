// What Open MPI is told before it starts, by environment variables; those that the user has set stay.
#pragma once

#include <cstdint>
#include <string>

#include "common/vector.h"

namespace ff {

// Bytes of the pieces in which messages go to other hosts, below Open MPI's limit for sending at once. A larger message
// is announced first and sent when the receiver asks for it. Over TCP that question stands after everything that the
// receiver sends the other way on the same connection: 16 MiB each way at 1 Gb/s then take 290 ms in about every second
// exchange, one direction after the other, in pieces always 143 (the link's limit is 141).
constexpr int64_t piece_bytes = 128 << 10;

// To be called before MPI_Init. Returns what it has set: NAME=VALUE.
Vector<std::string> prepare_open_mpi();

}  // namespace ff
