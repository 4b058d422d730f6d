#include "common/operators/pool2d.h"

#include "tests/unit/common/kernels/reference/sequence.h"

namespace ff::reference {
namespace {

// Calls visit(output, inputs of its window, divisor of an average).
template <class Visit>
void for_each_window(const Pool2d& pool, const Visit& visit) {
  const Shape& in = pool.inputs()[0].shape;
  const Shape& out = pool.outputs()[0].shape;
  for (int64_t n = 0; n < out[0]; ++n)
    for (int64_t c = 0; c < out[1]; ++c)
      for (int64_t h = 0; h < out[2]; ++h)
        for (int64_t w = 0; w < out[3]; ++w) {
          Vector<size_t> window;
          for (int64_t kh = 0; kh < pool.height.kernel; ++kh)
            for (int64_t kw = 0; kw < pool.width.kernel; ++kw) {
              const int64_t ih = h * pool.height.stride - pool.height.padding + kh,
                            iw = w * pool.width.stride - pool.width.padding + kw;
              if (ih >= 0 && ih < in[2] && iw >= 0 && iw < in[3]) window.push_back(at(in, n, c, ih, iw));
            }
          const double divisor = pool.count_padding ? static_cast<double>(pool.height.kernel * pool.width.kernel)
                                                    : static_cast<double>(window.size());
          visit(at(out, n, c, h, w), window, divisor);
        }
}

size_t largest(const Vector<size_t>& window, const Values& x) {
  size_t best = window[0];
  for (size_t i : window)
    if (x[i] > x[best]) best = i;
  return best;
}

Values pool_forward(const Pool2d& pool, const Values& x) {
  Values y(static_cast<size_t>(volume(pool.outputs()[0].shape)), 0);
  for_each_window(pool, [&](size_t o, const Vector<size_t>& window, double divisor) {
    if (pool.method == Pool2d::Method::max) y[o] = x[largest(window, x)];
    else
      for (size_t i : window) y[o] += x[i] / divisor;
  });
  return y;
}

Values pool_backward(const Pool2d& pool, const Values& x, const Values& dy) {
  Values dx(x.size(), 0);
  for_each_window(pool, [&](size_t o, const Vector<size_t>& window, double divisor) {
    if (pool.method == Pool2d::Method::max) dx[largest(window, x)] += dy[o];
    else
      for (size_t i : window) dx[i] += dy[o] / divisor;
  });
  return dx;
}

}  // namespace

Reference make_pool2d_reference(const OperatorDefinition& definition, const Randomness&) {
  const auto& pool = dynamic_cast<const Pool2d&>(definition);
  return {[&](const Operands& x) { return Vector<Values>{pool_forward(pool, x.inputs[0])}; },
          [&](const Operands& x, const Vector<Values>& dy) {
            return Gradients{{pool_backward(pool, x.inputs[0], dy[0])}, {}};
          }};
}

Reference make_pool1d_reference(const OperatorDefinition& definition, const Randomness& randomness) {
  const Reference image = make_pool2d_reference(dynamic_cast<const Pool1d&>(definition).image, randomness);
  return on_images(definition, image);
}

}  // namespace ff::reference
