// Replaces onnx_reader.cpp in a build without protobuf and ONNX's message definitions.
#include "common/errors.h"
#include "search/import/reader.h"

namespace ff::importing {

Model read_onnx_file(const std::string& path) {
  throw MachineError(path + ": this ffsearch was built without ONNX import (libonnx-dev and libprotobuf-dev)");
}

Model parse_onnx(const std::string&, const std::string& path) { return read_onnx_file(path); }

}  // namespace ff::importing
