#include "executor/cuda/iteration_graph.h"

#include "common/kernels/cuda/recorded_graph.h"

namespace ff {
namespace {

class CudaIterationGraph : public IterationGraph {
 public:
  explicit CudaIterationGraph(CudaBackend& backend)
      : backend_(backend), graph_(static_cast<cudaStream_t>(backend.stream())) {}

  bool recorded() const override { return graph_.recorded(); }
  void begin() override {
    backend_.use_device();
    graph_.begin();
  }
  void end() override { graph_.end(); }
  void give_up() override { graph_.give_up(); }
  void launch(int64_t iteration) override {
    backend_.use_device();
    backend_.set_iteration(iteration);
    graph_.launch();
  }

 private:
  CudaBackend& backend_;
  cuda::RecordedGraph graph_;
};

}  // namespace

std::unique_ptr<IterationGraph> make_iteration_graph(CudaBackend& backend) {
  return std::make_unique<CudaIterationGraph>(backend);
}

}  // namespace ff
