// Buffers that a look at their numbers tells from parameters. docs/onnx.md has the list.
#pragma once

#include <string>

#include "search/import/model.h"

namespace ff::importing {

// Why it is a constant, or "": it may be a parameter.
std::string recognised_buffer(const Model& model, const std::string& initializer);

// Are its numbers those of a mask, 0 and very negative ones?
bool is_mask(const Model& model, const std::string& initializer);

}  // namespace ff::importing
