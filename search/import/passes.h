// What is rewritten in an ONNX model before it is converted: what exporters decompose becomes the operators that newer
// operator sets have names for. One small pass a pattern, in a list; docs/onnx.md repeats it as a table.
#pragma once

#include "search/import/pattern.h"

namespace ff::importing {

struct Pass {
  std::string name;
  Vector<std::string> patterns;
  // The node that takes the root's place (its name and outputs are set by the caller), or nothing: it does not fit.
  std::optional<Node> (*rewrite)(Model& model, const Match& match);
};

const Vector<Pass>& passes();
// All passes in their order, and what is then left over removed.
void run_passes(Model& model);

}  // namespace ff::importing
