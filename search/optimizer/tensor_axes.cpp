#include "search/optimizer/tensor_axes.h"

namespace ff {
namespace {

// Either half of the dimension against the whole: an input of a concatenation may lie within one of them.
template <typename BlockOf>
int split_axis(const OperatorDefinition& definition, int dimension, const BlockOf& block_of) {
  const int64_t size = definition.dimensions()[dimension].size;
  if (size < 2) return -1;
  const Block all = block_of(definition.whole());
  for (const Interval half : {Interval{0, size / 2}, Interval{size / 2, size}}) {
    Block part = definition.whole();
    part[dimension] = half;
    const Block block = block_of(part);
    for (int axis = 0; axis < all.rank(); ++axis)
      if (!(block[axis] == all[axis])) return axis;
  }
  return -1;
}

}  // namespace

int axis_of_output(const OperatorDefinition& definition, int output, int dimension) {
  return split_axis(definition, dimension, [&](const Block& part) { return definition.output_block(output, part); });
}

int axis_of_input(const OperatorDefinition& definition, int input, int dimension) {
  return split_axis(definition, dimension, [&](const Block& part) { return definition.input_block(input, part); });
}

int axis_of_parameter(const OperatorDefinition& definition, int parameter, int dimension) {
  return split_axis(definition, dimension,
                    [&](const Block& part) { return definition.parameter_block(parameter, part); });
}

}  // namespace ff
