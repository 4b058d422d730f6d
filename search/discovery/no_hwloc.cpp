#include "common/errors.h"
#include "search/discovery/hwloc.h"

namespace ff::discovery {

Machine read_hwloc(const std::string& xml) {
  if (!xml.empty()) throw MachineError("--hwloc-xml: this program was built without hwloc (libhwloc-dev)");
  return machine_without_hwloc("this program was built without hwloc (libhwloc-dev)");
}

}  // namespace ff::discovery
