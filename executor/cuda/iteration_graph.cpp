#include "executor/cuda/iteration_graph.h"

#include "common/kernels/cuda/check.h"

namespace ff {
namespace {

class CudaIterationGraph : public IterationGraph {
 public:
  explicit CudaIterationGraph(CudaBackend& backend) : backend_(backend) {}
  ~CudaIterationGraph() override {
    if (executable_) cudaGraphExecDestroy(executable_);
  }

  bool recorded() const override { return executable_ != nullptr; }

  // Thread-local: calls that a graph cannot hold (an allocation, a wait) fail in this thread, rather than run now and
  // be missing later.
  void begin() override {
    backend_.use_device();
    FF_CHECK(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal));
  }

  void end() override {
    cudaGraph_t graph = nullptr;
    FF_CHECK(cudaStreamEndCapture(stream(), &graph));
    const cudaError_t status = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    if (status != cudaSuccess) executable_ = nullptr;
    ::ff::cuda::check(status, "cudaGraphInstantiate");
    FF_CHECK(cudaGraphUpload(executable_, stream()));
  }

  void give_up() override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(stream(), &status) == cudaSuccess && status != cudaStreamCaptureStatusNone) {
      cudaGraph_t graph = nullptr;
      cudaStreamEndCapture(stream(), &graph);
      if (graph) cudaGraphDestroy(graph);
    }
    cudaGetLastError();  // the failure has been reported
  }

  void launch(int64_t iteration) override {
    backend_.use_device();
    backend_.set_iteration(iteration);
    FF_CHECK(cudaGraphLaunch(executable_, stream()));
  }

 private:
  cudaStream_t stream() const { return static_cast<cudaStream_t>(backend_.stream()); }

  CudaBackend& backend_;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace

std::unique_ptr<IterationGraph> make_iteration_graph(CudaBackend& backend) {
  return std::make_unique<CudaIterationGraph>(backend);
}

}  // namespace ff
