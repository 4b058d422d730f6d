#include "common/kernels/cuda/recorded_graph.h"

#include "common/kernels/cuda/check.h"

namespace ff::cuda {

RecordedGraph::~RecordedGraph() {
  if (executable_) cudaGraphExecDestroy(executable_);
}

void RecordedGraph::begin() { FF_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal)); }

void RecordedGraph::end() {
  cudaGraph_t graph = nullptr;
  FF_CHECK(cudaStreamEndCapture(stream_, &graph));
  const cudaError_t status = cudaGraphInstantiate(&executable_, graph, 0);
  cudaGraphDestroy(graph);
  if (status != cudaSuccess) executable_ = nullptr;
  check(status, "cudaGraphInstantiate");
  FF_CHECK(cudaGraphUpload(executable_, stream_));
}

void RecordedGraph::give_up() {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream_, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone) {
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(stream_, &graph);
    if (graph) cudaGraphDestroy(graph);
  }
  cudaGetLastError();  // the failure has been reported
}

void RecordedGraph::launch() { FF_CHECK(cudaGraphLaunch(executable_, stream_)); }

}  // namespace ff::cuda
