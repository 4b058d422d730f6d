#include "common/operators/elementwise.h"

#include <cstring>

#include "common/kernels/cpu/kernels.h"
#include "common/philox.h"

namespace ff::cpu {
namespace {

FF_VECTORIZED void tanh_gradient(const float* output, const float* gradient, float* result, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) result[i] = gradient[i] * (1.0f - output[i] * output[i]);
}
FF_VECTORIZED void sigmoid_gradient(const float* output, const float* gradient, float* result, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) result[i] = gradient[i] * output[i] * (1.0f - output[i]);
}
FF_VECTORIZED void subtract(const float* a, const float* b, float* result, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) result[i] = a[i] - b[i];
}
FF_VECTORIZED void negate(const float* source, float* result, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) result[i] = -source[i];
}
FF_VECTORIZED void scale_by(const float* factors, const float* source, float* destination, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) destination[i] = factors[i] * source[i];
}

// The layout of the block does not matter. tanh, sigmoid and gelu are oneDNN's.
class ElementwiseKernel : public Kernel {
 public:
  ElementwiseKernel(const Context& context, const Elementwise& definition, const Block& part)
      : context_(context), function_(definition.function), elements_(part.volume()) {
    using Function = Elementwise::Function;
    if (function_ != Function::tanh && function_ != Function::sigmoid && function_ != Function::gelu) return;
    const dnnl::memory::desc data = row_major({elements_});
    const auto algorithm = function_ == Function::tanh      ? dnnl::algorithm::eltwise_tanh
                           : function_ == Function::sigmoid ? dnnl::algorithm::eltwise_logistic
                                                            : dnnl::algorithm::eltwise_gelu_erf;
    const dnnl::eltwise_forward::primitive_desc forward({dnnl::prop_kind::forward_training, algorithm, data, 0.0f, 0.0f}, user_scratchpad(),
                                                        context.engine);
    forward_ = Primitive::make<dnnl::eltwise_forward>(context, forward);
    forward_.add(context, DNNL_ARG_SRC, data);
    forward_.add(context, DNNL_ARG_DST, data);
    if (function_ != Function::gelu) return;
    const dnnl::eltwise_backward::primitive_desc backward({algorithm, data, data, 0.0f, 0.0f}, user_scratchpad(), context.engine, forward);
    backward_ = Primitive::make<dnnl::eltwise_backward>(context, backward);
    for (int argument : {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC}) backward_.add(context, argument, data);
  }

  void forward(const KernelArguments& arguments) override {
    context_.use_threads();
    const float* input = static_cast<const float*>(arguments.inputs[0]);
    float* output = arguments.outputs[0];
    if (function_ == Elementwise::Function::relu) {
      mask_by_positive(input, input, output, elements_);
    } else if (function_ == Elementwise::Function::add) {
      std::memcpy(output, input, bytes());
      for (size_t i = 1; i < arguments.inputs.size(); ++i) add_to(static_cast<const float*>(arguments.inputs[i]), output, elements_);
    } else if (function_ == Elementwise::Function::sub) {
      subtract(input, static_cast<const float*>(arguments.inputs[1]), output, elements_);
    } else if (function_ == Elementwise::Function::mul) {
      scale_by(static_cast<const float*>(arguments.inputs[1]), input, output, elements_);
    } else {
      forward_.run(context_, {{DNNL_ARG_SRC, input}, {DNNL_ARG_DST, output}});
    }
  }

  void backward(const KernelArguments& arguments) override {
    const float* gradient = arguments.output_gradients[0];
    for (size_t i = 0; i < arguments.input_gradients.size(); ++i) {
      float* result = arguments.input_gradients[i];
      if (!result) continue;
      switch (function_) {
        case Elementwise::Function::relu: mask_by_positive(arguments.outputs[0], gradient, result, elements_); break;
        case Elementwise::Function::tanh: tanh_gradient(arguments.outputs[0], gradient, result, elements_); break;
        case Elementwise::Function::sigmoid: sigmoid_gradient(arguments.outputs[0], gradient, result, elements_); break;
        case Elementwise::Function::gelu:
          context_.use_threads();
          backward_.run(context_, {{DNNL_ARG_SRC, arguments.inputs[0]}, {DNNL_ARG_DIFF_DST, gradient}, {DNNL_ARG_DIFF_SRC, result}});
          break;
        case Elementwise::Function::add: std::memcpy(result, gradient, bytes()); break;
        case Elementwise::Function::sub: i == 0 ? (void)std::memcpy(result, gradient, bytes()) : negate(gradient, result, elements_); break;
        case Elementwise::Function::mul: scale_by(static_cast<const float*>(arguments.inputs[1 - i]), gradient, result, elements_); break;
      }
    }
  }

 private:
  size_t bytes() const { return static_cast<size_t>(elements_) * sizeof(float); }

  const Context& context_;
  Elementwise::Function function_;
  int64_t elements_;
  Primitive forward_, backward_;
};

class DropoutKernel : public Kernel {
 public:
  DropoutKernel(const Dropout& definition, const KernelRequest& request)
      : rate_(static_cast<float>(definition.rate)), stream_(random_stream(request.seed, request.operator_name)),
        shape_(definition.outputs()[0].shape), part_(request.part), factors_(static_cast<size_t>(part_.volume())) {}

  void forward(const KernelArguments& arguments) override {
    const float* input = static_cast<const float*>(arguments.inputs[0]);
    if (!arguments.training) {
      std::memcpy(arguments.outputs[0], input, factors_.size() * sizeof(float));
      return;
    }
    draw(static_cast<uint64_t>(arguments.iteration));
    scale_by(factors_.data(), input, arguments.outputs[0], static_cast<int64_t>(factors_.size()));
  }

  void backward(const KernelArguments& arguments) override {
    if (!arguments.input_gradients[0]) return;
    scale_by(factors_.data(), arguments.output_gradients[0], arguments.input_gradients[0], static_cast<int64_t>(factors_.size()));
  }

  int64_t workspace_bytes() const override { return static_cast<int64_t>(factors_.size() * sizeof(float)); }

 private:
  // Factors of the block, in storage order, from the index of each element in the whole row-major tensor. The last logical axis is walked
  // innermost, so that four neighbours share one Philox counter.
  void draw(uint64_t iteration) {
    const float kept = 1.0f / (1.0f - rate_);
    const int rank = part_.rank();
    const int last = rank - 1;
    // Stride of each logical axis in the block's storage: rank 4 is channels-last.
    std::vector<int64_t> stored(static_cast<size_t>(rank)), whole(static_cast<size_t>(rank));
    const std::vector<int> order = rank == 4 ? std::vector<int>{0, 2, 3, 1} : [&] {
      std::vector<int> axes;
      for (int axis = 0; axis < rank; ++axis) axes.push_back(axis);
      return axes;
    }();
    int64_t stride = 1;
    for (int i = last; i >= 0; --i) stored[order[i]] = stride, stride *= part_[order[i]].size();
    stride = 1;
    for (int axis = last; axis >= 0; --axis) whole[axis] = stride, stride *= shape_[axis];

    const int64_t run = part_[last].size(), rows = part_.volume() / run;
    for (int64_t row = 0; row < rows; ++row) {
      int64_t rest = row, at = 0;
      uint64_t index = static_cast<uint64_t>(part_[last].begin);
      for (int axis = last - 1; axis >= 0; --axis) {
        const int64_t i = rest % part_[axis].size();
        rest /= part_[axis].size();
        at += i * stored[axis];
        index += static_cast<uint64_t>((part_[axis].begin + i) * whole[axis]);
      }
      for (int64_t i = 0; i < run;) {
        const auto bits = philox(stream_, (index + static_cast<uint64_t>(i)) / 4, iteration);
        do {
          const bool keep = uniform_float(bits[(index + static_cast<uint64_t>(i)) % 4]) >= rate_;
          factors_[static_cast<size_t>(at + i * stored[last])] = keep ? kept : 0.0f;
          ++i;
        } while (i < run && (index + static_cast<uint64_t>(i)) % 4 != 0);
      }
    }
  }

  float rate_;
  uint64_t stream_;
  Shape shape_;
  Block part_;
  std::vector<float> factors_;  // 0 or 1 / (1 - rate)
};

}  // namespace

std::unique_ptr<Kernel> make_elementwise_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<ElementwiseKernel>(context, dynamic_cast<const Elementwise&>(request.definition), request.part);
}

std::unique_ptr<Kernel> make_dropout_kernel(const Context&, const KernelRequest& request) {
  return std::make_unique<DropoutKernel>(dynamic_cast<const Dropout&>(request.definition), request);
}

}  // namespace ff::cpu
