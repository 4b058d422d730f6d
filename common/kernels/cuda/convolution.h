// One convolution and its gradients by cuDNN, on dense channels-last blocks and row-major weights, with the same
// padding on both sides, of f32 or bf16. Sums are f32; gradients of weights are f32 too, those of bf16 are rounded to
// it before they are added.
//
// Each pass can be computed in several ways, and which one is fastest depends on the geometry, the device and the
// precision, whence it is measured:
//   product         a window of one position is a matrix product (cuBLAS)
//   channels_last   cuDNN on the blocks as they lie; the weights go through scratch memory, from [out, in, kernel] to
//                   [out, kernel, in]
//   channels_first  cuDNN on transposed copies of the blocks; the weights as they lie, where their address suits cuDNN
// each of cuDNN's with an algorithm that gives the same result in every run and whose workspace stays below a limit.
// Which one is chosen depends on times only where they differ clearly (convolution_choice.h).
#pragma once

#include <string>

#include "common/kernels/bf16.h"
#include "common/kernels/cuda/context.h"
#include "common/vector.h"

namespace ff::cuda {

struct ConvolutionGeometry {
  int64_t samples, groups, in_channels, out_channels;
  Array<int64_t, 2> input, output, kernel, stride, dilation, padding;  // height, width

  int64_t input_elements() const { return samples * in_channels * input[0] * input[1]; }
  int64_t output_elements() const { return samples * out_channels * output[0] * output[1]; }
  int64_t weight_elements() const { return out_channels * (in_channels / groups) * kernel[0] * kernel[1]; }
  std::string text() const;
};

// Element: float or Bf16.
template <class Element>
class Convolution {
 public:
  Convolution(const Context& context, const ConvolutionGeometry& geometry, bool input_gradient);
  ~Convolution();
  Convolution(const Convolution&) = delete;
  Convolution& operator=(const Convolution&) = delete;

  // Whether there is a way for each pass, in bf16 one that gives the same bits in every run. In f32 the constructor
  // throws where there is none.
  bool can_run() const;

  // Each takes its scratch memory from `scratch`.
  void forward(const Element* input, const Element* weight, Element* output, ScratchPieces scratch) const;
  void backward_input(const Element* weight, const Element* output_gradient, Element* input_gradient,
                      ScratchPieces scratch) const;
  void backward_weight(const Element* input, const Element* output_gradient, float* weight_gradient, bool add,
                       ScratchPieces scratch) const;

  int64_t scratch_bytes() const;  // of the pass that takes most
  const ConvolutionGeometry& geometry() const { return geometry_; }

 private:
  enum class Pass { forward, backward_input, backward_weight };
  using Method = ConvolutionChoice::Method;
  struct Layout;  // cuDNN's descriptors, of channels_last or channels_first

  const Layout& layout(Method method) const;
  const ConvolutionChoice& choice(Pass pass) const { return choices_[static_cast<int>(pass)]; }
  void choose(Pass pass);
  ConvolutionChoice measured(Pass pass) const;
  // `input`, `weight`, `output`: the values, or the gradients where the pass makes or uses those; backward_weight
  // writes `weight_gradient` alone. The pass's result is the one that it is named by.
  struct Operands {
    Element *input, *weight, *output;
    float* weight_gradient = nullptr;
    bool add = false;  // to the weights' gradient
  };
  ConvolutionChoice fastest_algorithm(Pass pass, Method method, const Operands& operands,
                                      Memory<char>& workspace) const;
  void run(Pass pass, const ConvolutionChoice& choice, const Operands& operands, ScratchPieces scratch) const;
  void run_on_weight(Pass pass, const ConvolutionChoice& choice, const Operands& operands, Element* weight,
                     ScratchPieces scratch) const;
  void run_product(Pass pass, const Operands& operands) const;
  void run_cudnn(Pass pass, const ConvolutionChoice& choice, Element* input, Element* weight, Element* output,
                 void* workspace) const;
  int64_t scratch_bytes(const ConvolutionChoice& choice) const;
  bool is_product() const;
  static bool aligned(const void* memory);
  bool weight_order_agrees() const;  // [out, in, kernel] is [out, kernel, in]

  const Context& context_;
  ConvolutionGeometry geometry_;
  bool input_gradient_;
  std::unique_ptr<Layout> channels_last_, channels_first_;
  Array<ConvolutionChoice, 3> choices_;  // by Pass
};

}  // namespace ff::cuda
