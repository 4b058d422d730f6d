#include "search/cost/conventions.h"

#include "common/graph.h"
#include "common/operators/attention.h"

namespace ff {
namespace {

constexpr int64_t f32_bytes = 4;

// [samples, heads, queries, keys]
int64_t scores(const MultiHeadAttention& attention, const Block& part) {
  return part.volume() * attention.group * attention.keys_of(part);
}

}  // namespace

int64_t framework_workspace_bytes(const OperatorDefinition& definition, const Block& part,
                                  const FrameworkConventions& conventions) {
  if (const auto* attention = dynamic_cast<const MultiHeadAttention*>(&definition)) {
    const int64_t bytes = size_of(definition.outputs()[0].type), projected = attention->projected(part).size() * bytes;
    if (conventions.stored_attention)
      return projected + (conventions.recomputes_attention ? 0 : scores(*attention, part) * bytes);
    return projected + part.volume() * attention->group * f32_bytes;
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
    return projected + 2 * attention->exchanged_bytes(part) +
           (conventions.stored_attention ? matrices * scores(*attention, part) * bytes : 0);
  }
  if (conventions.unfused_loss && definition.is_loss() && definition.counts_correct())
    return 2 * definition.input_block(0, part).volume() * f32_bytes;
  return 0;
}

Graph with_conventions(Graph graph, const FrameworkConventions& conventions) {
  if (!conventions.exchanges_keys) return graph;
  for (Operator& op : graph.operators)
    if (const auto* attention = dynamic_cast<const MultiHeadAttention*>(op.definition.get())) {
      auto exchanging = std::make_shared<MultiHeadAttention>(*attention);
      exchanging->exchange_keys();
      op.definition = std::move(exchanging);
    }
  return graph;
}

}  // namespace ff
