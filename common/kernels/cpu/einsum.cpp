#include "common/operators/einsum.h"

#include <algorithm>

#include "common/kernels/cpu/kernels.h"

namespace ff::cpu {
namespace {

// Products of so few multiplications take less time in a plain loop than in a call of sgemm, which takes 0.2 us.
constexpr int64_t small_product = 256;

FF_VECTORIZED void multiply_rows(const float* left, int64_t left_row, int64_t left_column, const float* right,
                                 int64_t right_row, int64_t right_column, int64_t m, int64_t n, int64_t k, bool add,
                                 float* result, int64_t result_row) {
  for (int64_t i = 0; i < m; ++i) {
    float* row = result + i * result_row;
    for (int64_t j = 0; j < (add ? 0 : n); ++j) row[j] = 0;
    for (int64_t l = 0; l < k; ++l) {
      const float factor = left[i * left_row + l * left_column];
      const float* values = right + l * right_row;
      if (right_column == 1)
        for (int64_t j = 0; j < n; ++j) row[j] += factor * values[j];
      else
        for (int64_t j = 0; j < n; ++j) row[j] += factor * values[j * right_column];
    }
  }
}

void sum_products(const MatrixProducts& by, const float* left, const float* right, bool add, float* result) {
  const MatrixOperand &a = by.left, &b = by.right, &c = by.result;
  const bool plain_loops = by.k == 1 || by.m * by.n * by.k <= small_product;
  for (int64_t p = 0; p < by.batch; ++p, left += a.batch_step, right += b.batch_step, result += c.batch_step)
    if (plain_loops)
      multiply_rows(left, a.transposed ? 1 : a.row_stride, a.transposed ? a.row_stride : 1, right,
                    b.transposed ? 1 : b.row_stride, b.transposed ? b.row_stride : 1, by.m, by.n, by.k, add, result,
                    c.row_stride);
    else
      multiply_matrices(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', by.m, by.n, by.k, left, a.row_stride, right,
                        b.row_stride, add ? 1 : 0, result, c.row_stride);
}

// Copies all elements of a tensor into another order, or adds them.
class Permutation {
 public:
  Permutation(const Context& context, const Vector<int64_t>& sizes, const Vector<int64_t>& from,
              const Vector<int64_t>& to, bool add) {
    const auto described = [&](const Vector<int64_t>& strides) {
      return dnnl::memory::desc(sizes, dnnl::memory::data_type::f32, strides);
    };
    dnnl::primitive_attr attributes = user_scratchpad();
    if (add) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const dnnl::reorder::primitive_desc descriptor(context.engine, described(from), context.engine, described(to),
                                                   attributes);
    reorder_ = Primitive::make<dnnl::reorder>(context, descriptor);
    reorder_.add(context, DNNL_ARG_FROM, described(from));
    reorder_.add(context, DNNL_ARG_TO, described(to));
  }
  void run(const Context& context, const float* from, float* to) {
    reorder_.run(context, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  }

 private:
  Primitive reorder_;
};

// One of the three tensors from the other two.
class Product {
 public:
  Product(const Context& context, const MatrixProducts& by) : context_(context), by_(by) {
    for (const MatrixOperand* operand : {&by_.first(), &by_.second()})
      if (operand->permuted())
        before_.emplace_back(context, operand->sizes, operand->stored_strides, operand->matrix_strides, false);
    if (by_.result.permuted())
      for (bool add : {false, true})
        after_.emplace_back(context, by_.result.sizes, by_.result.matrix_strides, by_.result.stored_strides, add);
  }

  // `scratch` has room for permuted_elements().
  void run(const void* first, const void* second, bool add, float* result, float* scratch) {
    int permuted = 0;
    const auto matrices = [&](const void* stored, const MatrixOperand& operand) {
      const float* tensor = static_cast<const float*>(stored);
      if (!operand.permuted()) return tensor;
      float* copy = scratch;
      before_[permuted++].run(context_, tensor, copy);
      scratch += operand.elements;
      return static_cast<const float*>(copy);
    };
    const float* of_first = matrices(first, by_.first());
    const float* of_second = matrices(second, by_.second());
    const float *left = by_.swapped ? of_second : of_first, *right = by_.swapped ? of_first : of_second;
    if (!by_.result.permuted()) return sum_products(by_, left, right, add, result);
    sum_products(by_, left, right, false, scratch);
    after_[add].run(context_, scratch, result);
  }

 private:
  const Context& context_;
  MatrixProducts by_;
  Vector<Permutation> before_;  // of the operands that do not fit
  Vector<Permutation> after_;   // of the result: copying, and adding
};

class EinsumKernel : public Kernel {
 public:
  EinsumKernel(const Context& context, const Einsum& einsum, const Block& part)
      : context_(context), has_parameter_(einsum.has_parameter()), first_(context, einsum.products(0, part)),
        second_(context, einsum.products(1, part)), output_(context, einsum.products(Einsum::output, part)),
        scratch_(static_cast<size_t>(einsum.workspace_bytes(part) / element_bytes)) {}

  void forward(const KernelArguments& arguments) override {
    context_.use_threads();
    output_.run(arguments.inputs[0], second(arguments), false, arguments.outputs[0], scratch_.data());
  }

  void backward(const KernelArguments& arguments) override {
    context_.use_threads();
    const float* gradient = arguments.output_gradients[0];
    if (float* result = arguments.input_gradients[0])
      first_.run(gradient, second(arguments), false, result, scratch_.data());
    if (has_parameter_) {
      if (float* result = arguments.parameter_gradients[0])  // not of a constant
        second_.run(arguments.inputs[0], gradient, arguments.accumulates(0), result, scratch_.data());
    } else if (float* result = arguments.input_gradients[1]) {
      second_.run(arguments.inputs[0], gradient, false, result, scratch_.data());
    }
  }

  int64_t workspace_bytes() const override { return static_cast<int64_t>(scratch_.size() * sizeof(float)); }

 private:
  const void* second(const KernelArguments& arguments) const {
    return has_parameter_ ? arguments.parameters[0] : arguments.inputs[1];
  }

  const Context& context_;
  bool has_parameter_;
  Product first_, second_, output_;  // by what they compute: gradients of the operands, and the output
  Vector<float> scratch_;            // permuted copies
};

}  // namespace

std::unique_ptr<Kernel> make_einsum_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<EinsumKernel>(context, dynamic_cast<const Einsum&>(request.definition), request.part);
}

}  // namespace ff::cpu
