#include "common/operators/local_response_normalization.h"

#include <algorithm>
#include <cmath>

#include "tests/unit/common/kernels/reference/reference.h"

namespace ff::reference {
namespace {

double lrn_base(const LocalResponseNormalization& lrn, const Shape& s, const Values& x, int64_t n, int64_t c, int64_t h,
                int64_t w) {
  double sum = 0;
  for (int64_t j = std::max<int64_t>(0, c - lrn.size / 2); j <= std::min(lrn.channels - 1, c + lrn.size / 2); ++j)
    sum += x[at(s, n, j, h, w)] * x[at(s, n, j, h, w)];
  return lrn.bias + lrn.alpha / static_cast<double>(lrn.size) * sum;
}

template <class Visit>
void for_each_pixel(const Shape& s, const Visit& visit) {
  for (int64_t n = 0; n < s[0]; ++n)
    for (int64_t c = 0; c < s[1]; ++c)
      for (int64_t h = 0; h < s[2]; ++h)
        for (int64_t w = 0; w < s[3]; ++w) visit(n, c, h, w);
}

Values lrn_forward(const LocalResponseNormalization& lrn, const Values& x) {
  const Shape& s = lrn.outputs()[0].shape;
  Values y(x.size());
  for_each_pixel(s, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    y[at(s, n, c, h, w)] = x[at(s, n, c, h, w)] * std::pow(lrn_base(lrn, s, x, n, c, h, w), -lrn.beta);
  });
  return y;
}

Values lrn_backward(const LocalResponseNormalization& lrn, const Values& x, const Values& dy) {
  const Shape& s = lrn.outputs()[0].shape;
  Values dx(x.size(), 0);
  // what output c contributes to every input of its window
  for_each_pixel(s, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    const size_t o = at(s, n, c, h, w);
    const double base = lrn_base(lrn, s, x, n, c, h, w);
    dx[o] += dy[o] * std::pow(base, -lrn.beta);
    for (int64_t j = std::max<int64_t>(0, c - lrn.size / 2); j <= std::min(lrn.channels - 1, c + lrn.size / 2); ++j)
      dx[at(s, n, j, h, w)] -= dy[o] * x[o] * lrn.beta * std::pow(base, -lrn.beta - 1) * 2 * lrn.alpha /
                               static_cast<double>(lrn.size) * x[at(s, n, j, h, w)];
  });
  return dx;
}

}  // namespace

Reference make_local_response_normalization_reference(const OperatorDefinition& definition, const Randomness&) {
  const auto& lrn = dynamic_cast<const LocalResponseNormalization&>(definition);
  return {[&](const Operands& x) { return Vector<Values>{lrn_forward(lrn, x.inputs[0])}; },
          [&](const Operands& x, const Vector<Values>& dy) {
            return Gradients{{lrn_backward(lrn, x.inputs[0], dy[0])}, {}};
          }};
}

}  // namespace ff::reference
