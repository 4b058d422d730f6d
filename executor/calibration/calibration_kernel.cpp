#include "executor/calibration/calibration_kernel.h"

namespace ff {
namespace {

std::string graph_text(int64_t side) {
  const std::string n = std::to_string(side);
  return R"({"format": "ffgraph/1", "name": "calibration", "batch_size": )" + n + R"(,
    "inputs": [{"name": "x", "shape": ["batch", )" +
         n + R"(], "dtype": "f32"},
               {"name": "one", "shape": ["batch", 1], "dtype": "f32"},
               {"name": "label", "shape": ["batch"], "dtype": "i32"}],
    "operators": [{"name": "product", "type": "linear", "inputs": ["x"],
                   "attributes": {"out_features": )" +
         n + R"(, "bias": false}},
                  {"name": "relu", "type": "relu", "inputs": ["one"]},
                  {"name": "loss", "type": "softmax_cross_entropy", "inputs": ["product", "label"]}]})";
}

}  // namespace

CalibrationKernel::CalibrationKernel(Backend& backend, int64_t side, const std::string& operator_name,
                                     const Block& part)
    : backend_(backend), graph_(std::make_unique<Graph>(parse_graph(parse_json(graph_text(side), "calibration")))) {
  for (const Operator& op : graph_->operators) {
    if (op.name != operator_name) continue;
    for (int i = 0; i < 3; ++i) buffers_.push_back(allocate_buffer(backend, side * side, true));
    kernel_ = backend.make_kernel({*op.definition, part, {false}, op.name, 0});
    arguments_.inputs = {buffers_[0].get()};
    if (!op.parameters.empty()) arguments_.parameters = {buffers_[1].get()};
    arguments_.outputs = {buffers_[2].get()};
  }
}

CalibrationKernel CalibrationKernel::product(Backend& backend, int64_t rows, int64_t side) {
  return {backend, side, "product", Block{{0, rows}, {0, side}}};
}

CalibrationKernel CalibrationKernel::least(Backend& backend) { return {backend, 16, "relu", Block{{0, 1}, {0, 1}}}; }

void CalibrationKernel::submit() { kernel_->forward(arguments_); }

void CalibrationKernel::run() {
  submit();
  backend_.wait();
}

}  // namespace ff
