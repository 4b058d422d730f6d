// Which GPU is it? Its number depends on CUDA_VISIBLE_DEVICES, its address on the PCI bus ("0000:18:00.0") does not.
// MIG slices of one GPU share its address: theirs is followed by the slice's own identifier.
// MachineError without it.
#pragma once

#include <string>

namespace ff {

std::string cuda_bus_id(int device);

}  // namespace ff
