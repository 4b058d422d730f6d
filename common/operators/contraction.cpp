#include "common/operators/contraction.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace ff {
namespace {

bool has(const StoredLetters& letters, int letter) {
  return std::find(letters.begin(), letters.end(), letter) != letters.end();
}

// Letters that a matrix product treats as one index.
struct Index {
  StoredLetters order;
  int64_t size = 1;
};

struct StoredTensor {
  StoredLetters letters;    // but for those of size 1
  Vector<int64_t> strides;  // by letter
  int64_t elements = 1;
};

StoredTensor tensor_of(const Vector<int64_t>& sizes, const StoredLetters& stored) {
  StoredTensor tensor;
  tensor.strides.assign(sizes.size(), 0);
  for (int letter : stored)
    if (sizes[letter] > 1) tensor.letters.push_back(letter);
  for (int at = tensor.letters.count() - 1; at >= 0; --at) {
    tensor.strides[tensor.letters[at]] = tensor.elements;
    tensor.elements *= sizes[tensor.letters[at]];
  }
  return tensor;
}

// From one value of the index to the next in the tensor, if that is always the same.
std::optional<int64_t> stride_of(const Vector<int64_t>& sizes, const StoredTensor& tensor, const Index& index) {
  if (index.order.empty()) return 0;
  const int64_t innermost = tensor.strides[index.order.back()];
  int64_t expected = innermost;
  for (int at = index.order.count() - 1; at >= 0; --at) {
    if (tensor.strides[index.order[at]] != expected) return std::nullopt;
    expected *= sizes[index.order[at]];
  }
  return innermost;
}

// The tensor as matrices, if it lies so.
std::optional<MatrixOperand> as_matrices(const Vector<int64_t>& sizes, const StoredTensor& tensor, const Index& batch,
                                         const Index& rows, const Index& columns) {
  const auto step = stride_of(sizes, tensor, batch), row = stride_of(sizes, tensor, rows),
             column = stride_of(sizes, tensor, columns);
  if (!step || !row || !column) return std::nullopt;
  const bool plain = columns.size == 1 || *column == 1, transposed = rows.size == 1 || *row == 1;
  if (!plain && !transposed) return std::nullopt;
  MatrixOperand operand;
  operand.transposed = !plain;
  operand.row_stride = plain ? std::max(*row, columns.size) : std::max(*column, rows.size);
  operand.batch_step = *step;
  operand.elements = tensor.elements;
  return operand;
}

MatrixOperand permuted_matrices(const Vector<int64_t>& sizes, const StoredTensor& tensor, const Index& batch,
                                const Index& rows, const Index& columns) {
  MatrixOperand operand;
  operand.row_stride = columns.size;
  operand.batch_step = rows.size * columns.size;
  operand.elements = tensor.elements;
  int64_t stride = tensor.elements;
  for (const Index* index : {&batch, &rows, &columns})
    for (int letter : index->order) {
      stride /= sizes[letter];
      operand.sizes.push_back(sizes[letter]);
      operand.stored_strides.push_back(tensor.strides[letter]);
      operand.matrix_strides.push_back(stride);
    }
  return operand;
}

// The four indices of a product, each in one of the orders in which it lies in a tensor.
struct Indices {
  Index batch, rows, columns, summed;
};

MatrixProducts products_with(const Vector<int64_t>& sizes, const StoredTensor& first, const StoredTensor& second,
                             const StoredTensor& result, const Indices& by) {
  const auto matrices = [&](const StoredTensor& tensor, const Index& rows, const Index& columns) {
    const auto fitting = as_matrices(sizes, tensor, by.batch, rows, columns);
    return fitting ? *fitting : permuted_matrices(sizes, tensor, by.batch, rows, columns);
  };
  MatrixProducts products{by.batch.size,
                          by.rows.size,
                          by.columns.size,
                          by.summed.size,
                          matrices(first, by.rows, by.summed),
                          matrices(second, by.summed, by.columns),
                          matrices(result, by.rows, by.columns)};
  if (products.result.transposed) {  // c = a b where c^T lies: c^T = b^T a^T
    std::swap(products.left, products.right);
    std::swap(products.m, products.n);
    products.left.transposed = !products.left.transposed;
    products.right.transposed = !products.right.transposed;
    products.result.transposed = false;
    products.swapped = true;
  }
  return products;
}

}  // namespace

int64_t MatrixProducts::permuted_elements() const {
  int64_t elements = 0;
  for (const MatrixOperand* operand : {&left, &right, &result})
    if (operand->permuted()) elements += operand->elements;
  return elements;
}

MatrixProducts plan_products(const Vector<int64_t>& sizes, const StoredLetters& first, const StoredLetters& second,
                             const StoredLetters& result) {
  const StoredTensor tensors[] = {tensor_of(sizes, first), tensor_of(sizes, second), tensor_of(sizes, result)};
  // Of the letters in these tensors alone: their orders in each of the tensors.
  const auto orders = [&](bool in_first, bool in_second, bool in_result) {
    const bool in[] = {in_first, in_second, in_result};
    Vector<Index> found;
    for (int t = 0; t < 3; ++t) {
      if (!in[t]) continue;
      Index index;
      for (int letter : tensors[t].letters) {
        bool belongs = true;
        for (int other = 0; other < 3; ++other) belongs = belongs && has(tensors[other].letters, letter) == in[other];
        if (!belongs) continue;
        index.order.push_back(letter);
        index.size *= sizes[letter];
      }
      const bool known =
          std::any_of(found.begin(), found.end(), [&](const Index& other) { return other.order == index.order; });
      if (!known) found.push_back(std::move(index));
    }
    return found;
  };
  const Vector<Index> batches = orders(true, true, true), rows = orders(true, false, true),
                      columns = orders(false, true, true), summed = orders(true, true, false);
  std::optional<MatrixProducts> best;
  for (const Index& batch : batches)
    for (const Index& row : rows)
      for (const Index& column : columns)
        for (const Index& sum : summed) {
          MatrixProducts products = products_with(sizes, tensors[0], tensors[1], tensors[2], {batch, row, column, sum});
          if (!best || products.permuted_elements() < best->permuted_elements()) best = std::move(products);
        }
  return *best;
}

}  // namespace ff
