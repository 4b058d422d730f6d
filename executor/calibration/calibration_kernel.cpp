#include "executor/calibration/calibration_kernel.h"

namespace ff {
namespace {

constexpr int64_t side = 1024;

}  // namespace

CalibrationKernel::CalibrationKernel(Backend& backend, const std::string& operator_name, const Block& part)
    : backend_(backend), graph_(std::make_unique<Graph>(parse_graph(parse_json(R"({"format": "ffgraph/1",
    "name": "calibration", "batch_size": 1024,
    "inputs": [{"name": "x", "shape": ["batch", 1024], "dtype": "f32"}, {"name": "one", "shape": ["batch", 1],
    "dtype": "f32"},
               {"name": "label", "shape": ["batch"], "dtype": "i32"}],
    "operators": [{"name": "product", "type": "linear", "inputs": ["x"],
    "attributes": {"out_features": 1024, "bias": false}},
                  {"name": "relu", "type": "relu", "inputs": ["one"]},
                  {"name": "loss", "type": "softmax_cross_entropy", "inputs": ["product", "label"]}]})",
                                                                               "calibration")))) {
  for (const Operator& op : graph_->operators) {
    if (op.name != operator_name) continue;
    for (int i = 0; i < 3; ++i) buffers_.push_back(allocate_buffer(backend, side * side, true));
    kernel_ = backend.make_kernel({*op.definition, part, {false}, op.name, 0});
    arguments_.inputs = {buffers_[0].get()};
    if (!op.parameters.empty()) arguments_.parameters = {buffers_[1].get()};
    arguments_.outputs = {buffers_[2].get()};
  }
}

CalibrationKernel CalibrationKernel::product(Backend& backend, int64_t rows) {
  return {backend, "product", Block{{0, rows}, {0, side}}};
}

CalibrationKernel CalibrationKernel::least(Backend& backend) { return {backend, "relu", Block{{0, 1}, {0, 1}}}; }

void CalibrationKernel::run() {
  kernel_->forward(arguments_);
  backend_.wait();
}

}  // namespace ff
