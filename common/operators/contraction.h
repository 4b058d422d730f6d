// A product of two tensors that sums over what both have and the result has not, as matrix products: which letters of
// an einsum are rows, columns, summed over and repeated, and which tensors have to be permuted before (the result:
// after) because their elements do not lie so.
#pragma once

#include <cstdint>

#include "common/vector.h"

namespace ff {

// A dense tensor: its letters, numbers from 0, in the order in which they lie in memory, outermost first.
using StoredLetters = Vector<int>;

// Matrices with `row_stride` elements from row to row; they, or what the product wants of them, are transposed.
struct MatrixOperand {
  bool transposed = false;
  int64_t row_stride = 1;
  int64_t batch_step = 0;  // to the next product's matrix
  int64_t elements = 1;
  // Where the tensor does not lie so: loops over all of its elements, with strides as it lies and as it should.
  // Outermost first in the order in which it should lie; empty if it fits.
  Vector<int64_t> sizes, stored_strides, matrix_strides;

  bool permuted() const { return !sizes.empty(); }
};

// result [m, n] = left [m, k] right [k, n], `batch` times. The result is never transposed.
struct MatrixProducts {
  int64_t batch = 1, m = 1, n = 1, k = 1;
  MatrixOperand left, right, result;
  bool swapped = false;  // `left` is the second factor and `right` the first: their product is the transposed result

  const MatrixOperand& first() const { return swapped ? right : left; }
  const MatrixOperand& second() const { return swapped ? left : right; }
  // of the copies in another order
  int64_t permuted_elements() const;
};

// Of tensors in which every letter of one is in one of the others, at least. `sizes`: by letter. Permutes as few
// elements as possible.
MatrixProducts plan_products(const Vector<int64_t>& sizes, const StoredLetters& first, const StoredLetters& second,
                             const StoredLetters& result);

}  // namespace ff
