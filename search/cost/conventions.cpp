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

bool is_projection(const OperatorDefinition& definition) {
  return definition.type() == "linear" || definition.type() == "multi_head_attention";
}

int64_t framework_workspace_bytes(const OperatorDefinition& definition, const Block& part,
                                  const FrameworkConventions& conventions) {
  if (const auto* attention = dynamic_cast<const MultiHeadAttention*>(&definition)) {
    const int64_t bytes = size_of(definition.outputs()[0].type), projected = attention->projected(part).size() * bytes;
    if (conventions.stored_attention)
      return projected + (conventions.recomputes_attention ? 0 : scores(*attention, part) * bytes);
    // Of padded sequences backward reads the gathered output, and the projection after attention the scattered one.
    const int64_t scattered = conventions.gathers_padded ? attention->output_block(0, part).volume() * bytes : 0;
    const int64_t keys = conventions.recomputes_keys ? attention->projected(part).key_elements() * bytes : 0;
    return projected - keys + scattered + part.volume() * attention->group * f32_bytes;
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

double framework_attention_bytes(const OperatorDefinition& definition, const Block& part, bool backward,
                                 const FrameworkConventions& conventions) {
  const auto* attention = dynamic_cast<const MultiHeadAttention*>(&definition);
  if (!attention) return 0;
  const MultiHeadAttention::Projected widths = attention->projected(part);
  double arrays = 0;  // elements
  if (conventions.gathers_padded) {
    const double projected = static_cast<double>(widths.size()),
                 output = static_cast<double>(attention->output_block(0, part).volume());
    arrays += backward ? scattered_arrays * projected + gathered_arrays * output
                       : gathered_arrays * projected + scattered_arrays * output;
  }
  double bytes = arrays * static_cast<double>(size_of(definition.outputs()[0].type));
  if (conventions.rotary_kernel && attention->rotary()) {
    const double once = conventions.uncompiled
                            ? eager_rotation_bytes
                            : 2.0 * static_cast<double>(size_of(definition.outputs()[0].type));  // read, written
    bytes += (backward && conventions.recomputes_keys ? 2 : 1) * once * static_cast<double>(attention->turned(widths));
  }
  return bytes;
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
