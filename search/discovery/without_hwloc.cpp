#include <unistd.h>

#include "common/processors.h"
#include "search/discovery/hwloc.h"

namespace ff::discovery {

Machine machine_without_hwloc(const std::string& why) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  Machine machine;
  machine.name = host;
  machine.source = "the operating system";
  machine.numa = {{0, usable_processors().count(), int64_t{sysconf(_SC_PHYS_PAGES)} * int64_t{sysconf(_SC_PAGESIZE)}}};
  machine.notes = {why + ": sockets, NUMA nodes, PCIe switches and network adapters are not known"};
  return machine;
}

}  // namespace ff::discovery
