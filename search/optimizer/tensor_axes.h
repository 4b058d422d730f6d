// Which axis of a tensor a parallelizable dimension splits, as the operator's block functions say it.
#pragma once

#include "common/graph.h"

namespace ff {

// The axis along which parts that differ in this dimension write (read, hold) different blocks; -1: none, they have the
// same block. Of several axes, the first.
int axis_of_output(const OperatorDefinition& definition, int output, int dimension);
int axis_of_input(const OperatorDefinition& definition, int input, int dimension);
int axis_of_parameter(const OperatorDefinition& definition, int parameter, int dimension);

}  // namespace ff
