// Which buffers a device has for the parameters that its parts use, for as long as a program runs. The program plan
// allocates them (executor/plan), the memory model counts them (search/cost/memory).
//
// Parts on one device with the same block of a parameter share its buffers:
//   weight      every block
//   copy        blocks of which kernels read another type than that of the weights, which are f32
//   states      blocks of trained parameters: as many buffers as the optimizer has numbers for each (optimizer.h)
//   gradient    blocks that a backward task here writes the gradient of, unless the block is one piece: then the
//               gradient lies in the gradient sum. Blocks of operators that share a parameter and split it differently
//               overlap in part; such a block consists of several pieces.
// And for each piece of a trained parameter (parameter_pieces.h) that a part here uses:
//   gradient sum    the gradients of this device's parts added up, then those of all devices; aligned in the buffer of
//                   its synchronization unit (synchronization_units.h)
#pragma once

#include "common/graph.h"
#include "common/task_graph/parameter_pieces.h"

namespace ff {

// Does an update change it: is it trained, and has an operator that uses it a backward pass?
bool is_updated(const Graph& graph, ParameterId parameter);

// What kernels read of it: the weights themselves (f32), or a copy of this type.
DataType type_read(const Graph& graph, ParameterId parameter);
// Of the copy of a block; 0 without one.
int64_t weight_copy_bytes(const Graph& graph, ParameterId parameter, int64_t block_elements);

struct ParameterUse {
  bool has_backward;  // of some part here with this block
  bool is_piece;      // not cut
};

// In elements; 0: no such buffer.
struct ParameterBufferSizes {
  int64_t weight = 0, states = 0, gradient = 0;  // states: all of them together
  int64_t elements() const { return weight + states + gradient; }
};
ParameterBufferSizes parameter_buffer_sizes(const Graph& graph, ParameterId parameter, int64_t block_elements,
                                            int state_buffers, ParameterUse use);

// Each gradient sum begins at 64 bytes, for the kernels that write there.
constexpr int64_t gradient_sum_elements(int64_t piece_elements) {
  constexpr int64_t alignment = 16;
  return (piece_elements + alignment - 1) / alignment * alignment;
}

}  // namespace ff
