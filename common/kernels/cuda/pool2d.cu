#include "common/operators/pool2d.h"

#include <algorithm>

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/kernels.h"

namespace ff::cuda {
namespace {

// Numbers of elements and positions are of the type Index, of 32 bits where that suffices: then divisions are
// multiplications (Divisor), and fewer registers let more threads run at once.

// One axis of a part: window o covers the block's positions o * stride - before + j, j in [0, kernel), of which those
// in [0, input) exist.
template <class Index>
struct Axis {
  Index input, output, kernel, stride, before;
  Divisor<Index> by_input{input}, by_output{output}, by_stride{stride};
};

// Blocks [samples, height, width, channels].
template <class Index>
struct Geometry {
  Axis<Index> height, width;
  Index samples, channels;
  bool count_padding;
  Divisor<Index> by_channels{channels};
  int64_t inputs() const { return int64_t{samples} * height.input * width.input * channels; }
  int64_t outputs() const { return int64_t{samples} * height.output * width.output * channels; }
};

template <class Index>
struct Range {
  Index begin, end;
};

template <class Index>
__device__ Range<Index> positions_of(const Axis<Index>& axis, Index window) {
  const Index first = window * axis.stride - axis.before, behind = first + axis.kernel;
  return {first > 0 ? first : 0, behind < axis.input ? behind : axis.input};
}

// The windows that cover a position: o * stride - before <= position < o * stride - before + kernel.
template <class Index>
__device__ Range<Index> windows_of(const Axis<Index>& axis, Index position) {
  const Index shifted = position + axis.before, last = axis.by_stride.quotient(shifted);
  const Index first = shifted < axis.kernel ? 0 : axis.by_stride.quotient(shifted - axis.kernel) + 1;
  return {first, last + 1 < axis.output ? last + 1 : axis.output};
}

// Index of an element in storage -> sample, y, x, channel.
template <class Index>
struct Position {
  Index sample, y, x, channel;
};
// Of an element of blocks whose images have so many rows and columns.
template <class Index>
__device__ Position<Index> position_of(Index i, const Divisor<Index>& height, const Divisor<Index>& width,
                                       const Divisor<Index>& channels) {
  Position<Index> place;
  place.channel = channels.remainder(i);
  place.x = width.remainder(i);
  place.y = height.remainder(i);
  place.sample = i;
  return place;
}
template <class Index>
__device__ Position<Index> input_position(const Geometry<Index>& g, int64_t i) {
  return position_of(static_cast<Index>(i), g.height.by_input, g.width.by_input, g.by_channels);
}
template <class Index>
__device__ Position<Index> output_position(const Geometry<Index>& g, int64_t i) {
  return position_of(static_cast<Index>(i), g.height.by_output, g.width.by_output, g.by_channels);
}

// `which` becomes the place of the maximum in its window (the first one, of equals), row by row.
template <class Index, class Which>
void max_forward(const Context& context, const Geometry<Index>& g, const float* input, float* output, Which* which) {
  for_each_index(context, g.outputs(), [=] __device__(int64_t i) {
    const Position<Index> o = output_position(g, i);
    const Range<Index> rows = positions_of(g.height, o.y), columns = positions_of(g.width, o.x);
    const float* image = input + o.sample * g.height.input * g.width.input * g.channels + o.channel;
    Index best_y = rows.begin, best_x = columns.begin;
    float best = image[(best_y * g.width.input + best_x) * g.channels];
    for (Index y = rows.begin; y < rows.end; ++y)
      for (Index x = columns.begin; x < columns.end; ++x) {
        const float value = image[(y * g.width.input + x) * g.channels];
        if (value > best) best = value, best_y = y, best_x = x;
      }
    output[i] = best;
    which[i] = static_cast<Which>((best_y + g.height.before - o.y * g.height.stride) * g.width.kernel + best_x +
                                  g.width.before - o.x * g.width.stride);
  });
}

// Every position gathers from the windows that cover it, so that no two threads add to one sum.
template <class Index, class Which>
void max_backward(const Context& context, const Geometry<Index>& g, const float* gradient, const Which* which,
                  float* result) {
  for_each_index(context, g.inputs(), [=] __device__(int64_t i) {
    const Position<Index> p = input_position(g, i);
    const Range<Index> rows = windows_of(g.height, p.y), columns = windows_of(g.width, p.x);
    float sum = 0;
    for (Index y = rows.begin; y < rows.end; ++y)
      for (Index x = columns.begin; x < columns.end; ++x) {
        const Index o = ((p.sample * g.height.output + y) * g.width.output + x) * g.channels + p.channel;
        const Index own =
            (p.y + g.height.before - y * g.height.stride) * g.width.kernel + p.x + g.width.before - x * g.width.stride;
        if (static_cast<Index>(which[o]) == own) sum += gradient[o];
      }
    result[i] = sum;
  });
}

template <class Index>
__device__ float share(const Geometry<Index>& g, Range<Index> rows, Range<Index> columns) {
  const Index counted =
      g.count_padding ? g.height.kernel * g.width.kernel : (rows.end - rows.begin) * (columns.end - columns.begin);
  return 1.0f / static_cast<float>(counted);
}

template <class Index>
void average_forward(const Context& context, const Geometry<Index>& g, const float* input, float* output) {
  for_each_index(context, g.outputs(), [=] __device__(int64_t i) {
    const Position<Index> o = output_position(g, i);
    const Range<Index> rows = positions_of(g.height, o.y), columns = positions_of(g.width, o.x);
    const float* image = input + o.sample * g.height.input * g.width.input * g.channels + o.channel;
    float sum = 0;
    for (Index y = rows.begin; y < rows.end; ++y)
      for (Index x = columns.begin; x < columns.end; ++x) sum += image[(y * g.width.input + x) * g.channels];
    output[i] = sum * share(g, rows, columns);
  });
}

template <class Index>
void average_backward(const Context& context, const Geometry<Index>& g, const float* gradient, float* result) {
  for_each_index(context, g.inputs(), [=] __device__(int64_t i) {
    const Position<Index> p = input_position(g, i);
    const Range<Index> rows = windows_of(g.height, p.y), columns = windows_of(g.width, p.x);
    float sum = 0;
    for (Index y = rows.begin; y < rows.end; ++y)
      for (Index x = columns.begin; x < columns.end; ++x)
        sum += gradient[((p.sample * g.height.output + y) * g.width.output + x) * g.channels + p.channel] *
               share(g, positions_of(g.height, y), positions_of(g.width, x));
    result[i] = sum;
  });
}

template <class Index>
Geometry<Index> geometry_of(const Pool2d& pool, const Block& part) {
  const Block input = pool.input_block(0, part);
  const auto axis = [&](const Window& window, int number) {
    return Axis<Index>{static_cast<Index>(input[number].size()), static_cast<Index>(part[number].size()),
                       static_cast<Index>(window.kernel), static_cast<Index>(window.stride),
                       static_cast<Index>(window.padding_before(part[number]))};
  };
  return {axis(pool.height, 2), axis(pool.width, 3), static_cast<Index>(part[0].size()),
          static_cast<Index>(part[1].size()), pool.count_padding};
}

// Own kernels: cuDNN's pooling knows neither windows that hang over one side only nor what a part sees of them.
class Pool2dKernel : public Kernel {
 public:
  Pool2dKernel(const Context& context, const Pool2d& pool, const Block& part)
      : context_(context), max_(pool.method == Pool2d::Method::max), small_(geometry_of<int32_t>(pool, part)),
        large_(geometry_of<int64_t>(pool, part)) {
    if (!max_) return;
    if (pool.height.kernel * pool.width.kernel <= 256) which_ = Memory<uint8_t>(context, part.volume());
    else which_of_many_ = Memory<int64_t>(context, part.volume());
  }

  void forward(const KernelArguments& arguments) override {
    const float* input = static_cast<const float*>(arguments.inputs[0]);
    with_geometry([&](const auto& geometry) {
      if (!max_) average_forward(context_, geometry, input, arguments.outputs[0]);
      else if (which_.size() > 0) max_forward(context_, geometry, input, arguments.outputs[0], which_.data());
      else max_forward(context_, geometry, input, arguments.outputs[0], which_of_many_.data());
    });
  }

  void backward(const KernelArguments& arguments) override {
    const float* gradient = arguments.output_gradients[0];
    float* result = arguments.input_gradients[0];
    if (!result) return;
    with_geometry([&](const auto& geometry) {
      if (!max_) average_backward(context_, geometry, gradient, result);
      else if (which_.size() > 0) max_backward(context_, geometry, gradient, which_.data(), result);
      else max_backward(context_, geometry, gradient, which_of_many_.data(), result);
    });
  }

  int64_t workspace_bytes() const override { return which_.bytes() + which_of_many_.bytes(); }

 private:
  template <class Run>
  void with_geometry(const Run& run) const {
    const auto &height = large_.height, &width = large_.width;
    const int64_t largest =
        std::max({large_.inputs(), large_.outputs(), height.kernel * width.kernel, height.stride, width.stride});
    if (largest < INT32_MAX / 2) run(small_);  // also the sum of two
    else run(large_);
  }

  const Context& context_;
  bool max_;
  Geometry<int32_t> small_;  // where its numbers suffice
  Geometry<int64_t> large_;
  Memory<uint8_t> which_;          // by output element: the place of the maximum in its window
  Memory<int64_t> which_of_many_;  // of windows with more than 256 places
};

}  // namespace

std::unique_ptr<Kernel> make_pool2d_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<Pool2dKernel>(context, dynamic_cast<const Pool2d&>(request.definition), request.part);
}

std::unique_ptr<Kernel> make_pool1d_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<Pool2dKernel>(context, dynamic_cast<const Pool1d&>(request.definition).image,
                                        to_image(request.part));
}

}  // namespace ff::cuda
