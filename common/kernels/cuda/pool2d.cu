#include "common/operators/pool2d.h"

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/kernels.h"

namespace ff::cuda {
namespace {

// One axis of a part: window o covers the block's positions o * stride - before + j, j in [0, kernel), of which those
// in [0, input) exist.
struct Axis {
  int64_t input, output, kernel, stride, before;
};

// Blocks [samples, height, width, channels].
struct Geometry {
  Axis height, width;
  int64_t samples, channels;
  bool count_padding;
};

struct Range {
  int64_t begin, end;
};

__device__ Range positions_of(const Axis& axis, int64_t window) {
  const int64_t first = window * axis.stride - axis.before, behind = first + axis.kernel;
  return {first > 0 ? first : 0, behind < axis.input ? behind : axis.input};
}

// The windows that cover a position: o * stride - before <= position < o * stride - before + kernel.
__device__ Range windows_of(const Axis& axis, int64_t position) {
  const int64_t shifted = position + axis.before, last = shifted / axis.stride;
  const int64_t first = shifted < axis.kernel ? 0 : (shifted - axis.kernel) / axis.stride + 1;
  return {first, last + 1 < axis.output ? last + 1 : axis.output};
}

// Index of an element in storage -> sample, y, x, channel.
struct Position {
  int64_t sample, y, x, channel;
};
__device__ Position position_of(int64_t i, int64_t height, int64_t width, int64_t channels) {
  Position place;
  const int64_t pixel = i / channels, row = pixel / width;
  place.channel = i - pixel * channels;
  place.x = pixel - row * width;
  place.sample = row / height;
  place.y = row - place.sample * height;
  return place;
}

// `which` becomes the place of the maximum in its window (the first one, of equals), row by row.
template <class Which>
void max_forward(const Context& context, const Geometry& g, const float* input, float* output, Which* which) {
  for_each_index(context, g.samples * g.height.output * g.width.output * g.channels, [=] __device__(int64_t i) {
    const Position o = position_of(i, g.height.output, g.width.output, g.channels);
    const Range rows = positions_of(g.height, o.y), columns = positions_of(g.width, o.x);
    const float* image = input + o.sample * g.height.input * g.width.input * g.channels + o.channel;
    int64_t best_y = rows.begin, best_x = columns.begin;
    float best = image[(best_y * g.width.input + best_x) * g.channels];
    for (int64_t y = rows.begin; y < rows.end; ++y)
      for (int64_t x = columns.begin; x < columns.end; ++x) {
        const float value = image[(y * g.width.input + x) * g.channels];
        if (value > best) best = value, best_y = y, best_x = x;
      }
    output[i] = best;
    which[i] = static_cast<Which>((best_y + g.height.before - o.y * g.height.stride) * g.width.kernel + best_x +
                                  g.width.before - o.x * g.width.stride);
  });
}

// Every position gathers from the windows that cover it, so that no two threads add to one sum.
template <class Which>
void max_backward(const Context& context, const Geometry& g, const float* gradient, const Which* which, float* result) {
  for_each_index(context, g.samples * g.height.input * g.width.input * g.channels, [=] __device__(int64_t i) {
    const Position p = position_of(i, g.height.input, g.width.input, g.channels);
    const Range rows = windows_of(g.height, p.y), columns = windows_of(g.width, p.x);
    float sum = 0;
    for (int64_t y = rows.begin; y < rows.end; ++y)
      for (int64_t x = columns.begin; x < columns.end; ++x) {
        const int64_t o = ((p.sample * g.height.output + y) * g.width.output + x) * g.channels + p.channel;
        const int64_t own =
            (p.y + g.height.before - y * g.height.stride) * g.width.kernel + p.x + g.width.before - x * g.width.stride;
        if (static_cast<int64_t>(which[o]) == own) sum += gradient[o];
      }
    result[i] = sum;
  });
}

__device__ float share(const Geometry& g, Range rows, Range columns) {
  const int64_t counted =
      g.count_padding ? g.height.kernel * g.width.kernel : (rows.end - rows.begin) * (columns.end - columns.begin);
  return 1.0f / static_cast<float>(counted);
}

void average_forward(const Context& context, const Geometry& g, const float* input, float* output) {
  for_each_index(context, g.samples * g.height.output * g.width.output * g.channels, [=] __device__(int64_t i) {
    const Position o = position_of(i, g.height.output, g.width.output, g.channels);
    const Range rows = positions_of(g.height, o.y), columns = positions_of(g.width, o.x);
    const float* image = input + o.sample * g.height.input * g.width.input * g.channels + o.channel;
    float sum = 0;
    for (int64_t y = rows.begin; y < rows.end; ++y)
      for (int64_t x = columns.begin; x < columns.end; ++x) sum += image[(y * g.width.input + x) * g.channels];
    output[i] = sum * share(g, rows, columns);
  });
}

void average_backward(const Context& context, const Geometry& g, const float* gradient, float* result) {
  for_each_index(context, g.samples * g.height.input * g.width.input * g.channels, [=] __device__(int64_t i) {
    const Position p = position_of(i, g.height.input, g.width.input, g.channels);
    const Range rows = windows_of(g.height, p.y), columns = windows_of(g.width, p.x);
    float sum = 0;
    for (int64_t y = rows.begin; y < rows.end; ++y)
      for (int64_t x = columns.begin; x < columns.end; ++x)
        sum += gradient[((p.sample * g.height.output + y) * g.width.output + x) * g.channels + p.channel] *
               share(g, positions_of(g.height, y), positions_of(g.width, x));
    result[i] = sum;
  });
}

// Own kernels: cuDNN's pooling knows neither windows that hang over one side only nor what a part sees of them.
class Pool2dKernel : public Kernel {
 public:
  Pool2dKernel(const Context& context, const Pool2d& pool, const Block& part)
      : context_(context), max_(pool.method == Pool2d::Method::max) {
    const Block input = pool.input_block(0, part);
    const auto axis = [&](const Window& window, int number) {
      return Axis{input[number].size(), part[number].size(), window.kernel, window.stride,
                  window.padding_before(part[number])};
    };
    geometry_ = {axis(pool.height, 2), axis(pool.width, 3), part[0].size(), part[1].size(), pool.count_padding};
    if (!max_) return;
    if (pool.height.kernel * pool.width.kernel <= 256) which_ = Memory<uint8_t>(context, part.volume());
    else which_of_many_ = Memory<int64_t>(context, part.volume());
  }

  void forward(const KernelArguments& arguments) override {
    const float* input = static_cast<const float*>(arguments.inputs[0]);
    if (!max_) average_forward(context_, geometry_, input, arguments.outputs[0]);
    else if (which_.size() > 0) max_forward(context_, geometry_, input, arguments.outputs[0], which_.data());
    else max_forward(context_, geometry_, input, arguments.outputs[0], which_of_many_.data());
  }

  void backward(const KernelArguments& arguments) override {
    float* result = arguments.input_gradients[0];
    if (!result) return;
    if (!max_) average_backward(context_, geometry_, arguments.output_gradients[0], result);
    else if (which_.size() > 0) max_backward(context_, geometry_, arguments.output_gradients[0], which_.data(), result);
    else max_backward(context_, geometry_, arguments.output_gradients[0], which_of_many_.data(), result);
  }

  int64_t workspace_bytes() const override { return which_.bytes() + which_of_many_.bytes(); }

 private:
  const Context& context_;
  bool max_;
  Geometry geometry_;
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
