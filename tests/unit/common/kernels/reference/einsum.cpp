#include "common/operators/einsum.h"

#include "tests/unit/common/kernels/reference/reference.h"

namespace ff::reference {
namespace {

// visit(first, second, output): where an element of each lies, for all values of all letters.
template <class Visit>
void for_all_letters(const Einsum& einsum, const Visit& visit) {
  const size_t comma = einsum.equation.find(','), arrow = einsum.equation.find("->");
  const std::string tensors[] = {einsum.equation.substr(0, comma), einsum.equation.substr(comma + 1, arrow - comma - 1),
                                 einsum.equation.substr(arrow + 2)};
  const Shape shapes[] = {einsum.inputs()[0].shape,
                          einsum.has_parameter() ? einsum.parameters()[0].shape : einsum.inputs()[1].shape,
                          einsum.outputs()[0].shape};
  Vector<int64_t> size(128, 0), value(128, 0);  // [letter]
  std::string letters;
  for (int t = 0; t < 3; ++t)
    for (size_t axis = 0; axis < tensors[t].size(); ++axis) {
      const char letter = tensors[t][axis];
      if (size[letter] == 0) letters += letter;
      size[letter] = shapes[t][axis];
    }
  const auto at = [&](int tensor) {
    int64_t index = 0;
    for (char letter : tensors[tensor]) index = index * size[letter] + value[letter];
    return static_cast<size_t>(index);
  };
  while (true) {
    visit(at(0), at(1), at(2));
    size_t next = 0;
    for (; next < letters.size(); ++next) {
      const char letter = letters[next];
      if (++value[letter] < size[letter]) break;
      value[letter] = 0;
    }
    if (next == letters.size()) return;
  }
}

const Values& second_of(const Einsum& einsum, const Operands& x) {
  return einsum.has_parameter() ? x.parameters[0] : x.inputs[1];
}

}  // namespace

Reference make_einsum_reference(const OperatorDefinition& definition, const Randomness&) {
  const auto& einsum = dynamic_cast<const Einsum&>(definition);
  return {[&](const Operands& x) {
            Values y(static_cast<size_t>(volume(einsum.outputs()[0].shape)), 0);
            const Values &a = x.inputs[0], &b = second_of(einsum, x);
            for_all_letters(einsum, [&](size_t i, size_t j, size_t k) { y[k] += a[i] * b[j]; });
            return Vector<Values>{y};
          },
          [&](const Operands& x, const Vector<Values>& dy) {
            const Values &a = x.inputs[0], &b = second_of(einsum, x);
            Values da(a.size(), 0), db(b.size(), 0);
            for_all_letters(einsum, [&](size_t i, size_t j, size_t k) {
              da[i] += dy[0][k] * b[j];
              db[j] += dy[0][k] * a[i];
            });
            return einsum.has_parameter() ? Gradients{{da}, {db}} : Gradients{{da, db}, {}};
          }};
}

}  // namespace ff::reference
