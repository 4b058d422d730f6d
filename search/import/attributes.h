// Attributes of ONNX's operators that are understood, operator by operator. One that is not in the list would otherwise
// be ignored without a word: what a newer operator set adds, what an older one meant, or what a program has added.
#pragma once

#include "search/import/model.h"

namespace ff::importing {

// Fails where a node of a listed operator has an attribute that is not understood, or a value of one that is not.
void expect_known_attributes(const Model& model, const Node& node);

}  // namespace ff::importing
