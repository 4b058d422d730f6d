#include "common/operators/embedding.h"

#include "tests/unit/common/kernels/reference/taped.h"

namespace ff::reference {
namespace {

void embedding(const Embedding& embedding, Operation& o) {
  const Numbers& tokens = o.operands.inputs[0];
  for (size_t t = 0; t < tokens.size(); ++t)
    for (int64_t c = 0; c < embedding.channels; ++c)
      o.results[0][t * static_cast<size_t>(embedding.channels) + static_cast<size_t>(c)] =
          o.parameters[0](tokens[t].value, c);
}

void position_embedding(const PositionEmbedding&, Operation& o) {
  for (int64_t n = 0; n < o.outputs[0].size(0); ++n)
    for (int64_t l = 0; l < o.outputs[0].size(1); ++l)
      for (int64_t c = 0; c < o.outputs[0].size(2); ++c)
        o.outputs[0](n, l, c) = o.inputs[0](n, l, c) + o.parameters[0](l, c);
}

}  // namespace

Reference make_embedding_reference(const OperatorDefinition& definition, const Randomness&) {
  return taped<Embedding>(definition, embedding);
}

Reference make_position_embedding_reference(const OperatorDefinition& definition, const Randomness&) {
  return taped<PositionEmbedding>(definition, position_embedding);
}

}  // namespace ff::reference
