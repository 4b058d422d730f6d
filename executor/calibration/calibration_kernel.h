// Kernels that calibration measures, and that run during its measurements of messages.
#pragma once

#include <memory>

#include "common/graph.h"
#include "executor/buffer.h"

namespace ff {

class CalibrationKernel {
 public:
  // A product of `rows` (up to 1024) x 1024 by 1024 x 1024.
  static CalibrationKernel product(Backend& backend, int64_t rows);
  // A relu of one element: a kernel that has nothing to do.
  static CalibrationKernel least(Backend& backend);

  void run();  // returns when it is done

 private:
  CalibrationKernel(Backend& backend, const std::string& operator_name, const Block& part);

  Backend& backend_;
  std::unique_ptr<Graph> graph_;
  Vector<Buffer> buffers_;
  std::unique_ptr<Kernel> kernel_;
  KernelArguments arguments_;
};

}  // namespace ff
