#include "executor/transport/mpi/calls.h"

#include <string>

#include "common/errors.h"

namespace ff {

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING], host[MPI_MAX_PROCESSOR_NAME];
  int length = 0, host_length = 0, rank = 0;
  MPI_Error_string(code, text, &length);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Get_processor_name(host, &host_length);
  throw MachineError("rank " + std::to_string(rank) + " on " + std::string(host, static_cast<size_t>(host_length)) +
                     ": " + call + ": " + std::string(text, static_cast<size_t>(length)));
}

bool all_complete(Vector<MPI_Request>& requests) {
  int complete = 0;
  check_mpi(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &complete, MPI_STATUSES_IGNORE),
            "MPI_Testall");
  return complete != 0;
}

}  // namespace ff
