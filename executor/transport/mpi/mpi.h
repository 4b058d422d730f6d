// Transport over MPI. With FF_MPI=OFF no_mpi.cpp replaces mpi.cpp.
#pragma once

#include <memory>

#include "executor/transport/transport.h"

namespace ff {

// Initializes MPI, once a process, for all ranks that mpirun started. The destructor finalizes it.
// Throws MachineError.
std::unique_ptr<Transport> make_mpi_transport();

}  // namespace ff
