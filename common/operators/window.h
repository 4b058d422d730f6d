// The geometry that convolution and pooling share: a window that slides over one axis.
#pragma once

#include <algorithm>

#include "common/block.h"

namespace ff {

// One axis. Window o covers the input positions o * stride - padding + j * dilation, j in [0, kernel).
struct Window {
  int64_t input_size = 1;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;

  int64_t extent() const { return (kernel - 1) * dilation + 1; }
  // Number of windows; with `ceil`, a last one that starts inside the input and hangs over its end counts too.
  int64_t output_size(bool ceil = false) const {
    const int64_t room = input_size + 2 * padding - extent();
    if (room < 0) return 0;
    int64_t size = (ceil ? (room + stride - 1) / stride : room / stride) + 1;
    if (ceil && (size - 1) * stride >= input_size + padding) --size;
    return size;
  }
  // Input positions that the windows of `output` read, without the padding: for a split axis this includes the halo.
  Interval input(Interval output) const { return intersect(unclipped(output), Interval{0, input_size}); }
  // Padding that a kernel restricted to `output` sees before and after input(output).
  int64_t padding_before(Interval output) const { return std::max<int64_t>(0, -unclipped(output).begin); }
  int64_t padding_behind(Interval output) const { return std::max<int64_t>(0, unclipped(output).end - input_size); }
  // Neighbouring windows touch or overlap, and a window has no holes.
  bool leaves_no_gap() const { return stride <= kernel && dilation == 1; }

 private:
  Interval unclipped(Interval output) const {
    return {output.begin * stride - padding, (output.end - 1) * stride - padding + extent()};
  }
};

}  // namespace ff
