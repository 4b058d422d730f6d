#include "common/safetensors.h"

#include "common/json_file.h"
#include "common/operators/operator.h"

namespace ff {
namespace {

constexpr uint64_t longest_header = 100'000'000;  // the format's own limit

}  // namespace

size_t safetensors_header_length(const std::string& beginning, uint64_t file_size, const std::string& path) {
  if (beginning.size() < 8)
    throw InputError(path + ": has " + std::to_string(file_size) + " bytes, expected a safetensors file");
  uint64_t length = 0;
  for (int byte = 0; byte < 8; ++byte)
    length |= uint64_t{static_cast<unsigned char>(beginning[static_cast<size_t>(byte)])} << (8 * byte);
  if (length > longest_header)
    throw InputError(path + ": is not a safetensors file (its header would have " + std::to_string(length) + " bytes)");
  if (length > file_size - 8)
    throw InputError(path + ": is truncated: its header has " + std::to_string(length) + " bytes, the file " +
                     std::to_string(file_size));
  return static_cast<size_t>(length);
}

void write_safetensors(const std::string& path, const std::map<std::string, std::string>& metadata,
                       const Vector<NamedTensor>& tensors) {
  Json header = Json::object();
  header["__metadata__"] = metadata;
  header["__metadata__"]["format"] = "pt";
  int64_t offset = 0;
  for (const NamedTensor& tensor : tensors) {
    const int64_t end = offset + volume(tensor.shape) * element_bytes;
    header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data begins at a multiple of 8 bytes
  const uint64_t length = text.size();
  std::string beginning;
  for (int byte = 0; byte < 8; ++byte) beginning.push_back(static_cast<char>(length >> (8 * byte) & 0xFF));
  write_file_atomically(path, [&](const auto& write) {
    write(beginning + text);
    for (const NamedTensor& tensor : tensors) {
      const auto values = tensor.values();
      write({reinterpret_cast<const char*>(values->data()), values->size() * sizeof(float)});
    }
  });
}

}  // namespace ff
