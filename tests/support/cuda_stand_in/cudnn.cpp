// cuDNN's convolutions, in double precision and in one order. Of its algorithms those that differ in what the caller
// has to heed: in workspace, in the geometry that they take, and in whether two runs agree in their bits (cuDNN API
// reference, cudnnConvolutionForward, -BackwardData, -BackwardFilter: supported algorithms). The results of one that is
// not deterministic differ in the last bit.
#include "include/cudnn.h"

#include <array>
#include <vector>

#include "common/kernels/bf16.h"
#include "library.h"

using namespace cuda_stand_in;

struct CudnnStandInHandle {
  int device = 0;
  cudaStream_t stream = nullptr;
};
struct CudnnStandInTensor {
  bool set = false, channels_last = false;
  std::array<int, 4> sizes{};  // n c h w
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
};
struct CudnnStandInFilter {
  bool set = false, channels_last = false;
  std::array<int, 4> sizes{};  // k c h w
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
};
struct CudnnStandInConvolution {
  bool set = false;
  std::array<int, 2> padding{}, stride{}, dilation{};
  int groups = 1;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
  cudnnDataType_t compute_type = CUDNN_DATA_FLOAT;
};

namespace {

enum class Pass { forward, backward_data, backward_filter };

struct Algorithm {
  int number;
  cudnnDeterminism_t determinism;
  int workspace_floats_of_output;  // workspace: so many floats an element of the output, and 256 bytes
  bool three_by_three;             // windows of 3 x 3, stride 1 alone
};
using Algorithms = std::vector<Algorithm>;

const Algorithms& algorithms(Pass pass) {
  static const Algorithms forward{{CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, CUDNN_DETERMINISTIC, 1, false},
                                  {CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED, CUDNN_DETERMINISTIC, 3, true},
                                  {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, CUDNN_DETERMINISTIC, -1, false}};
  static const Algorithms data{{CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, CUDNN_NON_DETERMINISTIC, -1, false},
                               {CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, CUDNN_DETERMINISTIC, 1, false}};
  static const Algorithms filter{{CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, CUDNN_NON_DETERMINISTIC, -1, false},
                                 {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3, CUDNN_NON_DETERMINISTIC, 1, false},
                                 {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, CUDNN_DETERMINISTIC, 2, false}};
  return pass == Pass::forward ? forward : pass == Pass::backward_data ? data : filter;
}

thread_local std::string last_error;

cudnnStatus_t fail(cudnnStatus_t status, const char* why) {
  last_error = why;
  return status;
}

struct Problem {
  Pass pass;
  CudnnStandInTensor input, output;
  CudnnStandInFilter weight;
  CudnnStandInConvolution convolution;

  int out_size(int axis) const {
    const auto a = static_cast<size_t>(axis);
    const int window = 1 + (weight.sizes[a + 2] - 1) * convolution.dilation[a];
    return 1 + (input.sizes[a + 2] + 2 * convolution.padding[a] - window) / convolution.stride[a];
  }
  cudnnStatus_t check() const {
    if (!input.set || !output.set || !weight.set || !convolution.set)
      return fail(CUDNN_STATUS_BAD_PARAM, "a descriptor was not set");
    if (input.channels_last != output.channels_last || input.channels_last != weight.channels_last)
      return fail(CUDNN_STATUS_NOT_SUPPORTED, "the layouts of the descriptors differ");
    // TRUE_FLOAT_CONFIG and PSEUDO_BFLOAT16_CONFIG of the API reference.
    if (input.type != output.type || input.type != weight.type || convolution.compute_type != CUDNN_DATA_FLOAT)
      return fail(CUDNN_STATUS_NOT_SUPPORTED, "the data types of the descriptors");
    if (input.sizes[1] != weight.sizes[1] * convolution.groups || output.sizes[1] != weight.sizes[0] ||
        weight.sizes[0] % convolution.groups != 0)
      return fail(CUDNN_STATUS_BAD_PARAM, "the numbers of channels do not agree");
    if (output.sizes[0] != input.sizes[0] || output.sizes[2] != out_size(0) || output.sizes[3] != out_size(1))
      return fail(CUDNN_STATUS_BAD_PARAM, "the output has other sizes than the convolution gives");
    return CUDNN_STATUS_SUCCESS;
  }
  bool takes(const Algorithm& algorithm) const {
    return !algorithm.three_by_three ||
           (weight.sizes[2] == 3 && weight.sizes[3] == 3 && convolution.stride == std::array{1, 1} &&
            convolution.dilation == std::array{1, 1} && convolution.groups == 1);
  }
  size_t workspace_bytes(const Algorithm& algorithm) const {
    if (algorithm.workspace_floats_of_output < 0) return 0;
    const size_t elements = count(output.sizes);
    return elements * sizeof(float) * static_cast<size_t>(algorithm.workspace_floats_of_output) + 256;
  }
  bool is_bf16() const { return input.type == CUDNN_DATA_BFLOAT16; }
  size_t element_bytes() const { return is_bf16() ? sizeof(ff::Bf16) : sizeof(float); }
  static size_t count(const std::array<int, 4>& sizes) {
    size_t product = 1;
    for (int size : sizes) product *= static_cast<size_t>(size);
    return product;
  }
};

int64_t place(const std::array<int, 4>& sizes, bool channels_last, int n, int c, int h, int w) {
  return channels_last ? ((int64_t{n} * sizes[2] + h) * sizes[3] + w) * sizes[1] + c
                       : ((int64_t{n} * sizes[1] + c) * sizes[2] + h) * sizes[3] + w;
}

struct Term {
  int64_t input, weight, output;  // places
};

// use(places) for every product of the sum that a convolution is.
template <class Use>
void each_term(const Problem& p, const Use& use) {
  const auto &in = p.input.sizes, &out = p.output.sizes, &filter = p.weight.sizes;
  const CudnnStandInConvolution& c = p.convolution;
  const int out_of_group = out[1] / c.groups, in_of_group = in[1] / c.groups;
  for (int n = 0; n < out[0]; ++n)
    for (int k = 0; k < out[1]; ++k)
      for (int y = 0; y < out[2]; ++y)
        for (int x = 0; x < out[3]; ++x)
          for (int r = 0; r < filter[2]; ++r) {
            const int row = y * c.stride[0] - c.padding[0] + r * c.dilation[0];
            if (row < 0 || row >= in[2]) continue;
            for (int s = 0; s < filter[3]; ++s) {
              const int column = x * c.stride[1] - c.padding[1] + s * c.dilation[1];
              if (column < 0 || column >= in[3]) continue;
              for (int i = 0; i < in_of_group; ++i)
                use(Term{place(in, p.input.channels_last, n, k / out_of_group * in_of_group + i, row, column),
                         place(filter, p.weight.channels_last, k, i, r, s),
                         place(out, p.output.channels_last, n, k, y, x)});
            }
          }
}

double number(float value) { return static_cast<double>(value); }
double number(ff::Bf16 value) { return static_cast<double>(ff::f32_of(value)); }
void set(float& result, double value) { result = static_cast<float>(value); }
void set(ff::Bf16& result, double value) { result = ff::bf16_of(static_cast<float>(value)); }
float operand(float value, bool tf32) { return tf32 ? to_tf32(value) : value; }
ff::Bf16 operand(ff::Bf16 value, bool) { return value; }

template <class Element>
void compute(const Problem& p, const LibraryCall& call, bool tf32, bool deterministic, float alpha, float beta,
             Element* input, Element* weight, Element* output) {
  const size_t sizes[] = {Problem::count(p.input.sizes), Problem::count(p.weight.sizes),
                          Problem::count(p.output.sizes)};
  Element* const memory[] = {input, weight, output};
  const char* const names[] = {"the input", "the weights", "the output"};
  const int result = p.pass == Pass::forward ? 2 : p.pass == Pass::backward_data ? 0 : 1;
  for (int i = 0; i < 3; ++i) {
    const size_t bytes = sizes[i] * sizeof(Element);
    if ((i != result || beta != 0) && !call.reads(names[i], memory[i], bytes)) return;
    if (i == result && !call.writes(names[i], memory[i], bytes)) return;
    if (reinterpret_cast<uintptr_t>(memory[i]) % 16 != 0) {
      call.fail(std::string(names[i]) + " does not lie at a multiple of 16 bytes");
      return;
    }
  }
  std::vector<double> sums(sizes[result]);
  const auto value = [&](const Element* from, int64_t at) { return number(operand(from[at], tf32)); };
  each_term(p, [&](const Term& term) {
    if (result == 2) sums[static_cast<size_t>(term.output)] += value(input, term.input) * value(weight, term.weight);
    else if (result == 0)
      sums[static_cast<size_t>(term.input)] += value(output, term.output) * value(weight, term.weight);
    else sums[static_cast<size_t>(term.weight)] += value(output, term.output) * value(input, term.input);
  });
  const double off = deterministic ? 1 : 1 + static_cast<double>(next_random() % 3) * 1e-7;
  for (size_t i = 0; i < sums.size(); ++i)
    set(memory[result][i], static_cast<double>(alpha) * sums[i] * off +
                               (beta != 0 ? static_cast<double>(beta) * number(memory[result][i]) : 0.0));
}

// alpha and beta; where the tensors lie.
struct Operands {
  const void *alpha, *beta, *input, *weight, *output;
};

cudnnStatus_t run(cudnnHandle_t handle, const Problem& problem, int number, const Operands& operands, void* workspace,
                  size_t workspace_bytes) {
  if (const cudnnStatus_t status = problem.check(); status != CUDNN_STATUS_SUCCESS) return status;
  const Algorithm* chosen = nullptr;
  for (const Algorithm& algorithm : algorithms(problem.pass))
    if (algorithm.number == number) chosen = &algorithm;
  if (!chosen || !problem.takes(*chosen)) return fail(CUDNN_STATUS_NOT_SUPPORTED, "the algorithm");
  const size_t needed = problem.workspace_bytes(*chosen);
  if (workspace_bytes < needed) return fail(CUDNN_STATUS_BAD_PARAM, "the workspace is too small");
  const std::lock_guard lock(state_mutex());
  const char* const name = problem.pass == Pass::forward         ? "cudnnConvolutionForward"
                           : problem.pass == Pass::backward_data ? "cudnnConvolutionBackwardData"
                                                                 : "cudnnConvolutionBackwardFilter";
  const LibraryCall call(name, handle->device);
  const auto work = std::make_shared<Work>();
  work->name = name;
  const float alpha = *static_cast<const float*>(operands.alpha), beta = *static_cast<const float*>(operands.beta);
  work->run = [=, deterministic = chosen->determinism == CUDNN_DETERMINISTIC] {
    if (!call.takes_workspace(workspace, needed)) return Progress::done;
    const auto with = [&]<class Element>(Element) {
      const auto memory = [](const void* address) { return static_cast<Element*>(const_cast<void*>(address)); };
      compute(problem, call, problem.convolution.math != CUDNN_FMA_MATH, deterministic, alpha, beta,
              memory(operands.input), memory(operands.weight), memory(operands.output));
    };
    if (problem.is_bf16()) with(ff::Bf16{});
    else with(0.0f);
    return Progress::done;
  };
  return submit(handle->stream, work) == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

// Every algorithm that takes the problem, with and without tf32, the fastest first: which one that is, is drawn.
template <class Performance>
cudnnStatus_t find(cudnnHandle_t handle, const Problem& problem, int most, int* found, Performance* results,
                   void* result, size_t result_elements, size_t workspace_bytes) {
  if (const cudnnStatus_t status = problem.check(); status != CUDNN_STATUS_SUCCESS) return status;
  const std::lock_guard lock(state_mutex());
  if (forbidden_while_capturing() != cudaSuccess) return fail(CUDNN_STATUS_EXECUTION_FAILED, "a stream is captured");
  cudaStreamSynchronize(handle->stream);
  std::vector<Performance> all;
  for (const Algorithm& algorithm : algorithms(problem.pass))
    for (cudnnMathType_t math : {CUDNN_DEFAULT_MATH, CUDNN_FMA_MATH}) {
      const size_t bytes = problem.workspace_bytes(algorithm);
      const bool fits = problem.takes(algorithm) && bytes <= workspace_bytes;
      all.push_back({static_cast<decltype(Performance::algo)>(algorithm.number),
                     fits ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED,
                     fits ? static_cast<float>(1 + next_random() % 100) * 1e-2f : -1.0f, bytes, algorithm.determinism,
                     math});
    }
  std::stable_sort(all.begin(), all.end(), [](const Performance& a, const Performance& b) {
    return (a.status == CUDNN_STATUS_SUCCESS) != (b.status == CUDNN_STATUS_SUCCESS) ? a.status == CUDNN_STATUS_SUCCESS
                                                                                    : a.time < b.time;
  });
  *found = std::min(most, static_cast<int>(all.size()));
  std::copy_n(all.begin(), *found, results);
  const Opened opened;  // the search writes the result's memory
  if (const std::string wrong =
          check_range(handle->device, result, result_elements * problem.element_bytes(), Access::write);
      !wrong.empty())
    return fail(CUDNN_STATUS_BAD_PARAM, "the result's memory is too small");
  std::memset(result, 0, result_elements * problem.element_bytes());
  return CUDNN_STATUS_SUCCESS;
}

Problem problem_of(Pass pass, cudnnTensorDescriptor_t input, cudnnFilterDescriptor_t weight,
                   cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t output) {
  return {pass, *input, *output, *weight, *convolution};
}

bool positive(std::initializer_list<int> sizes) {
  for (int size : sizes)
    if (size <= 0) return false;
  return true;
}

}  // namespace

size_t cudnnGetVersion() { return 91900; }
const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS: return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_EXECUTION_FAILED: return "CUDNN_STATUS_EXECUTION_FAILED";
  }
  return "CUDNN_UNKNOWN_STATUS";
}
void cudnnGetLastErrorString(char* text, size_t size) {
  std::snprintf(text, size, "%s", last_error.c_str());
  last_error.clear();
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  const std::lock_guard lock(state_mutex());
  *handle = new CudnnStandInHandle{current_device(), nullptr};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

#define FF_CREATE(Name, Type)                                      \
  cudnnStatus_t cudnnCreate##Name##Descriptor(Type** descriptor) { \
    *descriptor = new Type;                                        \
    return CUDNN_STATUS_SUCCESS;                                   \
  }                                                                \
  cudnnStatus_t cudnnDestroy##Name##Descriptor(Type* descriptor) { \
    delete descriptor;                                             \
    return CUDNN_STATUS_SUCCESS;                                   \
  }
FF_CREATE(Tensor, CudnnStandInTensor)
FF_CREATE(Filter, CudnnStandInFilter)
FF_CREATE(Convolution, CudnnStandInConvolution)
#undef FF_CREATE

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t descriptor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  if (!positive({n, c, h, w})) return fail(CUDNN_STATUS_BAD_PARAM, "a size of a tensor is not positive");
  *descriptor = {true, format == CUDNN_TENSOR_NHWC, {n, c, h, w}, type};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t descriptor, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  if (!positive({k, c, h, w})) return fail(CUDNN_STATUS_BAD_PARAM, "a size of a filter is not positive");
  *descriptor = {true, format == CUDNN_TENSOR_NHWC, {k, c, h, w}, type};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t descriptor, int pad_h, int pad_w,
                                              int stride_h, int stride_w, int dilation_h, int dilation_w,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t compute_type) {
  if (pad_h < 0 || pad_w < 0 || !positive({stride_h, stride_w, dilation_h, dilation_w}))
    return fail(CUDNN_STATUS_BAD_PARAM, "padding, stride or dilation");
  if (mode != CUDNN_CROSS_CORRELATION) return fail(CUDNN_STATUS_NOT_SUPPORTED, "the stand-in flips no filters");
  *descriptor = {true, {pad_h, pad_w},     {stride_h, stride_w}, {dilation_h, dilation_w},
                 1,    CUDNN_DEFAULT_MATH, compute_type};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t descriptor, int groups) {
  if (groups <= 0) return fail(CUDNN_STATUS_BAD_PARAM, "groups");
  descriptor->groups = groups;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t descriptor, cudnnMathType_t math) {
  descriptor->math = math;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(cudnnHandle_t handle, cudnnTensorDescriptor_t input_descriptor,
                                                     const void*, cudnnFilterDescriptor_t weight_descriptor,
                                                     const void*, cudnnConvolutionDescriptor_t convolution,
                                                     cudnnTensorDescriptor_t output_descriptor, void* output, int most,
                                                     int* found, cudnnConvolutionFwdAlgoPerf_t* results, void*,
                                                     size_t workspace_bytes) {
  const Problem problem =
      problem_of(Pass::forward, input_descriptor, weight_descriptor, convolution, output_descriptor);
  return find(handle, problem, most, found, results, output, Problem::count(problem.output.sizes), workspace_bytes);
}
cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(
    cudnnHandle_t handle, cudnnFilterDescriptor_t weight_descriptor, const void*,
    cudnnTensorDescriptor_t output_descriptor, const void*, cudnnConvolutionDescriptor_t convolution,
    cudnnTensorDescriptor_t input_descriptor, void* input, int most, int* found,
    cudnnConvolutionBwdDataAlgoPerf_t* results, void*, size_t workspace_bytes) {
  const Problem problem =
      problem_of(Pass::backward_data, input_descriptor, weight_descriptor, convolution, output_descriptor);
  return find(handle, problem, most, found, results, input, Problem::count(problem.input.sizes), workspace_bytes);
}
cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(
    cudnnHandle_t handle, cudnnTensorDescriptor_t input_descriptor, const void*,
    cudnnTensorDescriptor_t output_descriptor, const void*, cudnnConvolutionDescriptor_t convolution,
    cudnnFilterDescriptor_t weight_descriptor, void* weight, int most, int* found,
    cudnnConvolutionBwdFilterAlgoPerf_t* results, void*, size_t workspace_bytes) {
  const Problem problem =
      problem_of(Pass::backward_filter, input_descriptor, weight_descriptor, convolution, output_descriptor);
  return find(handle, problem, most, found, results, weight, Problem::count(problem.weight.sizes), workspace_bytes);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t input_descriptor,
                                      const void* input, cudnnFilterDescriptor_t weight_descriptor, const void* weight,
                                      cudnnConvolutionDescriptor_t convolution, cudnnConvolutionFwdAlgo_t algorithm,
                                      void* workspace, size_t workspace_bytes, const void* beta,
                                      cudnnTensorDescriptor_t output_descriptor, void* output) {
  return run(handle, problem_of(Pass::forward, input_descriptor, weight_descriptor, convolution, output_descriptor),
             algorithm, {alpha, beta, input, weight, output}, workspace, workspace_bytes);
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           cudnnFilterDescriptor_t weight_descriptor, const void* weight,
                                           cudnnTensorDescriptor_t output_descriptor, const void* output,
                                           cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace,
                                           size_t workspace_bytes, const void* beta,
                                           cudnnTensorDescriptor_t input_descriptor, void* input) {
  return run(handle,
             problem_of(Pass::backward_data, input_descriptor, weight_descriptor, convolution, output_descriptor),
             algorithm, {alpha, beta, input, weight, output}, workspace, workspace_bytes);
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             cudnnTensorDescriptor_t input_descriptor, const void* input,
                                             cudnnTensorDescriptor_t output_descriptor, const void* output,
                                             cudnnConvolutionDescriptor_t convolution,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace,
                                             size_t workspace_bytes, const void* beta,
                                             cudnnFilterDescriptor_t weight_descriptor, void* weight) {
  return run(handle,
             problem_of(Pass::backward_filter, input_descriptor, weight_descriptor, convolution, output_descriptor),
             algorithm, {alpha, beta, input, weight, output}, workspace, workspace_bytes);
}
