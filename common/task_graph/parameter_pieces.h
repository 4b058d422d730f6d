// Parameters, cut into the pieces that are synchronized.
//
// Every part of an operator holds one block of each of its parameters, perhaps an empty one. Operators that share a
// parameter (unrolled steps of an LSTM, a tied embedding) may be split differently, so that blocks overlap in part:
// they are cut into disjoint pieces, each of which lies in a block either whole or not at all.
#pragma once

#include <string>
#include <utility>

#include "common/graph.h"
#include "common/strategy.h"
#include "common/vector.h"

namespace ff {

// Parameters used by exactly the same operators, such as a layer's weight and bias: synchronized and updated together.
struct ParameterGroup {
  std::string name;
  Vector<ParameterId> parameters;
  Vector<OperatorId> operators;
  bool trained = false;  // some operator of it has a backward pass
};
Vector<ParameterGroup> parameter_groups(const Graph& graph);

// A disjoint piece of a tensor, and the blocks that contain it.
struct CutPiece {
  Block block;
  Vector<int32_t> containing;  // indices of blocks, ascending
};
// Cuts each axis wherever a block begins or ends. The cells of that grid are the pieces, in row-major order; those in
// no block are left out. Blocks are distinct and not empty, and there is at least one.
Vector<CutPiece> cut_into_pieces(const Vector<Block>& blocks);

// A disjoint piece of a parameter and the parts (of all operators that share the parameter) that use it.
struct ParameterPiece {
  ParameterId parameter;
  Block block;
  Vector<std::pair<OperatorId, int>> users;  // (operator, part), ascending
  // By user: equal numbers for equal blocks of the parameter, whose gradients are one buffer on a device.
  Vector<int> user_blocks;
};
// All pieces of a group, parameter by parameter.
Vector<ParameterPiece> parameter_pieces(const Graph& graph, const ParameterGroup& group, const Strategy& strategy);

}  // namespace ff
