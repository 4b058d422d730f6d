#include "common/operators/pool2d.h"

#include <algorithm>

#include "common/kernels/cuda/bf16_kernel.h"
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/packs.cuh"

namespace ff::cuda {
namespace {

// Numbers of elements and positions are of the type Index, of 32 bits where that suffices: then divisions are
// multiplications (Divisor), and fewer registers let more threads run at once. Element: float or Bf16, the type of the
// operator's tensors; sums are f32.

// One axis of a part: window o covers the block's positions o * stride - before + j, j in [0, kernel), of which those
// in [0, input) exist.
template <class Index>
struct Axis {
  Index input, output, kernel, stride, before;
  Divisor<Index> by_input{input}, by_output{output}, by_stride{stride};
};

// Blocks [samples, height, width, channels]. A thread does a pack of n channels: `channels` and numbers of elements are
// those of packs.
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
template <int n, class Index, class Element, class Which>
void max_forward(const Context& context, const Geometry<Index>& g, const Element* input, Element* output,
                 Which* which) {
  for_each_index(context, g.outputs(), [=] __device__(int64_t i) {
    const Position<Index> o = output_position(g, i);
    const Range<Index> rows = positions_of(g.height, o.y), columns = positions_of(g.width, o.x);
    const Index image = o.sample * g.height.input * g.width.input * g.channels + o.channel,
                left = g.width.before - o.x * g.width.stride;
    Pack<float, n> best{};
    Pack<Which, n> place{};
    bool first = true;
    for (Index y = rows.begin; y < rows.end; ++y) {
      const Index row_place = (y + g.height.before - o.y * g.height.stride) * g.width.kernel + left;
      for (Index x = columns.begin; x < columns.end; ++x) {
        const Pack<float, n> values =
            load_values<n>(input + static_cast<int64_t>(image + (y * g.width.input + x) * g.channels) * n);
#pragma unroll
        for (int j = 0; j < n; ++j) {
          if (!first && !(values.of[j] > best.of[j])) continue;
          best.of[j] = values.of[j];
          place.of[j] = static_cast<Which>(row_place + x);
        }
        first = false;
      }
    }
    store_values(output + i * n, best);
    store(which + i * n, place);
  });
}

// Every position gathers from the windows that cover it, so that no two threads add to one sum.
template <int n, class Index, class Element, class Which>
void max_backward(const Context& context, const Geometry<Index>& g, const Element* gradient, const Which* which,
                  Element* result) {
  for_each_index(context, g.inputs(), [=] __device__(int64_t i) {
    const Position<Index> p = input_position(g, i);
    const Range<Index> rows = windows_of(g.height, p.y), columns = windows_of(g.width, p.x);
    Pack<float, n> sum{};
    for (Index y = rows.begin; y < rows.end; ++y)
      for (Index x = columns.begin; x < columns.end; ++x) {
        const int64_t o = ((p.sample * g.height.output + y) * g.width.output + x) * g.channels + p.channel;
        const Index own =
            (p.y + g.height.before - y * g.height.stride) * g.width.kernel + p.x + g.width.before - x * g.width.stride;
        const Pack<Which, n> place = load<n>(which + o * n);
        const Pack<float, n> slope = load_values<n>(gradient + o * n);
#pragma unroll
        for (int j = 0; j < n; ++j)
          if (static_cast<Index>(place.of[j]) == own) sum.of[j] += slope.of[j];
      }
    store_values(result + i * n, sum);
  });
}

template <class Index>
__device__ float share(const Geometry<Index>& g, Range<Index> rows, Range<Index> columns) {
  const Index counted =
      g.count_padding ? g.height.kernel * g.width.kernel : (rows.end - rows.begin) * (columns.end - columns.begin);
  return 1.0f / static_cast<float>(counted);
}

template <int n, class Index, class Element>
void average_forward(const Context& context, const Geometry<Index>& g, const Element* input, Element* output) {
  for_each_index(context, g.outputs(), [=] __device__(int64_t i) {
    const Position<Index> o = output_position(g, i);
    const Range<Index> rows = positions_of(g.height, o.y), columns = positions_of(g.width, o.x);
    const Index image = o.sample * g.height.input * g.width.input * g.channels + o.channel;
    Pack<float, n> sum{};
    for (Index y = rows.begin; y < rows.end; ++y)
      for (Index x = columns.begin; x < columns.end; ++x) {
        const Pack<float, n> values =
            load_values<n>(input + static_cast<int64_t>(image + (y * g.width.input + x) * g.channels) * n);
#pragma unroll
        for (int j = 0; j < n; ++j) sum.of[j] += values.of[j];
      }
    const float factor = share(g, rows, columns);
#pragma unroll
    for (int j = 0; j < n; ++j) sum.of[j] *= factor;
    store_values(output + i * n, sum);
  });
}

template <int n, class Index, class Element>
void average_backward(const Context& context, const Geometry<Index>& g, const Element* gradient, Element* result) {
  for_each_index(context, g.inputs(), [=] __device__(int64_t i) {
    const Position<Index> p = input_position(g, i);
    const Range<Index> rows = windows_of(g.height, p.y), columns = windows_of(g.width, p.x);
    Pack<float, n> sum{};
    for (Index y = rows.begin; y < rows.end; ++y)
      for (Index x = columns.begin; x < columns.end; ++x) {
        const int64_t o = ((p.sample * g.height.output + y) * g.width.output + x) * g.channels + p.channel;
        const float factor = share(g, positions_of(g.height, y), positions_of(g.width, x));
        const Pack<float, n> slope = load_values<n>(gradient + o * n);
#pragma unroll
        for (int j = 0; j < n; ++j) sum.of[j] += slope.of[j] * factor;
      }
    store_values(result + i * n, sum);
  });
}

template <class Index>
Geometry<Index> geometry_of(const Pool2d& pool, const Block& part, int64_t pack) {
  const Block input = pool.input_block(0, part);
  const auto axis = [&](const Window& window, int number) {
    return Axis<Index>{static_cast<Index>(input[number].size()), static_cast<Index>(part[number].size()),
                       static_cast<Index>(window.kernel), static_cast<Index>(window.stride),
                       static_cast<Index>(window.padding_before(part[number]))};
  };
  return {axis(pool.height, 2), axis(pool.width, 3), static_cast<Index>(part[0].size()),
          static_cast<Index>(part[1].size() / pack), pool.count_padding};
}

// Own kernels: cuDNN's pooling knows neither windows that hang over one side only nor what a part sees of them.
template <class Element>
class Pool2dKernel : public Kernel {
 public:
  Pool2dKernel(const Context& context, const Pool2d& pool, const Block& part)
      : context_(context), max_(pool.method == Pool2d::Method::max), channels_(part[1].size()),
        small_(geometry_of<int32_t>(pool, part, 1)), small_packs_(geometry_of<int32_t>(pool, part, pack_size)),
        large_(geometry_of<int64_t>(pool, part, 1)) {
    if (!max_) return;
    if (pool.height.kernel * pool.width.kernel <= 256) which_ = Memory<uint8_t>(context, part.volume());
    else which_of_many_ = Memory<int64_t>(context, part.volume());
  }

  void forward(const KernelArguments& arguments) override {
    const Element* const input = typed<Element>(arguments.inputs[0]);
    Element* const output = typed<Element>(arguments.outputs[0]);
    with_geometry(input, output, [&](const auto& geometry, auto number) {
      constexpr int n = decltype(number)::value;
      if (!max_) average_forward<n>(context_, geometry, input, output);
      else if (which_.size() > 0) max_forward<n>(context_, geometry, input, output, which_.data());
      else max_forward<n>(context_, geometry, input, output, which_of_many_.data());
    });
  }

  void backward(const KernelArguments& arguments) override {
    const Element* const gradient = typed<Element>(arguments.output_gradients[0]);
    Element* const result = typed<Element>(arguments.input_gradients[0]);
    if (!result) return;
    with_geometry(gradient, result, [&](const auto& geometry, auto number) {
      constexpr int n = decltype(number)::value;
      if (!max_) average_backward<n>(context_, geometry, gradient, result);
      else if (which_.size() > 0) max_backward<n>(context_, geometry, gradient, which_.data(), result);
      else max_backward<n>(context_, geometry, gradient, which_of_many_.data(), result);
    });
  }

  int64_t workspace_bytes() const override { return which_.bytes() + which_of_many_.bytes(); }

 private:
  // run(geometry, n).
  template <class Run>
  void with_geometry(const Element* source, const Element* result, const Run& run) const {
    const auto &height = large_.height, &width = large_.width;
    const int64_t largest =
        std::max({large_.inputs(), large_.outputs(), height.kernel * width.kernel, height.stride, width.stride});
    using One = std::integral_constant<int, 1>;
    if (largest >= INT32_MAX / 2) run(large_, One());  // small numbers also hold the sum of two
    else if (columns_by_packs(channels_, source, result)) run(small_packs_, std::integral_constant<int, pack_size>());
    else run(small_, One());
  }

  const Context& context_;
  bool max_;
  int64_t channels_;
  Geometry<int32_t> small_, small_packs_;  // where their numbers suffice
  Geometry<int64_t> large_;
  Memory<uint8_t> which_;          // by output element: the place of the maximum in its window
  Memory<int64_t> which_of_many_;  // of windows with more than 256 places
};

// Null for another operator than pool2d or pool1d.
template <class Element>
std::unique_ptr<Kernel> make_kernel(const Context& context, const KernelRequest& request) {
  if (const auto* const pool = dynamic_cast<const Pool2d*>(&request.definition))
    return std::make_unique<Pool2dKernel<Element>>(context, *pool, request.part);
  const auto* const sequence = dynamic_cast<const Pool1d*>(&request.definition);
  return sequence ? std::make_unique<Pool2dKernel<Element>>(context, sequence->image, to_image(request.part)) : nullptr;
}

}  // namespace

std::unique_ptr<Kernel> make_pool2d_kernel(const Context& context, const KernelRequest& request) {
  return make_kernel<float>(context, request);
}
std::unique_ptr<Kernel> make_pool1d_kernel(const Context& context, const KernelRequest& request) {
  return make_kernel<float>(context, request);
}
std::unique_ptr<Kernel> make_pool_bf16_kernel(const Context& context, const KernelRequest& request) {
  return make_kernel<Bf16>(context, request);
}

}  // namespace ff::cuda
