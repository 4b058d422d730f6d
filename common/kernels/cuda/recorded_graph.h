// A CUDA graph recorded from a stream: what is submitted to it between begin and end, and to streams that are ordered
// after it by events, is recorded instead of run. (CUDA Programming Guide, "CUDA Graphs", stream capture.)
#pragma once

#include <cuda_runtime.h>

namespace ff::cuda {

class RecordedGraph {
 public:
  explicit RecordedGraph(cudaStream_t stream) : stream_(stream) {}
  ~RecordedGraph();
  RecordedGraph(const RecordedGraph&) = delete;
  RecordedGraph& operator=(const RecordedGraph&) = delete;

  bool recorded() const { return executable_ != nullptr; }
  // Calls that a graph cannot hold (an allocation, a wait) fail in this thread from here to the end, rather than run
  // now and be missing later: MachineError. Then give_up.
  void begin();
  void end();
  void give_up();  // the stream runs what it is given again; throws nothing
  void launch();   // submits it

 private:
  cudaStream_t stream_;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace ff::cuda
