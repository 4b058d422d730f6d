#include "common/operators/elementwise.h"

#include "common/kernels/cuda/bf16_kernel.h"
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/kernels.h"
#include "common/kernels/cuda/packs.cuh"

namespace ff::cuda {
namespace {

using Function = Elementwise::Function;

constexpr float inverse_root_2 = 0.70710678118654752f, inverse_root_2_pi = 0.39894228040143268f;
// x Phi(x) is nearly x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel 2016).
constexpr float root_2_over_pi = 0.79788456080286536f, gelu_cube = 0.044715f;

// log(1 + exp(x)), of which exp(-|x|) does not overflow.
__device__ inline float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

// The layout of the block does not matter. `b`: the second input of sub, mul and add; `alpha`: of elu and pow.
template <class Element>
void apply(const Context& context, Function function, float alpha, const Element* a, const Element* b, int64_t elements,
           Element* result) {
  switch (function) {
    case Function::relu:
      map_elements(context, elements, result, a, [=] __device__(float x) { return x > 0 ? x : 0.0f; });
      break;
    case Function::tanh:
      map_elements(context, elements, result, a, [=] __device__(float x) { return tanhf(x); });
      break;
    case Function::sigmoid:
      map_elements(context, elements, result, a, [=] __device__(float x) { return 1.0f / (1.0f + expf(-x)); });
      break;
    case Function::gelu:
      map_elements(context, elements, result, a,
                   [=] __device__(float x) { return 0.5f * x * (1.0f + erff(x * inverse_root_2)); });
      break;
    case Function::gelu_tanh:
      map_elements(context, elements, result, a, [=] __device__(float x) {
        return 0.5f * x * (1.0f + tanhf(root_2_over_pi * (x + gelu_cube * x * x * x)));
      });
      break;
    case Function::silu:
      map_elements(context, elements, result, a, [=] __device__(float x) { return x / (1.0f + expf(-x)); });
      break;
    case Function::elu:
      map_elements(context, elements, result, a, [=] __device__(float x) { return x > 0 ? x : alpha * expm1f(x); });
      break;
    case Function::softplus:
      map_elements(context, elements, result, a, [=] __device__(float x) { return softplus(x); });
      break;
    case Function::mish:
      map_elements(context, elements, result, a, [=] __device__(float x) { return x * tanhf(softplus(x)); });
      break;
    case Function::log: map_elements(context, elements, result, a, [=] __device__(float x) { return logf(x); }); break;
    case Function::exp: map_elements(context, elements, result, a, [=] __device__(float x) { return expf(x); }); break;
    case Function::sin: map_elements(context, elements, result, a, [=] __device__(float x) { return sinf(x); }); break;
    case Function::pow:
      map_elements(context, elements, result, a, [=] __device__(float x) { return powf(x, alpha); });
      break;
    case Function::add:
      map_elements(context, elements, result, std::tuple(a, b), [=] __device__(float x, float y) { return x + y; });
      break;
    case Function::sub:
      map_elements(context, elements, result, std::tuple(a, b), [=] __device__(float x, float y) { return x - y; });
      break;
    case Function::mul:
      map_elements(context, elements, result, std::tuple(a, b), [=] __device__(float x, float y) { return x * y; });
      break;
    case Function::identity: copy_bytes(context, a, result, elements * static_cast<int64_t>(sizeof(Element))); break;
  }
}

// d/dx of x Phi(x), Phi being the normal distribution: Phi(x) + x phi(x).
template <class Element>
void gelu_gradient(const Context& context, const Element* input, const Element* gradient, int64_t elements,
                   Element* result) {
  map_elements(context, elements, result, std::tuple(input, gradient), [=] __device__(float x, float g) {
    return g * (0.5f * (1.0f + erff(x * inverse_root_2)) + x * inverse_root_2_pi * expf(-0.5f * x * x));
  });
}

template <class Element>
void gelu_tanh_gradient(const Context& context, const Element* input, const Element* gradient, int64_t elements,
                        Element* result) {
  map_elements(context, elements, result, std::tuple(input, gradient), [=] __device__(float x, float g) {
    const float t = tanhf(root_2_over_pi * (x + gelu_cube * x * x * x)),
                slope = root_2_over_pi * (1.0f + 3.0f * gelu_cube * x * x);
    return g * 0.5f * (1.0f + t + x * (1.0f - t * t) * slope);
  });
}

// d/dx of x s(x), s being the sigmoid function: s(x) (1 + x (1 - s(x))).
template <class Element>
void silu_gradient(const Context& context, const Element* input, const Element* gradient, int64_t elements,
                   Element* result) {
  map_elements(context, elements, result, std::tuple(input, gradient), [=] __device__(float x, float g) {
    const float sigmoid = 1.0f / (1.0f + expf(-x));
    return g * sigmoid * (1.0f + x * (1.0f - sigmoid));
  });
}

template <class Element>
void elu_gradient(const Context& context, float alpha, const Element* input, const Element* gradient, int64_t elements,
                  Element* result) {
  map_elements(context, elements, result, std::tuple(input, gradient),
               [=] __device__(float x, float g) { return g * (x > 0 ? 1.0f : alpha * expf(x)); });
}

template <class Element>
void softplus_gradient(const Context& context, const Element* input, const Element* gradient, int64_t elements,
                       Element* result) {
  map_elements(context, elements, result, std::tuple(input, gradient),
               [=] __device__(float x, float g) { return g / (1.0f + expf(-x)); });
}

// d/dx of x t, t = tanh(softplus(x)): t + x (1 - t^2) s(x), s being the sigmoid function.
template <class Element>
void mish_gradient(const Context& context, const Element* input, const Element* gradient, int64_t elements,
                   Element* result) {
  map_elements(context, elements, result, std::tuple(input, gradient), [=] __device__(float x, float g) {
    const float t = tanhf(softplus(x)), sigmoid = 1.0f / (1.0f + expf(-x));
    return g * (t + x * (1.0f - t * t) * sigmoid);
  });
}

template <class Element>
void log_gradient(const Context& context, const Element* input, const Element* gradient, int64_t elements,
                  Element* result) {
  map_elements(context, elements, result, std::tuple(input, gradient),
               [=] __device__(float x, float g) { return g / x; });
}

template <class Element>
void exp_gradient(const Context& context, const Element* output, const Element* gradient, int64_t elements,
                  Element* result) {
  map_elements(context, elements, result, std::tuple(output, gradient),
               [=] __device__(float y, float g) { return g * y; });
}

template <class Element>
void sin_gradient(const Context& context, const Element* input, const Element* gradient, int64_t elements,
                  Element* result) {
  map_elements(context, elements, result, std::tuple(input, gradient),
               [=] __device__(float x, float g) { return g * cosf(x); });
}

template <class Element>
void pow_gradient(const Context& context, float exponent, const Element* input, const Element* gradient,
                  int64_t elements, Element* result) {
  map_elements(context, elements, result, std::tuple(input, gradient),
               [=] __device__(float x, float g) { return g * exponent * powf(x, exponent - 1.0f); });
}

template <class Element>
void sigmoid_gradient(const Context& context, const Element* output, const Element* gradient, int64_t elements,
                      Element* result) {
  map_elements(context, elements, result, std::tuple(output, gradient),
               [=] __device__(float y, float g) { return g * y * (1.0f - y); });
}

template <class Element>
void negate(const Context& context, const Element* source, int64_t elements, Element* result) {
  map_elements(context, elements, result, source, [=] __device__(float x) { return -x; });
}

// Reads the source once.
template <class Element>
void copy_to_both(const Context& context, const Element* source, int64_t elements, Element* first, Element* second) {
  if (elements_before_pack(source) > 0 || elements_before_pack(first) > 0 || elements_before_pack(second) > 0) {
    const int64_t bytes = elements * static_cast<int64_t>(sizeof(Element));
    copy_bytes(context, source, first, bytes);
    copy_bytes(context, source, second, bytes);
    return;
  }
  for_each_index(context, (elements + pack_size - 1) / pack_size, [=] __device__(int64_t pack) {
    const int64_t begin = pack * pack_size, rest = elements - begin;
    if (rest >= pack_size) {
      const Pack<Element, pack_size> values = load<pack_size>(source + begin);
      store(first + begin, values);
      store(second + begin, values);
    } else {
      for (int64_t i = begin; i < elements; ++i) first[i] = second[i] = source[i];
    }
  });
}

template <class Element>
class ElementwiseKernel : public Kernel {
 public:
  ElementwiseKernel(const Context& context, const Elementwise& definition, const Block& part)
      : context_(context), function_(definition.function), alpha_(definition.alpha), elements_(part.volume()) {}

  void forward(const KernelArguments& arguments) override {
    const auto input = [&](size_t i) { return static_cast<const Element*>(arguments.inputs[i]); };
    apply(context_, function_, alpha_, input(0), arguments.inputs.size() > 1 ? input(1) : nullptr, elements_,
          output(arguments));
    for (size_t i = 2; i < arguments.inputs.size(); ++i)
      apply(context_, Function::add, alpha_, static_cast<const Element*>(output(arguments)), input(i), elements_,
            output(arguments));
  }

  void backward(const KernelArguments& arguments) override {
    const auto* const gradient = reinterpret_cast<const Element*>(arguments.output_gradients[0]);
    const Element* const of_output = output(arguments);
    const auto gradient_of = [&](size_t i) { return reinterpret_cast<Element*>(arguments.input_gradients[i]); };
    if (function_ == Function::add && arguments.input_gradients.size() == 2 && gradient_of(0) && gradient_of(1))
      return copy_to_both(context_, gradient, elements_, gradient_of(0), gradient_of(1));
    for (size_t i = 0; i < arguments.input_gradients.size(); ++i) {
      Element* const result = gradient_of(i);
      if (!result) continue;
      switch (function_) {
        case Function::relu: mask_by_positive(context_, of_output, gradient, result, elements_); break;
        case Function::tanh: tanh_gradient(context_, of_output, gradient, result, elements_); break;
        case Function::sigmoid: sigmoid_gradient(context_, of_output, gradient, elements_, result); break;
        case Function::gelu:
          gelu_gradient(context_, static_cast<const Element*>(arguments.inputs[0]), gradient, elements_, result);
          break;
        case Function::gelu_tanh:
          gelu_tanh_gradient(context_, static_cast<const Element*>(arguments.inputs[0]), gradient, elements_, result);
          break;
        case Function::silu:
          silu_gradient(context_, static_cast<const Element*>(arguments.inputs[0]), gradient, elements_, result);
          break;
        case Function::elu:
          elu_gradient(context_, alpha_, static_cast<const Element*>(arguments.inputs[0]), gradient, elements_, result);
          break;
        case Function::softplus:
          softplus_gradient(context_, static_cast<const Element*>(arguments.inputs[0]), gradient, elements_, result);
          break;
        case Function::mish:
          mish_gradient(context_, static_cast<const Element*>(arguments.inputs[0]), gradient, elements_, result);
          break;
        case Function::log:
          log_gradient(context_, static_cast<const Element*>(arguments.inputs[0]), gradient, elements_, result);
          break;
        case Function::exp: exp_gradient(context_, of_output, gradient, elements_, result); break;
        case Function::sin:
          sin_gradient(context_, static_cast<const Element*>(arguments.inputs[0]), gradient, elements_, result);
          break;
        case Function::pow:
          pow_gradient(context_, alpha_, static_cast<const Element*>(arguments.inputs[0]), gradient, elements_, result);
          break;
        case Function::add:
        case Function::identity:
          copy_bytes(context_, gradient, result, elements_ * static_cast<int64_t>(sizeof(Element)));
          break;
        case Function::sub:
          if (i == 0) copy_bytes(context_, gradient, result, elements_ * static_cast<int64_t>(sizeof(Element)));
          else negate(context_, gradient, elements_, result);
          break;
        case Function::mul:
          apply(context_, Function::mul, alpha_, static_cast<const Element*>(arguments.inputs[1 - i]), gradient,
                elements_, result);
          break;
      }
    }
  }

 private:
  static Element* output(const KernelArguments& arguments) { return reinterpret_cast<Element*>(arguments.outputs[0]); }

  const Context& context_;
  Function function_;
  float alpha_;
  int64_t elements_;
};

}  // namespace

std::unique_ptr<Kernel> make_elementwise_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<ElementwiseKernel<float>>(context, dynamic_cast<const Elementwise&>(request.definition),
                                                    request.part);
}
// A sum of three inputs or more would be rounded after each.
std::unique_ptr<Kernel> make_elementwise_bf16_kernel(const Context& context, const KernelRequest& request) {
  const auto* const definition = dynamic_cast<const Elementwise*>(&request.definition);
  if (!definition || definition->inputs().size() > 2) return nullptr;
  return std::make_unique<ElementwiseKernel<Bf16>>(context, *definition, request.part);
}

}  // namespace ff::cuda
