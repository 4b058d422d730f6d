// What is known of a model before anything is computed: shapes of all values, and the values of those that follow from
// constants and shapes alone. Exporters write such chains (Shape - Gather - Concat - Reshape); with the batch bound
// they are numbers.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "search/import/model.h"

namespace ff::importing {

// Gives symbolic dimensions of the inputs their sizes: the batch, and `sizes` by name. Fails with the names of others.
void bind_inputs(Model& model, int64_t batch, const std::map<std::string, int64_t>& sizes);

// Fills model.shapes and model.types, and replaces nodes by constants. What an operator that is not understood writes
// has no shape, nor has what is computed from it.
void infer_shapes_and_fold(Model& model);

// Puts constants in the place of what a node writes; of what may be trained the node is remembered.
void keep_folded(Model& model, const Node& node, Vector<Constant> constants);

// The constant that a node writes, for operators that are computed here (docs/onnx.md lists them), or nothing. One that
// would be enormous is not computed.
std::optional<Vector<Constant>> fold(const Model& model, const Node& node);
// Is the operator one of those, where its inputs are known?
bool can_be_folded(const std::string& op);
// "bld,dh->blh" without spaces as ["bld", "dh", "blh"]; fails for ellipses, and where the output is not said.
Vector<std::string> einsum_letters(const Model& model, const Node& node);
// The shapes of a node's outputs, or nothing where the operator or a shape that it needs is not known.
std::optional<Vector<Shape>> infer_shapes(const Model& model, const Node& node);

// Of a Cast node's attribute "to", TensorProto's number of a type; nothing for strings and the like.
std::optional<ElementType> type_of_cast(int64_t to);

// ONNX's (numpy's) broadcasting; fails for shapes that do not go together.
Shape broadcast(const Model& model, const Node& node, const Vector<Shape>& shapes);
// The shape that a Reshape node asks for of an input with this shape.
Shape reshaped(const Model& model, const Node& node, const Shape& input, const Vector<int64_t>& asked);
// First index, step and count along each axis of the input.
struct SliceRange {
  int64_t begin = 0, step = 1, count = 0;
};
Vector<SliceRange> slice_ranges(const Model& model, const Node& node, const Shape& input);
// Sizes along the axis of a Split node's outputs.
Vector<int64_t> split_sizes(const Model& model, const Node& node, int64_t size);
// The factor along each axis of a Resize or Upsample node: as it says, or by its sizes.
Vector<double> resize_scales(const Model& model, const Node& node, const Shape& input, const Shape& output);
// Of Conv and of the pools: padding before and after each spatial axis, by "pads" or "auto_pad".
struct Padding {
  Vector<int64_t> before, behind;
};
// Of a Pad node, before and behind each axis of the input.
Padding pads_of(const Model& model, const Node& node, const Shape& input);
Padding padding_of(const Model& model, const Node& node, const Shape& input, const Vector<int64_t>& kernel);

// Of a CumSum node: its axis, and the matrix [size, size] of zeros and ones that it multiplies this axis by.
int cumulative_axis(const Model& model, const Node& node, const Shape& input);
Vector<float> cumulative_matrix(const Model& model, const Node& node, int64_t size);

// A constant of zeros that is not trained.
bool is_zero(const Constant& constant);
// The constant with its axes in another order; it stays the same initializer.
Constant transposed(const Constant& constant, const Vector<int>& axes);
// Axes along which what is trained is the same number of the same initializer have size 1 in the result.
Constant without_repetition(const Constant& constant);
// Is one number of an initializer there twice?
bool has_repetition(const Constant& constant);

}  // namespace ff::importing
