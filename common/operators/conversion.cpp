#include "common/operators/conversion.h"

#include <algorithm>

namespace ff {
namespace {

constexpr int64_t scratch_alignment = 64;  // bytes, as Backend::allocate aligns

}  // namespace

ConversionLayout conversion_layout(const OperatorDefinition& definition, const Block& part, bool backward,
                                   const Vector<bool>& input_gradients) {
  const size_t inputs = definition.inputs().size(), outputs = definition.outputs().size(),
               parameters = definition.parameters().size();
  ConversionLayout layout{Vector<int64_t>(inputs, -1),  Vector<int64_t>(parameters, -1), Vector<int64_t>(outputs, -1),
                          Vector<int64_t>(outputs, -1), Vector<int64_t>(inputs, -1),     0};
  if (definition.activation_type() == DataType::f32) return layout;
  const auto place = [&](int64_t& offset, const Block& block) {
    if (block.empty()) return;
    offset = layout.bytes;
    const int64_t bytes = bytes_of(DataType::f32, block);
    layout.bytes += (bytes + scratch_alignment - 1) / scratch_alignment * scratch_alignment;
  };
  for (const int i : definition.inputs().indices()) {
    const DataType type = definition.inputs()[i].type;
    const Block block = definition.input_block(i, part);
    const bool converted = type == DataType::bf16 || (type == DataType::f32 && !definition.is_loss());
    if (converted && (!backward || definition.backward_reads_input(i))) place(layout.inputs[i], block);
    if (backward && type == DataType::bf16 && input_gradients[i]) place(layout.input_gradients[i], block);
  }
  for (const int p : definition.parameters().indices())
    if (definition.parameter_type(p) == DataType::bf16)
      place(layout.parameters[p], definition.parameter_block(p, part));
  for (const int o : definition.outputs().indices()) {
    if (definition.outputs()[o].type != DataType::bf16) continue;
    const Block block = definition.output_block(o, part);
    if (!backward || definition.backward_reads_output()) place(layout.outputs[o], block);
    if (backward) place(layout.output_gradients[o], block);
  }
  return layout;
}

int64_t conversion_bytes(const OperatorDefinition& definition, const Block& part, bool has_backward,
                         const Vector<bool>& input_gradients) {
  if (definition.activation_type() == DataType::f32) return 0;
  const int64_t forward = conversion_layout(definition, part, false, input_gradients).bytes;
  return has_backward ? std::max(forward, conversion_layout(definition, part, true, input_gradients).bytes) : forward;
}

}  // namespace ff
