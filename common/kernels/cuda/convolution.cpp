#include "common/kernels/cuda/convolution.h"

#include <algorithm>
#include <type_traits>

#include "common/errors.h"
#include "common/kernels/cuda/convolution_choice.h"
#include "common/kernels/cuda/kernels.h"
#include "common/vector.h"

namespace ff::cuda {
namespace {

template <class Element>
constexpr bool is_bf16 = std::is_same_v<Element, Bf16>;

int narrow(int64_t value) {
  if (value > INT32_MAX)
    throw MachineError("a convolution's size " + std::to_string(value) + " exceeds what cuDNN counts");
  return static_cast<int>(value);
}

}  // namespace

std::string ConvolutionGeometry::text() const {
  std::string text = std::to_string(samples) + " " + std::to_string(groups) + " " + std::to_string(in_channels) + " " +
                     std::to_string(out_channels);
  for (const auto* pair : {&input, &output, &kernel, &stride, &dilation, &padding})
    text += " " + std::to_string((*pair)[0]) + "x" + std::to_string((*pair)[1]);
  return text;
}

template <class Element>
struct Convolution<Element>::Layout {
  Layout() {
    FF_CHECK(cudnnCreateTensorDescriptor(&input));
    FF_CHECK(cudnnCreateTensorDescriptor(&output));
    FF_CHECK(cudnnCreateFilterDescriptor(&weight));
    FF_CHECK(cudnnCreateConvolutionDescriptor(&convolution));
  }
  ~Layout() {
    if (convolution) cudnnDestroyConvolutionDescriptor(convolution);
    if (weight) cudnnDestroyFilterDescriptor(weight);
    if (output) cudnnDestroyTensorDescriptor(output);
    if (input) cudnnDestroyTensorDescriptor(input);
  }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

  cudnnTensorDescriptor_t input = nullptr, output = nullptr;
  cudnnFilterDescriptor_t weight = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
};

template <class Element>
Convolution<Element>::Convolution(const Context& context, const ConvolutionGeometry& geometry, bool input_gradient)
    : context_(context), geometry_(geometry), input_gradient_(input_gradient) {
  constexpr cudnnDataType_t type = is_bf16<Element> ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
  const auto make = [&](cudnnTensorFormat_t format) {
    auto layout = std::make_unique<Layout>();
    const ConvolutionGeometry& g = geometry_;
    FF_CHECK(cudnnSetTensor4dDescriptor(layout->input, format, type, narrow(g.samples), narrow(g.in_channels),
                                        narrow(g.input[0]), narrow(g.input[1])));
    FF_CHECK(cudnnSetTensor4dDescriptor(layout->output, format, type, narrow(g.samples), narrow(g.out_channels),
                                        narrow(g.output[0]), narrow(g.output[1])));
    FF_CHECK(cudnnSetFilter4dDescriptor(layout->weight, type, format, narrow(g.out_channels),
                                        narrow(g.in_channels / g.groups), narrow(g.kernel[0]), narrow(g.kernel[1])));
    FF_CHECK(cudnnSetConvolution2dDescriptor(layout->convolution, narrow(g.padding[0]), narrow(g.padding[1]),
                                             narrow(g.stride[0]), narrow(g.stride[1]), narrow(g.dilation[0]),
                                             narrow(g.dilation[1]), CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    FF_CHECK(cudnnSetConvolutionGroupCount(layout->convolution, narrow(g.groups)));
    return layout;
  };
  channels_last_ = make(CUDNN_TENSOR_NHWC);
  channels_first_ = make(CUDNN_TENSOR_NCHW);
  choose(Pass::forward);
  choose(Pass::backward_weight);
  if (input_gradient) choose(Pass::backward_input);
}

template <class Element>
Convolution<Element>::~Convolution() = default;

template <class Element>
bool Convolution<Element>::can_run() const {
  return choice(Pass::forward).method != Method::none && choice(Pass::backward_weight).method != Method::none &&
         (!input_gradient_ || choice(Pass::backward_input).method != Method::none);
}

template <class Element>
void Convolution<Element>::forward(const Element* input, const Element* weight, Element* output,
                                   ScratchPieces scratch) const {
  run(Pass::forward, choice(Pass::forward), {const_cast<Element*>(input), const_cast<Element*>(weight), output},
      scratch);
}
template <class Element>
void Convolution<Element>::backward_input(const Element* weight, const Element* output_gradient,
                                          Element* input_gradient, ScratchPieces scratch) const {
  run(Pass::backward_input, choice(Pass::backward_input),
      {input_gradient, const_cast<Element*>(weight), const_cast<Element*>(output_gradient)}, scratch);
}
template <class Element>
void Convolution<Element>::backward_weight(const Element* input, const Element* output_gradient, float* weight_gradient,
                                           bool add, ScratchPieces scratch) const {
  run(Pass::backward_weight, choice(Pass::backward_weight),
      {const_cast<Element*>(input), nullptr, const_cast<Element*>(output_gradient), weight_gradient, add}, scratch);
}

template <class Element>
int64_t Convolution<Element>::scratch_bytes() const {
  int64_t bytes = 0;
  for (Pass pass : {Pass::forward, Pass::backward_input, Pass::backward_weight})
    bytes = std::max(bytes, scratch_bytes(choice(pass)));
  return bytes;
}

template <class Element>
bool Convolution<Element>::is_product() const {
  const Array<int64_t, 2> one{1, 1}, none{0, 0};
  return geometry_.groups == 1 && geometry_.kernel == one && geometry_.stride == one && geometry_.padding == none;
}
// cuDNN's vector instructions want addresses of 16 bytes, and it is not told those of its tensors before it runs.
// Blocks have them; a group's part of the weights need not.
template <class Element>
bool Convolution<Element>::aligned(const void* memory) {
  return reinterpret_cast<uintptr_t>(memory) % 16 == 0;
}
template <class Element>
bool Convolution<Element>::weight_order_agrees() const {
  return geometry_.in_channels == geometry_.groups || geometry_.kernel[0] * geometry_.kernel[1] == 1;
}
template <class Element>
const typename Convolution<Element>::Layout& Convolution<Element>::layout(Method method) const {
  return method == Method::channels_last ? *channels_last_ : *channels_first_;
}

template <class Element>
void Convolution<Element>::choose(Pass pass) {
  const std::string key =
      (is_bf16<Element> ? "bf16 " : "") + std::to_string(static_cast<int>(pass)) + ": " + geometry_.text();
  auto known = context_.convolutions.find(key);
  if (known == context_.convolutions.end()) known = context_.convolutions.emplace(key, measured(pass)).first;
  choices_[static_cast<int>(pass)] = known->second;
}

// Every way once to warm up and then a few times, with all that belongs to it.
template <class Element>
ConvolutionChoice Convolution<Element>::measured(Pass pass) const {
  Memory<Element> input(context_, geometry_.input_elements()), weight(context_, geometry_.weight_elements()),
      output(context_, geometry_.output_elements());
  Memory<float> gradient(context_, pass == Pass::backward_weight ? geometry_.weight_elements() : 0);
  for (const Memory<Element>* memory : {&input, &weight, &output}) fill_zero(context_, memory->data(), memory->bytes());
  const Operands operands{input.data(), weight.data(), output.data(), gradient.data()};
  size_t free_bytes = 0, all_bytes = 0;
  FF_CHECK(cudaMemGetInfo(&free_bytes, &all_bytes));
  // Less only where memory is short.
  Memory<char> workspace(
      context_, std::min(workspace_limit_bytes(static_cast<int64_t>(all_bytes)), static_cast<int64_t>(free_bytes / 4)));
  std::string why_none;

  Vector<ConvolutionChoice> candidates;
  if (is_product()) candidates.push_back({Method::product});
  for (Method method : {Method::channels_last, Method::channels_first}) {
    const ConvolutionChoice choice = fastest_algorithm(pass, method, operands, workspace);
    if (choice.method != Method::none) candidates.push_back(choice);
  }
  workspace = Memory<char>();
  cudaEvent_t begin = nullptr, end = nullptr;
  FF_CHECK(cudaEventCreate(&begin));
  FF_CHECK(cudaEventCreate(&end));
  Vector<ConvolutionCandidate> measured;
  Vector<ConvolutionChoice> choices;
  for (const ConvolutionChoice& candidate : candidates) {
    constexpr int repetitions = 3;
    float ms = 0;
    try {
      Memory<char> scratch(context_, scratch_bytes(candidate));
      for (int repetition = 0; repetition <= repetitions; ++repetition) {
        if (repetition == 1) FF_CHECK(cudaEventRecord(begin, context_.stream));
        run(pass, candidate, operands, ScratchPieces(scratch.data()));
      }
      FF_CHECK(cudaEventRecord(end, context_.stream));
      FF_CHECK(cudaEventSynchronize(end));
      FF_CHECK(cudaEventElapsedTime(&ms, begin, end));
    } catch (const MachineError& error) {  // it does not run with this arithmetic after all, or memory is short
      if (candidate.method == Method::product) throw;
      (void)cudaGetLastError();
      why_none = std::string(": ") + error.what();
      continue;
    }
    measured.push_back({static_cast<int>(candidate.method), candidate.deterministic, true, 0, static_cast<double>(ms)});
    choices.push_back(candidate);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  const int best = choose_convolution(measured, INT64_MAX);
  // In bf16 there is another way, by conversion.
  if (is_bf16<Element> && (best < 0 || !choices[best].deterministic)) return {};
  if (best < 0) throw MachineError("cuDNN has no algorithm for the convolution " + geometry_.text() + why_none);
  return choices[best];
}

// Method::none where cuDNN has none in this layout.
template <class Element>
ConvolutionChoice Convolution<Element>::fastest_algorithm(Pass pass, Method method, const Operands& operands,
                                                          Memory<char>& workspace) const {
  Element *const input = operands.input, *const weight = operands.weight, *const output = operands.output;
  const Layout& layout = this->layout(method);
  FF_CHECK(cudnnSetConvolutionMathType(layout.convolution, is_bf16<Element> ? CUDNN_TENSOR_OP_MATH
                                                           : context_.precision == Precision::tf32 ? CUDNN_DEFAULT_MATH
                                                                                                   : CUDNN_FMA_MATH));
  constexpr int most = 32;
  ConvolutionChoice choice;
  // The search also tries CUDNN_DEFAULT_MATH, whatever the descriptor says (cuDNN API,
  // cudnnFindConvolutionForwardAlgorithmEx), and that is TF32: in fp32 such a result tells of the algorithm alone.
  const bool fp32 = !is_bf16<Element> && context_.precision == Precision::fp32;
  // Twice, and the shorter time counts: an algorithm's first run loads its code, and an idle GPU has low clocks.
  const auto search = [&](auto result, const auto& find) {
    decltype(result) results[2][most];
    int found[2] = {};
    for (int attempt = 0; attempt < 2; ++attempt) {
      const cudnnStatus_t status = find(&found[attempt], results[attempt]);
      (void)cudaGetLastError();  // left by algorithms that do not fit
      if (status != CUDNN_STATUS_SUCCESS) return;
    }
    Vector<ConvolutionCandidate> candidates;
    Vector<int> numbers;
    for (int i = 0; i < found[1]; ++i) {
      const auto& one = results[1][i];
      if (one.status != CUDNN_STATUS_SUCCESS) continue;
      float ms = one.time;
      for (int k = 0; k < found[0]; ++k)
        if (const auto& before = results[0][k];
            before.algo == one.algo && before.mathType == one.mathType && before.status == CUDNN_STATUS_SUCCESS)
          ms = std::min(ms, before.time);
      candidates.push_back({2 * static_cast<int>(one.algo) + (one.mathType == CUDNN_FMA_MATH ? 0 : 1),
                            one.determinism == CUDNN_DETERMINISTIC, !fp32 || one.mathType == CUDNN_FMA_MATH,
                            static_cast<int64_t>(one.memory), static_cast<double>(ms)});
      numbers.push_back(i);
    }
    const int best = choose_convolution(candidates, workspace.bytes());
    if (best < 0) return;
    const auto& chosen = results[1][numbers[best]];
    choice = {method, static_cast<int>(chosen.algo), fp32 ? CUDNN_FMA_MATH : chosen.mathType,
              static_cast<int64_t>(chosen.memory), chosen.determinism == CUDNN_DETERMINISTIC};
  };
  const size_t bytes = static_cast<size_t>(workspace.bytes());
  if (pass == Pass::forward)
    search(cudnnConvolutionFwdAlgoPerf_t{}, [&](int* found, auto* results) {
      return cudnnFindConvolutionForwardAlgorithmEx(context_.dnn, layout.input, input, layout.weight, weight,
                                                    layout.convolution, layout.output, output, most, found, results,
                                                    workspace.data(), bytes);
    });
  else if (pass == Pass::backward_input)
    search(cudnnConvolutionBwdDataAlgoPerf_t{}, [&](int* found, auto* results) {
      return cudnnFindConvolutionBackwardDataAlgorithmEx(context_.dnn, layout.weight, weight, layout.output, output,
                                                         layout.convolution, layout.input, input, most, found, results,
                                                         workspace.data(), bytes);
    });
  else
    search(cudnnConvolutionBwdFilterAlgoPerf_t{}, [&](int* found, auto* results) {
      return cudnnFindConvolutionBackwardFilterAlgorithmEx(context_.dnn, layout.input, input, layout.output, output,
                                                           layout.convolution, layout.weight, weight, most, found,
                                                           results, workspace.data(), bytes);
    });
  return choice;
}

template <class Element>
int64_t Convolution<Element>::scratch_bytes(const ConvolutionChoice& choice) const {
  ScratchPieces pieces;
  if (choice.method != Method::product) pieces.take<Element>(geometry_.weight_elements());
  if (choice.method == Method::channels_first) {
    pieces.take<Element>(geometry_.input_elements());
    pieces.take<Element>(geometry_.output_elements());
  }
  pieces.take<char>(choice.workspace_bytes);
  return pieces.taken();
}

// Adding to a gradient is done here: cuDNN's algorithms were chosen without.
template <class Element>
void Convolution<Element>::run(Pass pass, const ConvolutionChoice& choice, const Operands& operands,
                               ScratchPieces scratch) const {
  const ConvolutionGeometry& g = geometry_;
  if (choice.method == Method::product) {
    run_product(pass, operands);
    return;
  }
  Element* const own_weight = scratch.take<Element>(g.weight_elements());
  const bool reordered = choice.method == Method::channels_last && !weight_order_agrees();
  // A copy that is not reordered is the transpose of rows of one element.
  const int64_t in = reordered ? g.in_channels / g.groups : 1,
                window = reordered ? g.kernel[0] * g.kernel[1] : g.weight_elements() / g.out_channels;
  if (pass != Pass::backward_weight) {
    const bool as_it_lies = !reordered && aligned(operands.weight);
    if (!as_it_lies) transpose<Element, Element>(context_, operands.weight, g.out_channels, in, window, own_weight);
    run_on_weight(pass, choice, operands, as_it_lies ? operands.weight : own_weight, scratch);
    return;
  }
  if constexpr (!is_bf16<Element>)
    if (!reordered && !operands.add && aligned(operands.weight_gradient)) {
      run_on_weight(pass, choice, operands, operands.weight_gradient, scratch);
      return;
    }
  run_on_weight(pass, choice, operands, own_weight, scratch);
  transpose<Element, float>(context_, own_weight, g.out_channels, window, in, operands.weight_gradient, operands.add);
}

// With the weights, or their gradients, as the method wants them.
template <class Element>
void Convolution<Element>::run_on_weight(Pass pass, const ConvolutionChoice& choice, const Operands& operands,
                                         Element* weight, ScratchPieces scratch) const {
  const ConvolutionGeometry& g = geometry_;
  const auto transposed = [&](const Element* source, int64_t rows, int64_t columns, Element* destination) {
    transpose<Element, Element>(context_, source, g.samples, rows, columns, destination);
  };
  if (choice.method == Method::channels_last) {
    run_cudnn(pass, choice, operands.input, weight, operands.output, scratch.take<char>(choice.workspace_bytes));
    return;
  }
  const int64_t input_pixels = g.input[0] * g.input[1], output_pixels = g.output[0] * g.output[1];
  Element *const own_input = scratch.take<Element>(g.input_elements()), *const own_output =
                                                                            scratch.take<Element>(g.output_elements());
  char* const workspace = scratch.take<char>(choice.workspace_bytes);
  if (pass != Pass::backward_input) transposed(operands.input, input_pixels, g.in_channels, own_input);
  if (pass != Pass::forward) transposed(operands.output, output_pixels, g.out_channels, own_output);
  run_cudnn(pass, choice, own_input, weight, own_output, workspace);
  if (pass == Pass::backward_input) transposed(own_input, g.in_channels, input_pixels, operands.input);
  if (pass == Pass::forward) transposed(own_output, g.out_channels, output_pixels, operands.output);
}

// input [pixels, in], weight [out, in], output [pixels, out].
template <class Element>
void Convolution<Element>::run_product(Pass pass, const Operands& operands) const {
  Element *const input = operands.input, *const weight = operands.weight, *const output = operands.output;
  const int64_t in = geometry_.in_channels, out = geometry_.out_channels,
                pixels = geometry_.samples * geometry_.input[0] * geometry_.input[1];
  switch (pass) {
    case Pass::forward:
      multiply_matrices(context_, 'N', 'T', pixels, out, in, input, in, weight, in, 0, output, out);
      break;
    case Pass::backward_input:
      multiply_matrices(context_, 'N', 'N', pixels, in, out, output, out, weight, in, 0, input, in);
      break;
    case Pass::backward_weight:
      multiply_matrices(context_, 'T', 'N', out, in, pixels, output, out, input, in, operands.add ? 1 : 0,
                        operands.weight_gradient, in);
      break;
  }
}

template <class Element>
void Convolution<Element>::run_cudnn(Pass pass, const ConvolutionChoice& choice, Element* input, Element* weight,
                                     Element* output, void* workspace) const {
  const Layout& layout = this->layout(choice.method);
  const float one = 1, none = 0;
  const size_t bytes = static_cast<size_t>(choice.workspace_bytes);
  FF_CHECK(cudnnSetConvolutionMathType(layout.convolution, choice.math));
  switch (pass) {
    case Pass::forward:
      FF_CHECK(cudnnConvolutionForward(context_.dnn, &one, layout.input, input, layout.weight, weight,
                                       layout.convolution, static_cast<cudnnConvolutionFwdAlgo_t>(choice.algorithm),
                                       workspace, bytes, &none, layout.output, output));
      break;
    case Pass::backward_input:
      FF_CHECK(cudnnConvolutionBackwardData(
          context_.dnn, &one, layout.weight, weight, layout.output, output, layout.convolution,
          static_cast<cudnnConvolutionBwdDataAlgo_t>(choice.algorithm), workspace, bytes, &none, layout.input, input));
      break;
    case Pass::backward_weight:
      FF_CHECK(cudnnConvolutionBackwardFilter(context_.dnn, &one, layout.input, input, layout.output, output,
                                              layout.convolution,
                                              static_cast<cudnnConvolutionBwdFilterAlgo_t>(choice.algorithm), workspace,
                                              bytes, &none, layout.weight, weight));
      break;
  }
}

template class Convolution<float>;
template class Convolution<Bf16>;

}  // namespace ff::cuda
