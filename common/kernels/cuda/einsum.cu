#include "common/operators/einsum.h"

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/kernels.h"

namespace ff::cuda {
namespace {

struct Strides {
  int64_t row, column, step;
};

Strides strides_of(const MatrixOperand& operand) {
  return {operand.transposed ? 1 : operand.row_stride, operand.transposed ? operand.row_stride : 1, operand.batch_step};
}

// Products that sum over nothing: no work for cuBLAS.
void multiply_elements(const Context& context, const MatrixProducts& by, const float* left, const float* right,
                       bool add, float* result) {
  const Strides a = strides_of(by.left), b = strides_of(by.right), c = strides_of(by.result);
  const int64_t m = by.m, n = by.n;
  for_each_index(context, by.batch * m * n, [=] __device__(int64_t index) {
    const int64_t rows = index / n, column = index - rows * n, p = rows / m, row = rows - p * m;
    const float product = left[p * a.step + row * a.row] * right[p * b.step + column * b.column];
    float& value = result[p * c.step + row * c.row + column];
    value = add ? value + product : product;
  });
}

void multiply(const Context& context, const MatrixProducts& by, const float* left, const float* right, bool add,
              float* result) {
  if (by.k == 1) return multiply_elements(context, by, left, right, add, result);
  multiply_matrices(context, {by.batch, by.left.batch_step, by.right.batch_step, by.result.batch_step},
                    by.left.transposed ? 'T' : 'N', by.right.transposed ? 'T' : 'N', by.m, by.n, by.k, left,
                    by.left.row_stride, right, by.right.row_stride, add ? 1 : 0, result, by.result.row_stride);
}

StridedLoops loops(const MatrixOperand& operand, const Vector<int64_t>& from, const Vector<int64_t>& to) {
  StridedLoops loops;
  loops.depth = operand.sizes.count();
  for (int axis = 0; axis < loops.depth; ++axis) {
    loops.sizes[axis] = operand.sizes[axis];
    loops.from[axis] = from[axis];
    loops.to[axis] = to[axis];
  }
  return loops;
}

class EinsumKernel : public Kernel {
 public:
  EinsumKernel(const Context& context, const Einsum& einsum, const Block& part)
      : context_(context), has_parameter_(einsum.has_parameter()), first_(einsum.products(0, part)),
        second_(einsum.products(1, part)), output_(einsum.products(Einsum::output, part)),
        scratch_(context, einsum.workspace_bytes(part) / element_bytes) {}

  void forward(const KernelArguments& arguments) override {
    run(output_, arguments.inputs[0], second(arguments), false, arguments.outputs[0]);
  }

  void backward(const KernelArguments& arguments) override {
    const float* gradient = arguments.output_gradients[0];
    if (float* result = arguments.input_gradients[0]) run(first_, gradient, second(arguments), false, result);
    if (has_parameter_) {
      if (float* result = arguments.parameter_gradients[0])  // not of a constant
        run(second_, arguments.inputs[0], gradient, arguments.accumulates(0), result);
    } else if (float* result = arguments.input_gradients[1]) {
      run(second_, arguments.inputs[0], gradient, false, result);
    }
  }

  int64_t workspace_bytes() const override { return scratch_.bytes(); }

 private:
  const void* second(const KernelArguments& arguments) const {
    return has_parameter_ ? arguments.parameters[0] : arguments.inputs[1];
  }

  void run(const MatrixProducts& by, const void* first, const void* second, bool add, float* result) const {
    float* scratch = scratch_.data();
    const auto matrices = [&](const void* stored, const MatrixOperand& operand) {
      const float* tensor = static_cast<const float*>(stored);
      if (!operand.permuted()) return tensor;
      float* copy = scratch;
      copy_strided(context_, loops(operand, operand.stored_strides, operand.matrix_strides), tensor, copy);
      scratch += operand.elements;
      return static_cast<const float*>(copy);
    };
    const float* of_first = matrices(first, by.first());
    const float* of_second = matrices(second, by.second());
    const float *left = by.swapped ? of_second : of_first, *right = by.swapped ? of_first : of_second;
    if (!by.result.permuted()) return multiply(context_, by, left, right, add, result);
    multiply(context_, by, left, right, false, scratch);
    const StridedLoops back = loops(by.result, by.result.matrix_strides, by.result.stored_strides);
    if (add) add_strided(context_, back, scratch, result);
    else copy_strided(context_, back, scratch, result);
  }

  const Context& context_;
  bool has_parameter_;
  MatrixProducts first_, second_, output_;  // by what they compute: gradients of the operands, and the output
  Memory<float> scratch_;                   // permuted copies
};

}  // namespace

std::unique_ptr<Kernel> make_einsum_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<EinsumKernel>(context, dynamic_cast<const Einsum&>(request.definition), request.part);
}

}  // namespace ff::cuda
