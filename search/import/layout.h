// How values of an ONNX model lie in tensors of ours. ONNX has any number of axes in any order, the sample on any of
// them or merged with another one (attention by [batch * heads, length, channels]); our tensors have one to four axes,
// the sample first. So a value is a tensor of ours together with a way of reading it:
//
//   atoms   factors of the tensor's axes, in the tensor's row-major order; the first is the batch
//   axes    of ONNX: each a list of atoms; an axis of size 1 is an empty one. Every atom is in one axis
//
// Transpose, Reshape, Flatten, Squeeze and Unsqueeze then only change how the tensor is read. It is moved where an
// operator needs the elements in another order (Builder::arrange), and often nowhere: ONNX's NHWC layer normalization
// between two Transposes is one over the channels of an NCHW tensor.
#pragma once

#include <string>

#include "common/operators/operator.h"

namespace ff::importing {

using Axis = Vector<int>;  // numbers of atoms, outermost first

struct Value {
  std::string tensor;
  Shape physical;  // the tensor's shape
  DataType type = DataType::f32;
  Shape atoms;
  Vector<Axis> axes{};

  // A tensor that ONNX sees as it lies; axes of size 1 have no atoms.
  static Value plain(std::string tensor, const Shape& shape, DataType type = DataType::f32);

  Shape shape() const;  // as ONNX sees it
  int64_t size(const Axis& axis) const;
  int64_t batch() const { return atoms[0]; }

  void transpose(const Vector<int>& order);
  // Another shape of as many elements. False where no factors of the atoms give it, or where the batch were cut.
  [[nodiscard]] bool reshape(const Shape& shape);
  // Cuts an atom in two; the outer one has this size.
  void split_atom(int atom, int64_t outer_size);

  // All atoms in ONNX's order.
  Axis in_order() const;
  // The ONNX axis of each atom.
  Vector<int> axis_of_atoms() const;
  // The axis that is the batch alone, or -1.
  int batch_axis() const;
};

// Splits atoms of an axis of each until both axes have the same factors. False where that cannot be.
[[nodiscard]] bool refine(Value& a, int axis_of_a, Value& b, int axis_of_b);

}  // namespace ff::importing
