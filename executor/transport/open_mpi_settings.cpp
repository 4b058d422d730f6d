#include "executor/transport/open_mpi_settings.h"

#include <cstdlib>

namespace ff {

Vector<EnvironmentSetting> prepare_open_mpi() {
  constexpr int64_t header_bytes = 4 << 10;  // with room: Open MPI's own are below 100 bytes
  const std::string limit = std::to_string(piece_bytes + header_bytes);
  Vector<EnvironmentSetting> set;
  for (const EnvironmentSetting& setting : {EnvironmentSetting{"OMPI_MCA_btl_tcp_eager_limit", limit},
                                            {"OMPI_MCA_btl_tcp_rndv_eager_limit", limit},
                                            {"OMPI_MCA_btl_tcp_max_send_size", limit}}) {
    if (std::getenv(setting.name.c_str())) continue;
    setenv(setting.name.c_str(), setting.value.c_str(), 1);
    set.push_back(setting);
  }
  return set;
}

}  // namespace ff
