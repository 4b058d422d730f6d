// Kernels that compute in f32 for operators whose tensors are bf16: before a kernel runs, its operands become f32 in
// scratch memory, and what it has written there is rounded to bf16 after it (kernels/converted_kernel.h). Parts on one
// device share the scratch memory, since a device runs one kernel at a time. The program plan allocates it and the
// memory model counts it.
#pragma once

#include "common/operators/operator.h"

namespace ff {

// Where each tensor lies in the scratch memory, in bytes; -1: the kernel uses it where it is. By input, output and
// parameter. Gradients of parameters are f32 in any precision.
struct ConversionLayout {
  Vector<int64_t> inputs, parameters, outputs;
  Vector<int64_t> output_gradients, input_gradients;  // backward
  int64_t bytes = 0;
};

// `input_gradients`: by input, will backward be asked for it? Backward has what it reads alone. Inputs of the graph
// that are f32 are rounded to bf16 on their way, unless a loss reads them.
ConversionLayout conversion_layout(const OperatorDefinition& definition, const Block& part, bool backward,
                                   const Vector<bool>& input_gradients);
// What the part's kernel needs; 0 where all of its tensors are f32 or i32.
int64_t conversion_bytes(const OperatorDefinition& definition, const Block& part, bool has_backward,
                         const Vector<bool>& input_gradients);

}  // namespace ff
