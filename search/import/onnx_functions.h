// Functions of an ONNX file: operators that the file itself defines by nodes, as newer exporters write modules.
#pragma once

#include <onnx/onnx_pb.h>

#include <string>

namespace ff::importing {

// Replaces every call by the function's nodes, those of functions that it calls too. Fails with an InputError that
// begins with `path`.
void inline_functions(::onnx::ModelProto& model, const std::string& path);

}  // namespace ff::importing
