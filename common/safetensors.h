// Writes tensors as safetensors: the length of a JSON header in 8 bytes, the header, and the values one after the
// other.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/block.h"
#include "common/vector.h"

namespace ff {

struct NamedTensor {
  std::string name;
  Shape shape;
  std::function<std::shared_ptr<const Vector<float>>()> values;  // row-major; asked for when they are written
};

// The length of the header that begins at byte 8, of the file's first 8 bytes or more. Throws InputError for what is no
// safetensors file.
size_t safetensors_header_length(const std::string& beginning, uint64_t file_size, const std::string& path);

// Whole or not at all (write_file_atomically); one tensor's values after the other's are in memory. The metadata are in
// the file's header, with what other programs expect there. Throws MachineError.
void write_safetensors(const std::string& path, const std::map<std::string, std::string>& metadata,
                       const Vector<NamedTensor>& tensors);

}  // namespace ff
