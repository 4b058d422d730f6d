#include "search/cost/conventions.h"

#include "common/operators/attention.h"

namespace ff {
namespace {

constexpr int64_t f32_bytes = 4;

// [samples, heads, length, length]
int64_t scores(const MultiHeadAttention& attention, const Block& part) {
  return attention.projected(part).rows * attention.length * attention.group * part[1].size();
}

}  // namespace

int64_t framework_workspace_bytes(const OperatorDefinition& definition, const Block& part,
                                  const FrameworkConventions& conventions) {
  if (const auto* attention = dynamic_cast<const MultiHeadAttention*>(&definition)) {
    const int64_t bytes = size_of(definition.outputs()[0].type), projected = attention->projected(part).size() * bytes;
    if (conventions.stored_attention)
      return projected + (conventions.recomputes_attention ? 0 : scores(*attention, part) * bytes);
    return projected + scores(*attention, part) / attention->length * f32_bytes;
  }
  if (definition.is_loss() && definition.counts_correct())
    return conventions.unfused_loss ? definition.input_block(0, part).volume() * f32_bytes : 0;
  return definition.workspace_bytes(part);
}

int64_t framework_scratch_bytes(const OperatorDefinition& definition, const Block& part,
                                const FrameworkConventions& conventions) {
  if (const auto* attention = dynamic_cast<const MultiHeadAttention*>(&definition)) {
    const int64_t bytes = size_of(definition.outputs()[0].type), projected = attention->projected(part).size() * bytes;
    const int64_t matrices = conventions.recomputes_attention ? 3 : 2;
    return projected + (conventions.stored_attention ? matrices * scores(*attention, part) * bytes : 0);
  }
  if (conventions.unfused_loss && definition.is_loss() && definition.counts_correct())
    return 2 * definition.input_block(0, part).volume() * f32_bytes;
  return 0;
}

}  // namespace ff
