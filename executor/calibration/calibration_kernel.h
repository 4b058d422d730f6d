// Kernels that calibration measures, and that run during its measurements of messages.
#pragma once

#include <memory>

#include "common/graph.h"
#include "executor/program/buffer.h"

namespace ff {

class CalibrationKernel {
 public:
  // A product of `rows` (up to `side`) x `side` by `side` x `side`.
  static CalibrationKernel product(Backend& backend, int64_t rows, int64_t side = 1024);
  // A relu of one element: a kernel that has nothing to do.
  static CalibrationKernel least(Backend& backend);

  void submit();  // a GPU may still work on it
  void run();     // returns when it is done

 private:
  CalibrationKernel(Backend& backend, int64_t side, const std::string& operator_name, const Block& part);

  Backend& backend_;
  std::unique_ptr<Graph> graph_;
  Vector<Buffer> buffers_;
  std::unique_ptr<Kernel> kernel_;
  KernelArguments arguments_;
};

}  // namespace ff
