#include "executor/transport/mpi/open_mpi_settings.h"

#include <cstdlib>

namespace ff {

Vector<std::string> prepare_open_mpi() {
  constexpr int64_t header_bytes = 4 << 10;  // with room: Open MPI's own are below 100 bytes
  const std::string limit = std::to_string(piece_bytes + header_bytes);
  Vector<std::string> set;
  for (const std::string name :
       {"OMPI_MCA_btl_tcp_eager_limit", "OMPI_MCA_btl_tcp_rndv_eager_limit", "OMPI_MCA_btl_tcp_max_send_size"}) {
    if (std::getenv(name.c_str())) continue;
    setenv(name.c_str(), limit.c_str(), 1);
    set.push_back(name + "=" + limit);
  }
  return set;
}

}  // namespace ff
