// What a part's kernel gets between its statistics task and the task after it, without a task graph.
#pragma once

#include "tests/unit/common/kernels/buffer.h"

namespace ff::kernel_cases {

// One operator's kernel of one part, and which part that is.
struct KernelCase {
  const OperatorDefinition& definition;
  const Degrees& degrees;
  int64_t part;
};

// Forward statistics of the channels of `part` over the whole batch.
inline Buffer whole_batch_sums(Backend& backend, const OperatorDefinition& definition, const Block& part,
                               const reference::Operands& operands) {
  Block batch = definition.whole();
  for (int d = 0; d < part.rank(); ++d)
    if (definition.dimensions()[d].kind == DimensionKind::parameter) batch[d] = part[d];
  Buffer input(backend, definition.inputs()[0].shape, definition.input_block(0, batch), true);
  input.fill(operands.inputs[0], DataType::f32);
  const Shape sizes{definition.statistics_bytes(batch, false) / element_bytes};
  Buffer sums(backend, sizes, Block(sizes), false);
  KernelArguments arguments;
  arguments.inputs = {input.data()};
  arguments.statistics = sums.data();
  const auto kernel = backend.make_kernel({definition, batch, {true}, "sums", 1});
  kernel->forward_statistics(arguments);
  backend.wait();
  return sums;
}

// What the part's kernel needs of all parts with which it has forward statistics in common; it has its own from the
// kernel itself, which keeps something of them.
inline Buffer gathered_statistics(Backend& backend, const KernelCase& of, Kernel& kernel,
                                  const KernelArguments& own_arguments, const reference::Operands& operands) {
  const OperatorDefinition& definition = of.definition;
  const int group = definition.statistics_group(of.degrees, static_cast<int>(of.part));
  const int64_t elements = definition.statistics_bytes(definition.part(of.degrees, of.part), false) / element_bytes;
  Vector<int> members;
  for (int part = 0; part < parts_of(of.degrees); ++part)
    if (definition.statistics_group(of.degrees, part) == group) members.push_back(part);
  const Shape sizes{elements * members.count()};
  Buffer statistics(backend, sizes, Block(sizes), false);
  for (int slot = 0; slot < static_cast<int>(members.size()); ++slot) {
    float* own = statistics.data() + slot * elements;
    if (members[slot] == of.part) {
      KernelArguments arguments = own_arguments;
      arguments.statistics = own;
      kernel.forward_statistics(arguments);
      continue;
    }
    const Block part = definition.part(of.degrees, members[slot]);
    Vector<Buffer> inputs;
    KernelArguments arguments;
    for (size_t i = 0; i < operands.inputs.size(); ++i) {
      const TensorSpec& spec = definition.inputs()[i];
      inputs.emplace_back(backend, spec.shape, definition.input_block(static_cast<int>(i), part), true)
          .fill(operands.inputs[i], spec.type);
      arguments.inputs.push_back(inputs.back().data());
    }
    arguments.statistics = own;
    const auto other = backend.make_kernel({definition, part, Vector<bool>(inputs.size(), true), "other", 1});
    other->forward_statistics(arguments);
    backend.wait();
  }
  return statistics;
}

}  // namespace ff::kernel_cases
