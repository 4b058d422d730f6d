// Reads an ONNX file. The only part that knows protobuf; a build without it has no_onnx.cpp instead.
#pragma once

#include <string>

#include "search/import/model.h"

namespace ff::importing {

// Throws InputError for what is no ONNX model or is damaged, MachineError in a build without ONNX import. Tensors that
// the file keeps outside ("external data") are read from its directory.
Model read_onnx_file(const std::string& path);
// The same of the file's content; `path` is for messages, external data are in its directory.
Model parse_onnx(const std::string& content, const std::string& path);

}  // namespace ff::importing
