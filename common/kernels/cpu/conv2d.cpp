#include "common/operators/conv2d.h"

#include <algorithm>
#include <optional>

#include "common/kernels/cpu/block_copy.h"
#include "common/kernels/cpu/kernels.h"
#include "common/vector.h"

namespace ff::cpu {
namespace {

using dnnl::memory;
using dnnl::prop_kind;

// One convolution over dense channels-last buffers.
struct Geometry {
  Shape input, output;  // [batch, channels, height, width]
  Shape weight;         // [out, in / groups, kernel height, kernel width]
  int64_t groups = 1;
  memory::dims strides, dilations, padding_before, padding_behind;
  bool bias = false, relu = false, input_gradient = false;
  int64_t scratch = 0;  // where blocks of channels lie in scratch memory
};

// For which passes backward oneDNN's own layout, blocks of 16 channels, is faster than channels-last, the copies there
// and back included: measured on a Zen 5 over the convolutions of AlexNet, VGG, ResNet-50 and Inception-v3, forward on
// none (docs/design-notes.md). Fixed rules, not measured in each run: rounding would differ from run to run.
bool has_blocks() {
  constexpr int avx512 = dnnl_cpu_isa_avx512_core;
  return (static_cast<int>(dnnl::get_effective_cpu_isa()) & avx512) == avx512;
}

bool weights_prefer_blocks(const Geometry& geometry) {
  return has_blocks() && geometry.groups == 1 && Conv2d::has_whole_vectors(geometry.input[1], geometry.output[1]);
}

// Channels-last is slow where the rows of the output's gradient that a kernel reads exceed the first-level cache. That
// pays for copies where each value copied is multiplied often.
bool input_prefers_blocks(const Geometry& geometry) {
  constexpr int64_t cache_bytes = 48 << 10, least_products_a_value = 1200;
  const int64_t in = geometry.input[1], out = geometry.output[1];
  return has_blocks() && geometry.groups == 1 && in % 16 == 0 && out % 16 == 0 &&
         geometry.strides == memory::dims{1, 1} &&
         geometry.weight[2] * geometry.output[3] * out * element_bytes > cache_bytes &&
         volume(geometry.weight) / (in + out) >= least_products_a_value;
}

class Convolution {
 public:
  explicit Convolution(const Geometry& geometry) : geometry_(geometry) {}
  virtual ~Convolution() = default;
  virtual void forward(const float* input, const float* weight, const float* bias, float* output) = 0;
  // `gradient` is after the fused relu already. The input's gradient may be written over the input. Gradients of
  // parameters are null where these are constants.
  virtual void backward(const float* input, const float* weight, const float* gradient, float* input_gradient,
                        float* weight_gradient, float* bias_gradient) = 0;
  const Geometry& geometry() const { return geometry_; }

 protected:
  const Geometry geometry_;
};

// By oneDNN's convolutions.
class DirectConvolution : public Convolution {
 public:
  DirectConvolution(const Context& context, const Geometry& geometry) : Convolution(geometry), context_(context) {
    const memory::desc input = storage(geometry.input), output = storage(geometry.output);
    const memory::desc weight = weight_descriptor(memory::format_tag::any), plain_weight = plain_weight_descriptor();
    const memory::desc bias = geometry.bias
                                  ? memory::desc({geometry.output[1]}, memory::data_type::f32, memory::format_tag::a)
                                  : memory::desc();

    dnnl::primitive_attr attributes = user_scratchpad();
    if (geometry.relu) {
      dnnl::post_ops after;
      after.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0, 0);
      attributes.set_post_ops(after);
    }
    const dnnl::convolution_forward::primitive_desc forward(
        {prop_kind::forward_training, dnnl::algorithm::convolution_direct, input, weight, bias, output,
         geometry.strides, geometry.dilations, geometry.padding_before, geometry.padding_behind},
        attributes, context.engine);
    forward_ = Primitive::make<dnnl::convolution_forward>(context, forward);
    forward_weight_ = Reordered(context, plain_weight, forward.weights_desc());
    forward_.add(context, DNNL_ARG_SRC, input);
    forward_.add(context, DNNL_ARG_DST, output);
    forward_.add(DNNL_ARG_WEIGHTS, forward_weight_.memory());
    if (geometry.bias) forward_.add(context, DNNL_ARG_BIAS, bias);

    const auto layout = [](const memory::desc& plain, bool blocks) {
      return blocks ? memory::desc(plain.dims(), memory::data_type::f32, memory::format_tag::any) : plain;
    };
    bool blocks = weights_prefer_blocks(geometry);
    const dnnl::convolution_backward_weights::primitive_desc backward_weight(
        {dnnl::algorithm::convolution_direct, layout(input, blocks), weight, bias, layout(output, blocks),
         geometry.strides, geometry.dilations, geometry.padding_before, geometry.padding_behind},
        user_scratchpad(), context.engine, forward);
    backward_weight_ = Primitive::make<dnnl::convolution_backward_weights>(context, backward_weight);
    weight_gradient_ = Reordered(context, plain_weight, backward_weight.diff_weights_desc());
    const int64_t scratch_input = geometry.scratch,
                  scratch_gradient = scratch_input + Conv2d::Scratch::aligned(volume(geometry.input) * element_bytes);
    input_ = Reordered(context, input, backward_weight.src_desc(), scratch_input);
    gradient_ = Reordered(context, output, backward_weight.diff_dst_desc(), scratch_gradient);
    backward_weight_.add(DNNL_ARG_SRC, input_.memory());
    backward_weight_.add(DNNL_ARG_DIFF_DST, gradient_.memory());
    backward_weight_.add(DNNL_ARG_DIFF_WEIGHTS, weight_gradient_.memory());
    if (geometry.bias) backward_weight_.add(context, DNNL_ARG_DIFF_BIAS, bias);
    if (!geometry.input_gradient) return;

    blocks = input_prefers_blocks(geometry);
    const dnnl::convolution_backward_data::primitive_desc backward_input(
        {dnnl::algorithm::convolution_direct, layout(input, blocks), weight, layout(output, blocks), geometry.strides,
         geometry.dilations, geometry.padding_before, geometry.padding_behind},
        user_scratchpad(), context.engine, forward);
    backward_input_ = Primitive::make<dnnl::convolution_backward_data>(context, backward_input);
    backward_input_weight_ = Reordered(context, plain_weight, backward_input.weights_desc());
    backward_input_gradient_ = Reordered(context, output, backward_input.diff_dst_desc(), scratch_gradient);
    input_gradient_ = Reordered(context, input, backward_input.diff_src_desc(), scratch_input);
    backward_input_.add(DNNL_ARG_DIFF_SRC, input_gradient_.memory());
    backward_input_.add(DNNL_ARG_DIFF_DST, backward_input_gradient_.memory());
    backward_input_.add(DNNL_ARG_WEIGHTS, backward_input_weight_.memory());
  }

  void forward(const float* input, const float* weight, const float* bias, float* output) override {
    forward_weight_.fill(context_, weight);
    if (bias) forward_.run(context_, {{DNNL_ARG_SRC, input}, {DNNL_ARG_BIAS, bias}, {DNNL_ARG_DST, output}});
    else forward_.run(context_, {{DNNL_ARG_SRC, input}, {DNNL_ARG_DST, output}});
  }

  void backward(const float* input, const float* weight, const float* gradient, float* input_gradient,
                float* weight_gradient, float* bias_gradient) override {
    if (weight_gradient) {
      input_.fill(context_, input);
      gradient_.fill(context_, gradient);
      weight_gradient_.attach(context_, weight_gradient);
      if (bias_gradient) backward_weight_.run(context_, {{DNNL_ARG_DIFF_BIAS, bias_gradient}});
      else backward_weight_.run(context_, {});
      weight_gradient_.empty(context_, weight_gradient);
    }
    if (!input_gradient) return;
    backward_input_weight_.fill(context_, weight);
    backward_input_gradient_.fill(context_, gradient);
    input_gradient_.attach(context_, input_gradient);
    backward_input_.run(context_, {});
    input_gradient_.empty(context_, input_gradient);
  }

 private:
  memory::dims weight_sizes() const {
    const Shape& w = geometry_.weight;
    if (geometry_.groups == 1) return {w[0], w[1], w[2], w[3]};
    return {geometry_.groups, w[0] / geometry_.groups, w[1], w[2], w[3]};
  }
  memory::desc weight_descriptor(memory::format_tag tag) const { return {weight_sizes(), memory::data_type::f32, tag}; }
  memory::desc plain_weight_descriptor() const {
    return weight_descriptor(geometry_.groups == 1 ? memory::format_tag::oihw : memory::format_tag::goihw);
  }

  const Context& context_;
  Primitive forward_, backward_weight_, backward_input_;
  Reordered forward_weight_;
  Reordered input_, gradient_, weight_gradient_;                                // of backward_weight_
  Reordered backward_input_weight_, backward_input_gradient_, input_gradient_;  // of backward_input_
};

// Of one pixel, stride 1: pixels [batch * height * width, in] times weight [out, in]^T. As products of matrices, which
// take the weights as they lie, those of ResNet-50 take 231 ms where oneDNN's convolutions take 289, the copies of
// weights that these need included (Zen 5, batch 4; docs/design-notes.md).
class PixelwiseConvolution : public Convolution {
 public:
  PixelwiseConvolution(const Context& context, const Geometry& geometry)
      : Convolution(geometry), context_(context), in_(geometry.input[1]), out_(geometry.output[1]),
        pixels_(volume(geometry.input) / in_),
        forward_(make_linear(context, pixels_, in_, out_, geometry.bias, geometry.relu)) {}

  void forward(const float* input, const float* weight, const float* bias, float* output) override {
    run_linear(context_, forward_, input, weight, bias, output);
  }

  void backward(const float* input, const float* weight, const float* gradient, float* input_gradient,
                float* weight_gradient, float* bias_gradient) override {
    if (weight_gradient)
      multiply_matrices('T', 'N', out_, in_, pixels_, gradient, out_, input, in_, 0, weight_gradient, in_);
    if (bias_gradient) sum_rows(gradient, pixels_, out_, bias_gradient);
    if (input_gradient)
      multiply_matrices('N', 'N', pixels_, in_, out_, gradient, out_, weight, in_, 0, input_gradient, in_);
  }

 private:
  const Context& context_;
  const int64_t in_, out_, pixels_;
  Primitive forward_;
};

std::unique_ptr<Convolution> make_convolution(const Context& context, const Geometry& geometry) {
  if (geometry.groups == 1 && geometry.weight[2] == 1 && geometry.weight[3] == 1)
    return std::make_unique<PixelwiseConvolution>(context, geometry);
  return std::make_unique<DirectConvolution>(context, geometry);
}

// The pixels that a convolution of one pixel with strides reads, taken out of a channels-last input: with them dense it
// is one of stride 1.
struct StridedPixels {
  int64_t batch, height, width, channels, row_stride, column_stride;  // of the input

  int64_t rows() const { return (height - 1) / row_stride + 1; }
  int64_t columns() const { return (width - 1) / column_stride + 1; }

  void take(const float* input, float* pixels) const {
    for (int64_t image = 0; image < batch; ++image)
      for (int64_t row = 0; row < rows(); ++row, pixels += columns() * channels)
        copy_columns(input + (image * height + row * row_stride) * width * channels, column_stride * channels, pixels,
                     channels, columns(), channels);
  }
  // All others become 0.
  void put(const float* pixels, float* input) const {
    for (int64_t image = 0; image < batch; ++image)
      for (int64_t row = 0; row < height; ++row, input += width * channels) {
        const bool read = row % row_stride == 0;
        if (!read || column_stride > 1) std::fill(input, input + width * channels, 0.0f);
        if (!read) continue;
        copy_columns(pixels, channels, input, column_stride * channels, columns(), channels);
        pixels += columns() * channels;
      }
  }
};

// A part of a convolution. Where the part cuts groups it is one convolution a touched group, on channel slices copied
// out and in.
class Conv2dKernel : public Kernel {
 public:
  Conv2dKernel(const Context& context, const Conv2d& conv, const Block& part, bool input_gradient)
      : context_(context), conv_(conv), bias_(conv.adds_bias(part)) {
    Geometry whole;
    whole.input = conv.input_block(0, part).shape();
    whole.output = conv.output_block(0, part).shape();
    whole.weight = conv.parameter_block(0, part).shape();
    whole.strides = {conv.height.stride, conv.width.stride};
    whole.dilations = {conv.height.dilation - 1, conv.width.dilation - 1};
    whole.padding_before = {conv.height.padding_before(part[2]), conv.width.padding_before(part[3])};
    whole.padding_behind = {conv.height.padding_behind(part[2]), conv.width.padding_behind(part[3])};
    whole.bias = bias_;
    whole.relu = conv.relu;
    whole.input_gradient = input_gradient;
    if (conv.takes_pixels()) {
      strided_ = {whole.input[0], whole.input[2], whole.input[3], whole.input[1], whole.strides[0], whole.strides[1]};
      whole.input = conv.dense_input(part);
      whole.strides = {1, 1};
    }
    scratch_ = conv.scratch(part);
    context.reserve_scratch(scratch_.bytes);
    whole.scratch = scratch_.blocks;
    output_ = whole.output;
    input_ = whole.input;
    weight_row_ = volume(whole.weight) / whole.weight[0];
    if (conv.relu) masked_.resize(volume(output_));

    const int64_t out_per_group = conv.out_channels / conv.groups, in_per_group = conv.in_channels / conv.groups;
    const Vector<Interval> slices = conv.slices(part);
    if (slices.size() == 1) {
      whole.groups = (part[1].end - 1) / out_per_group - part[1].begin / out_per_group + 1;
      slices_.push_back({make_convolution(context, whole), 0, 0});
      return;
    }
    for (const int i : slices.indices()) {
      Geometry slice = whole;
      slice.input[1] = in_per_group;
      slice.output[1] = slice.weight[0] = slices[i].size();
      slices_.push_back({make_convolution(context, slice), i * in_per_group, slices[i].begin - part[1].begin});
    }
  }

  void forward(const KernelArguments& arguments) override {
    context_.use_threads();
    const float* input = input_of(arguments);
    for (Slice& slice : slices_) {
      const float* bias = bias_ ? arguments.parameters[1] + slice.first_output : nullptr;
      const float* weight = arguments.parameters[0] + slice.first_output * weight_row_;
      if (slices_.size() == 1) {
        slice.convolution->forward(input, weight, bias, arguments.outputs[0]);
        continue;
      }
      const Geometry& geometry = slice.convolution->geometry();
      float *input_slice = context_.scratch(scratch_.input_slice),
            *output_slice = context_.scratch(scratch_.output_slice);
      take_channels(input, input_, slice.first_input, geometry.input[1], input_slice);
      slice.convolution->forward(input_slice, weight, bias, output_slice);
      copy_columns(output_slice, geometry.output[1], arguments.outputs[0] + slice.first_output, output_[1],
                   volume(output_) / output_[1], geometry.output[1]);
    }
  }

  void backward(const KernelArguments& arguments) override {
    context_.use_threads();
    const float* input = input_of(arguments);
    const float* gradient = arguments.output_gradients[0];
    if (conv_.relu) {
      mask_by_positive(arguments.outputs[0], gradient, masked_.data(), volume(output_));
      gradient = masked_.data();
    }
    float* input_gradient = arguments.input_gradients[0];
    if (strided_ && input_gradient) input_gradient = pixels();  // a slice's pixels are then no longer needed
    Array<float*, 2> gradients{};
    const size_t parameters = !conv_.trained ? 0 : bias_ ? 2 : 1;
    for (size_t p = 0; p < parameters; ++p)
      gradients[p] = own_gradients_[p].target(arguments.parameter_gradients[p], arguments.accumulates(p),
                                              output_[1] * (p == 0 ? weight_row_ : 1));
    for (Slice& slice : slices_) {
      float* bias_gradient = parameters > 1 ? gradients[1] + slice.first_output : nullptr;
      const float* weight = arguments.parameters[0] + slice.first_output * weight_row_;
      float* weight_gradient = conv_.trained ? gradients[0] + slice.first_output * weight_row_ : nullptr;
      if (slices_.size() == 1) {
        slice.convolution->backward(input, weight, gradient, input_gradient, weight_gradient, bias_gradient);
        continue;
      }
      const Geometry& geometry = slice.convolution->geometry();
      float *input_slice = context_.scratch(scratch_.input_slice),
            *output_slice = context_.scratch(scratch_.output_slice),
            *gradient_slice = input_gradient ? context_.scratch(scratch_.gradient_slice) : nullptr;
      take_channels(input, input_, slice.first_input, geometry.input[1], input_slice);
      take_channels(gradient, output_, slice.first_output, geometry.output[1], output_slice);
      slice.convolution->backward(input_slice, weight, output_slice, gradient_slice, weight_gradient, bias_gradient);
      if (input_gradient)
        copy_columns(gradient_slice, geometry.input[1], input_gradient + slice.first_input, input_[1],
                     volume(input_) / input_[1], geometry.input[1]);
    }
    if (strided_ && input_gradient) strided_->put(pixels(), arguments.input_gradients[0]);
    for (size_t p = 0; p < parameters; ++p)
      own_gradients_[p].finish(arguments.parameter_gradients[p], arguments.accumulates(p));
  }

  int64_t workspace_bytes() const override { return static_cast<int64_t>(masked_.size() * sizeof(float)); }

 private:
  struct Slice {
    std::unique_ptr<Convolution> convolution;
    int64_t first_input, first_output;  // channels, within the part's blocks
  };
  float* pixels() const { return context_.scratch(); }
  const float* input_of(const KernelArguments& arguments) {
    const float* input = static_cast<const float*>(arguments.inputs[0]);
    if (!strided_) return input;
    strided_->take(input, pixels());
    return pixels();
  }
  static void take_channels(const float* source, const Shape& shape, int64_t first, int64_t count, float* slice) {
    copy_columns(source + first, shape[1], slice, count, volume(shape) / shape[1], count);
  }

  const Context& context_;
  const Conv2d& conv_;
  bool bias_;
  int64_t weight_row_;  // weights of one output channel
  Shape input_, output_;
  Vector<Slice> slices_;
  std::optional<StridedPixels> strided_;
  Vector<float> masked_;  // gradient after the relu
  Conv2d::Scratch scratch_;
  Array<GradientScratch, 2> own_gradients_;  // weight, bias
};

}  // namespace

std::unique_ptr<Kernel> make_conv2d_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<Conv2dKernel>(context, dynamic_cast<const Conv2d&>(request.definition), request.part,
                                        request.input_gradients[0]);
}

std::unique_ptr<Kernel> make_conv1d_kernel(const Context& context, const KernelRequest& request) {
  const Conv1d& sequence = dynamic_cast<const Conv1d&>(request.definition);
  return std::make_unique<Conv2dKernel>(context, sequence.image, to_image(request.part), request.input_gradients[0]);
}

}  // namespace ff::cpu
