// cuDNN's legacy API, as far as the product uses it (cuDNN documentation, cudnn_cnn and cudnn_graph libraries).
#pragma once

#include "cuda_runtime_api.h"

enum cudnnStatus_t {
  CUDNN_STATUS_SUCCESS = 0,
  CUDNN_STATUS_BAD_PARAM = 2000,
  CUDNN_STATUS_NOT_SUPPORTED = 3000,
  CUDNN_STATUS_EXECUTION_FAILED = 5000,
};
enum cudnnTensorFormat_t { CUDNN_TENSOR_NCHW, CUDNN_TENSOR_NHWC };
enum cudnnDataType_t { CUDNN_DATA_FLOAT = 0, CUDNN_DATA_BFLOAT16 = 9 };
enum cudnnMathType_t {
  CUDNN_DEFAULT_MATH,
  CUDNN_TENSOR_OP_MATH,
  CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION,
  CUDNN_FMA_MATH
};
enum cudnnDeterminism_t { CUDNN_NON_DETERMINISTIC, CUDNN_DETERMINISTIC };
enum cudnnConvolutionMode_t { CUDNN_CONVOLUTION, CUDNN_CROSS_CORRELATION };
enum cudnnConvolutionFwdAlgo_t {
  CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM = 0,
  CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM = 1,
  CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED = 7,
};
enum cudnnConvolutionBwdDataAlgo_t { CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 };
enum cudnnConvolutionBwdFilterAlgo_t {
  CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0,
  CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1,
  CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3 = 3,
};
template <class Algorithm>
struct CudnnStandInPerformance {
  Algorithm algo;
  cudnnStatus_t status;
  float time;
  size_t memory;
  cudnnDeterminism_t determinism;
  cudnnMathType_t mathType;
};
using cudnnConvolutionFwdAlgoPerf_t = CudnnStandInPerformance<cudnnConvolutionFwdAlgo_t>;
using cudnnConvolutionBwdDataAlgoPerf_t = CudnnStandInPerformance<cudnnConvolutionBwdDataAlgo_t>;
using cudnnConvolutionBwdFilterAlgoPerf_t = CudnnStandInPerformance<cudnnConvolutionBwdFilterAlgo_t>;

typedef struct CudnnStandInHandle* cudnnHandle_t;
typedef struct CudnnStandInTensor* cudnnTensorDescriptor_t;
typedef struct CudnnStandInFilter* cudnnFilterDescriptor_t;
typedef struct CudnnStandInConvolution* cudnnConvolutionDescriptor_t;

size_t cudnnGetVersion();
const char* cudnnGetErrorString(cudnnStatus_t status);
void cudnnGetLastErrorString(char* text, size_t size);
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle);
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle);
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream);
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* descriptor);
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t descriptor);
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t descriptor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w);
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* descriptor);
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t descriptor);
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t descriptor, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w);
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* descriptor);
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t descriptor);
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t descriptor, int pad_h, int pad_w,
                                              int stride_h, int stride_w, int dilation_h, int dilation_w,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t compute_type);
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t descriptor, int groups);
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t descriptor, cudnnMathType_t math);

cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(cudnnHandle_t handle, cudnnTensorDescriptor_t input_descriptor,
                                                     const void* input, cudnnFilterDescriptor_t weight_descriptor,
                                                     const void* weight, cudnnConvolutionDescriptor_t convolution,
                                                     cudnnTensorDescriptor_t output_descriptor, void* output, int most,
                                                     int* found, cudnnConvolutionFwdAlgoPerf_t* results,
                                                     void* workspace, size_t workspace_bytes);
cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(
    cudnnHandle_t handle, cudnnFilterDescriptor_t weight_descriptor, const void* weight,
    cudnnTensorDescriptor_t output_descriptor, const void* output, cudnnConvolutionDescriptor_t convolution,
    cudnnTensorDescriptor_t input_descriptor, void* input, int most, int* found,
    cudnnConvolutionBwdDataAlgoPerf_t* results, void* workspace, size_t workspace_bytes);
cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(
    cudnnHandle_t handle, cudnnTensorDescriptor_t input_descriptor, const void* input,
    cudnnTensorDescriptor_t output_descriptor, const void* output, cudnnConvolutionDescriptor_t convolution,
    cudnnFilterDescriptor_t weight_descriptor, void* weight, int most, int* found,
    cudnnConvolutionBwdFilterAlgoPerf_t* results, void* workspace, size_t workspace_bytes);
cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t input_descriptor,
                                      const void* input, cudnnFilterDescriptor_t weight_descriptor, const void* weight,
                                      cudnnConvolutionDescriptor_t convolution, cudnnConvolutionFwdAlgo_t algorithm,
                                      void* workspace, size_t workspace_bytes, const void* beta,
                                      cudnnTensorDescriptor_t output_descriptor, void* output);
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           cudnnFilterDescriptor_t weight_descriptor, const void* weight,
                                           cudnnTensorDescriptor_t output_descriptor, const void* output,
                                           cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace,
                                           size_t workspace_bytes, const void* beta,
                                           cudnnTensorDescriptor_t input_descriptor, void* input);
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             cudnnTensorDescriptor_t input_descriptor, const void* input,
                                             cudnnTensorDescriptor_t output_descriptor, const void* output,
                                             cudnnConvolutionDescriptor_t convolution,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace,
                                             size_t workspace_bytes, const void* beta,
                                             cudnnFilterDescriptor_t weight_descriptor, void* weight);
