#include "common/operators/broadcast.h"

#include "tests/unit/common/kernels/reference/taped.h"

namespace ff::reference {
namespace {

void broadcast(const Broadcast& broadcast, Operation& o) {
  const Shape& shape = broadcast.inputs()[0].shape;
  const Numbers &x = o.operands.inputs[0],
                &other = broadcast.parameter ? o.operands.parameters[0] : o.operands.inputs[1];
  for (int64_t i = 0; i < volume(shape); ++i) {
    Vector<int64_t> index(shape.size(), 0);
    int64_t rest = i;
    for (int axis = shape.count() - 1; axis >= 0; --axis) {
      index[axis] = rest % shape[axis];
      rest /= shape[axis];
    }
    int64_t partner = 0;
    for (const int axis : broadcast.axes) partner = partner * shape[axis] + index[axis];
    o.results[0][i] = broadcast.product ? x[i] * other[partner] : x[i] + other[partner];
  }
}

void prefix(const Prefix& prefix, Operation& o) {
  for (int64_t n = 0; n < o.outputs[0].size(0); ++n)
    for (int64_t l = 0; l < o.outputs[0].size(1); ++l)
      for (int64_t c = 0; c < o.outputs[0].size(2); ++c)
        o.outputs[0](n, l, c) = l < prefix.rows ? o.parameters[0](l, c) : o.inputs[0](n, l - prefix.rows, c);
}

}  // namespace

Reference make_broadcast_reference(const OperatorDefinition& definition, const Randomness&) {
  return taped<Broadcast>(definition, broadcast);
}
Reference make_prefix_reference(const OperatorDefinition& definition, const Randomness&) {
  return taped<Prefix>(definition, prefix);
}

}  // namespace ff::reference
