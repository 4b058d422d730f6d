// MPI's C interface, with its error codes as exceptions. For mpi.cpp and the mpi_* files.
#pragma once

#define OMPI_SKIP_MPICXX 1  // the C interface alone
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include "common/vector.h"

namespace ff {

// Throws MachineError with the rank, the host and the call.
void check_mpi(int code, const char* call);

// MPI_Testall.
bool all_complete(Vector<MPI_Request>& requests);

}  // namespace ff
