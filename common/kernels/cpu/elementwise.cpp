#include "common/operators/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/kernels/cpu/kernels.h"

namespace ff::cpu {

Primitive make_tanh(const Context& context, int64_t rows, int64_t columns) {
  const dnnl::memory::desc data = row_major({rows, columns});
  const dnnl::eltwise_forward::primitive_desc descriptor(
      {dnnl::prop_kind::forward_training, dnnl::algorithm::eltwise_tanh, data, 0.0f, 0.0f}, user_scratchpad(),
      context.engine);
  Primitive primitive = Primitive::make<dnnl::eltwise_forward>(context, descriptor);
  primitive.add(context, DNNL_ARG_SRC, data);
  primitive.add(context, DNNL_ARG_DST, data);
  return primitive;
}

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
FF_VECTORIZED void divide(const float* a, const float* b, float* result, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) result[i] = a[i] / b[i];
}
FF_VECTORIZED void exp_gradient(const float* output, const float* gradient, float* result, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) result[i] = gradient[i] * output[i];
}
FF_VECTORIZED void negate(const float* source, float* result, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) result[i] = -source[i];
}

// oneDNN's name of the function; undef where there is a loop of our own.
dnnl::algorithm library_algorithm(Elementwise::Function function) {
  switch (function) {
    case Elementwise::Function::tanh: return dnnl::algorithm::eltwise_tanh;
    case Elementwise::Function::sigmoid: return dnnl::algorithm::eltwise_logistic;
    case Elementwise::Function::gelu: return dnnl::algorithm::eltwise_gelu_erf;
    case Elementwise::Function::gelu_tanh: return dnnl::algorithm::eltwise_gelu_tanh;
    case Elementwise::Function::silu: return dnnl::algorithm::eltwise_swish;
    case Elementwise::Function::elu: return dnnl::algorithm::eltwise_elu;
    case Elementwise::Function::softplus: return dnnl::algorithm::eltwise_soft_relu;
    case Elementwise::Function::mish: return dnnl::algorithm::eltwise_mish;
    default: return dnnl::algorithm::undef;
  }
}

// x^exponent; of a few exponents that are common, without the library's function.
void power(const float* x, float exponent, float* result, int64_t elements) {
  if (exponent == 0.5f)
    for (int64_t i = 0; i < elements; ++i) result[i] = std::sqrt(x[i]);
  else if (exponent == -0.5f)
    for (int64_t i = 0; i < elements; ++i) result[i] = 1.0f / std::sqrt(x[i]);
  else if (exponent == -1.0f)
    for (int64_t i = 0; i < elements; ++i) result[i] = 1.0f / x[i];
  else
    for (int64_t i = 0; i < elements; ++i) result[i] = std::pow(x[i], exponent);
}

// The layout of the block does not matter. relu, log, exp, sin, pow, add, sub, mul and identity are own loops.
class ElementwiseKernel : public Kernel {
 public:
  ElementwiseKernel(const Context& context, const Elementwise& definition, const Block& part)
      : context_(context), function_(definition.function), alpha_(definition.alpha), elements_(part.volume()) {
    const dnnl::algorithm algorithm = library_algorithm(function_);
    if (algorithm == dnnl::algorithm::undef) return;
    // silu: x * sigmoid(factor * x), of factor 1; elu: its alpha; the other functions take no factor
    const float factor = definition.alpha;
    const dnnl::memory::desc data = row_major({elements_});
    const dnnl::eltwise_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, algorithm, data, factor, 0.0f}, user_scratchpad(), context.engine);
    forward_ = Primitive::make<dnnl::eltwise_forward>(context, forward);
    forward_.add(context, DNNL_ARG_SRC, data);
    forward_.add(context, DNNL_ARG_DST, data);
    if (!definition.backward_reads_input(0)) return;  // the slope follows from the output
    const dnnl::eltwise_backward::primitive_desc backward({algorithm, data, data, factor, 0.0f}, user_scratchpad(),
                                                          context.engine, forward);
    backward_ = Primitive::make<dnnl::eltwise_backward>(context, backward);
    for (int argument : {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC}) backward_.add(context, argument, data);
  }

  void forward(const KernelArguments& arguments) override {
    context_.use_threads();
    const float* input = static_cast<const float*>(arguments.inputs[0]);
    float* output = arguments.outputs[0];
    if (function_ == Elementwise::Function::relu) {
      mask_by_positive(input, input, output, elements_);
    } else if (function_ == Elementwise::Function::identity) {
      std::memcpy(output, input, bytes());
    } else if (function_ == Elementwise::Function::add) {
      add_inputs(arguments);
    } else if (function_ == Elementwise::Function::sub) {
      subtract(input, static_cast<const float*>(arguments.inputs[1]), output, elements_);
    } else if (function_ == Elementwise::Function::mul) {
      multiply(static_cast<const float*>(arguments.inputs[1]), input, output, elements_);
    } else if (function_ == Elementwise::Function::log) {  // near 1 oneDNN's has few correct digits
      for (int64_t i = 0; i < elements_; ++i) output[i] = std::log(input[i]);
    } else if (function_ == Elementwise::Function::exp) {
      for (int64_t i = 0; i < elements_; ++i) output[i] = std::exp(input[i]);
    } else if (function_ == Elementwise::Function::sin) {
      for (int64_t i = 0; i < elements_; ++i) output[i] = std::sin(input[i]);
    } else if (function_ == Elementwise::Function::pow) {
      power(input, alpha_, output, elements_);
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
        case Elementwise::Function::gelu_tanh:
        case Elementwise::Function::silu:
        case Elementwise::Function::elu:
        case Elementwise::Function::softplus:
        case Elementwise::Function::mish:
          context_.use_threads();
          backward_.run(
              context_,
              {{DNNL_ARG_SRC, arguments.inputs[0]}, {DNNL_ARG_DIFF_DST, gradient}, {DNNL_ARG_DIFF_SRC, result}});
          break;
        case Elementwise::Function::log:
          divide(gradient, static_cast<const float*>(arguments.inputs[0]), result, elements_);
          break;
        case Elementwise::Function::exp: exp_gradient(arguments.outputs[0], gradient, result, elements_); break;
        case Elementwise::Function::sin: {
          const float* x = static_cast<const float*>(arguments.inputs[0]);
          for (int64_t e = 0; e < elements_; ++e) result[e] = gradient[e] * std::cos(x[e]);
          break;
        }
        case Elementwise::Function::pow:
          power(static_cast<const float*>(arguments.inputs[0]), alpha_ - 1, result, elements_);
          for (int64_t e = 0; e < elements_; ++e) result[e] *= alpha_ * gradient[e];
          break;
        case Elementwise::Function::add:
        case Elementwise::Function::identity: std::memcpy(result, gradient, bytes()); break;
        case Elementwise::Function::sub:
          i == 0 ? (void)std::memcpy(result, gradient, bytes()) : negate(gradient, result, elements_);
          break;
        case Elementwise::Function::mul:
          multiply(static_cast<const float*>(arguments.inputs[1 - i]), gradient, result, elements_);
          break;
      }
    }
  }

 private:
  // A few thousand elements of all inputs at a time, so that the sum so far stays in the first-level cache.
  void add_inputs(const KernelArguments& arguments) const {
    constexpr int64_t elements_at_once = 2048;
    const auto at = [&](size_t input, int64_t i) { return static_cast<const float*>(arguments.inputs[input]) + i; };
    for (int64_t i = 0; i < elements_; i += elements_at_once) {
      const int64_t count = std::min(elements_at_once, elements_ - i);
      add(at(0, i), at(1, i), arguments.outputs[0] + i, count);
      for (size_t input = 2; input < arguments.inputs.size(); ++input)
        add_to(at(input, i), arguments.outputs[0] + i, count);
    }
  }

  size_t bytes() const { return static_cast<size_t>(elements_) * sizeof(float); }

  const Context& context_;
  Elementwise::Function function_;
  float alpha_;
  int64_t elements_;
  Primitive forward_, backward_;
};

}  // namespace

std::unique_ptr<Kernel> make_elementwise_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<ElementwiseKernel>(context, dynamic_cast<const Elementwise&>(request.definition),
                                             request.part);
}

}  // namespace ff::cpu
