// Writes tensors as safetensors: the length of a JSON header in 8 bytes, the header, and the values one behind the
// other.
#pragma once

#include <string>

#include "common/block.h"
#include "common/vector.h"

namespace ff {

struct NamedTensor {
  std::string name;
  Shape shape;
  const Vector<float>* values;  // row-major
};

// `graph` is named in the file's metadata.
std::string to_safetensors(const std::string& graph, const Vector<NamedTensor>& tensors);

}  // namespace ff
