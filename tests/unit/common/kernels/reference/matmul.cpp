#include "common/operators/matmul.h"

#include "tests/unit/common/kernels/reference/taped.h"

namespace ff::reference {
namespace {

void matmul(const Matmul& matmul, Operation& o) {
  const View& y = o.outputs[0];
  for (int64_t n = 0; n < y.size(0); ++n)
    for (int64_t i = 0; i < y.size(1); ++i)
      for (int64_t j = 0; j < y.size(2); ++j)
        for (int64_t k = 0; k < matmul.inner; ++k)
          y(n, i, j) = y(n, i, j) + matmul.scale * o.inputs[0](n, i, k) *
                                        (matmul.transposed ? o.inputs[1](n, j, k) : o.inputs[1](n, k, j));
}

}  // namespace

Reference make_matmul_reference(const OperatorDefinition& definition, const Randomness&) {
  return taped<Matmul>(definition, matmul);
}

}  // namespace ff::reference
