// On a GPU: the third training iteration is recorded as a CUDA graph and launched as a whole from then on; the second
// is the one that the timekeeper times. The transport is NCCL's or there is one rank. Where recording fails, on any
// rank, iterations go on as before.
#pragma once

#include <memory>
#include <string>

#include "executor/cuda/iteration_graph.h"
#include "executor/program/observer.h"

namespace ff {

class Program;

class IterationRecorder : public Observer {
 public:
  // `program` is the one that it is attached to.
  IterationRecorder(Program& program, std::unique_ptr<IterationGraph> graph)
      : program_(program), graph_(std::move(graph)) {}

  bool launch(int64_t iteration) override;
  void give_up() override { graph_.reset(); }

  bool recorded() const { return graph_ && graph_->recorded(); }
  const std::string& failure() const { return failure_; }  // why there is no recording; "" without a failure

 private:
  void record(int64_t iteration);

  Program& program_;
  std::unique_ptr<IterationGraph> graph_;  // null after a failure
  int64_t trainings_ = 0;
  std::string failure_;
};

}  // namespace ff
