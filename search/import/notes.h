// What the graph does otherwise than the file, where both are meant well: notes for the user.
#pragma once

#include "search/import/model.h"

namespace ff::importing {

// Does a Dropout node drop anything when the model is trained?
bool drops(const Model& model, const Node& node);

// Of a model whose control flow is resolved, before its operators are lowered. `cross_entropy`: its outputs are scores.
Vector<std::string> notes_on(const Model& model, bool cross_entropy);

}  // namespace ff::importing
