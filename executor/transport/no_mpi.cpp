// Replaces mpi.cpp in a build without MPI.
#include "common/errors.h"
#include "executor/transport/mpi/mpi.h"

namespace ff {

std::unique_ptr<Transport> make_mpi_transport() { throw MachineError("this ffexec was built without MPI"); }

}  // namespace ff
