// Which elements of which parameters of the graph an initializer's numbers have become: what scripts/to_pytorch.py
// needs to write a checkpoint of ffexec with the names and shapes of the model. Layers of several modules are one
// operator here (attention), weights are transposed or joined; as Origin (model.h) has followed each number, the table
// needs to know of none of this.
//
//   {"tensors": {INITIALIZER: {"shape": [...], "pieces": [{"parameter": NAME, "begin": [...], "size": [...],
//                "offset": N, "strides": [...]}, ...]}},
//    "summands": {INITIALIZER: INITIALIZER}, "constants": [INITIALIZER, ...]}
//
// The element at begin + i of the parameter is number offset + i . strides of the initializer, row-major. A summand has
// been added to another initializer. Constants are those that no parameter has as they are.
#pragma once

#include "search/import/builder.h"
#include "search/import/model.h"

namespace ff::importing {

Json pytorch_table(const Model& model, const Builder& builder);

}  // namespace ff::importing
