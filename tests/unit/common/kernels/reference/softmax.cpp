#include "common/operators/softmax.h"

#include <algorithm>
#include <cmath>

#include "tests/unit/common/kernels/reference/reference.h"

namespace ff::reference {
namespace {

Values softmax_rows(const Values& x, size_t classes) {
  Values y(x.size());
  for (size_t row = 0; row < x.size(); row += classes) {
    const double* values = x.data() + row;
    const double most = *std::max_element(values, values + classes);
    double sum = 0;
    for (size_t c = 0; c < classes; ++c) sum += y[row + c] = std::exp(x[row + c] - most);
    for (size_t c = 0; c < classes; ++c) y[row + c] /= sum;
  }
  return y;
}

Gradients softmax_backward(const Softmax& softmax, const Operands& x, const Values& dy) {
  const size_t classes = static_cast<size_t>(softmax.classes);
  const Values y = softmax_rows(x.inputs[0], classes);
  Values dx(y.size());
  for (size_t row = 0; row < y.size(); row += classes) {
    double sum = 0;
    for (size_t c = 0; c < classes; ++c) sum += y[row + c] * dy[row + c];
    for (size_t c = 0; c < classes; ++c) dx[row + c] = y[row + c] * (dy[row + c] - sum);
  }
  return {{dx}, {}};
}

// By what a row's loss is multiplied.
double row_factor(const SoftmaxCrossEntropy& loss, const Values& labels, size_t row) {
  if (!loss.ignored_label) return 1;
  if (labels[row] == *loss.ignored_label) return 0;
  if (!loss.mean_over_counted) return 1;
  const auto counted = std::count_if(labels.begin(), labels.end(), [&](double l) { return l != *loss.ignored_label; });
  return static_cast<double>(labels.size()) / static_cast<double>(counted);
}

Vector<Values> loss_forward(const SoftmaxCrossEntropy& loss, const Operands& x) {
  const size_t classes = static_cast<size_t>(loss.classes);
  const Values p = softmax_rows(x.inputs[0], classes);
  Values y(x.inputs[1].size()), correct(y.size());
  for (size_t row = 0; row < y.size(); ++row) {
    const double factor = row_factor(loss, x.inputs[1], row);
    if (factor == 0) continue;
    const size_t label = static_cast<size_t>(x.inputs[1][row]);
    y[row] = -factor * std::log(p[row * classes + label]);
    const auto first = x.inputs[0].begin() + static_cast<int64_t>(row * classes);
    correct[row] = static_cast<size_t>(std::max_element(first, first + static_cast<int64_t>(classes)) - first) == label
                       ? factor
                       : 0;
  }
  return {y, correct};
}

Gradients loss_backward(const SoftmaxCrossEntropy& loss, const Operands& x, const Values& dy) {
  const size_t classes = static_cast<size_t>(loss.classes);
  Values dx = softmax_rows(x.inputs[0], classes);
  for (size_t row = 0; row < dy.size(); ++row) {
    const double factor = row_factor(loss, x.inputs[1], row);
    if (factor != 0) dx[row * classes + static_cast<size_t>(x.inputs[1][row])] -= 1;
    for (size_t c = 0; c < classes; ++c)
      dx[row * classes + c] *= factor * dy[row] * loss.weight / static_cast<double>(dy.size());
  }
  return {{dx, {}}, {}};
}

}  // namespace

Reference make_softmax_reference(const OperatorDefinition& definition, const Randomness&) {
  const auto& softmax = dynamic_cast<const Softmax&>(definition);
  return {[&](const Operands& x) {
            return Vector<Values>{softmax_rows(x.inputs[0], static_cast<size_t>(softmax.classes))};
          },
          [&](const Operands& x, const Vector<Values>& dy) { return softmax_backward(softmax, x, dy[0]); }};
}

Reference make_softmax_cross_entropy_reference(const OperatorDefinition& definition, const Randomness&) {
  const auto& loss = dynamic_cast<const SoftmaxCrossEntropy&>(definition);
  return {[&](const Operands& x) { return loss_forward(loss, x); },
          [&](const Operands& x, const Vector<Values>& dy) { return loss_backward(loss, x, dy[0]); }};
}

}  // namespace ff::reference
