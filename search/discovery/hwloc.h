// What hwloc (https://www.open-mpi.org/projects/hwloc) tells of a machine: processors, memory, the PCIe tree.
// The library is loaded when it is needed; its header must be there to build with it (else: no_hwloc.cpp).
#pragma once

#include <string>

#include "search/discovery/machine.h"

namespace ff::discovery {

// This machine, or the one that an XML file of `lstopo file.xml` describes. Without hwloc: this machine's processors as
// the operating system counts them, in one NUMA node, and a note. Throws InputError for a file that hwloc cannot read,
// MachineError where a file is given and there is no hwloc.
Machine read_hwloc(const std::string& xml);

// What both implementations know without hwloc.
Machine machine_without_hwloc(const std::string& why);

}  // namespace ff::discovery
