#include "common/kernels/cpu/bf16_products.h"

#include <string>
#include <string_view>

#include "common/errors.h"

namespace ff::cpu {
namespace {

dnnl::memory::data_type type_of(const Bf16Matrix& matrix) {
  return matrix.is_f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

dnnl::memory::desc described(const Bf16Matrix& matrix, int64_t batch, int64_t rows, int64_t columns) {
  const int64_t row = matrix.transposed ? 1 : matrix.row_stride, column = matrix.transposed ? matrix.row_stride : 1;
  if (batch == 1) return {{rows, columns}, type_of(matrix), {row, column}};
  return {{batch, rows, columns}, type_of(matrix), {matrix.batch_step, row, column}};
}

}  // namespace

bool has_bf16_products() {
  const auto has = static_cast<unsigned>(dnnl::get_effective_cpu_isa()),
             wanted = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return (has & wanted) == wanted;
}

Bf16Product::Bf16Product(const Context& context, const Bf16ProductShape& shape) : bias_(shape.bias) {
  using dnnl::memory;
  const memory::desc left = described(shape.left, shape.batch, shape.m, shape.k),
                     right = described(shape.right, shape.batch, shape.k, shape.n),
                     result = described(shape.result, shape.batch, shape.m, shape.n);
  const memory::desc bias =
      shape.bias ? memory::desc({1, shape.n}, memory::data_type::bf16, memory::dims{shape.n, 1}) : memory::desc();
  dnnl::primitive_attr attributes = user_scratchpad();
  if (shape.scale != 1) attributes.set_output_scales(0, {shape.scale});
  dnnl::post_ops after;
  if (shape.add) after.append_sum(1.0f);
  if (shape.relu) after.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0, 0);
  attributes.set_post_ops(after);
  const dnnl::matmul::primitive_desc descriptor({left, right, bias, result}, attributes, context.engine);
  fast_ = std::string_view(descriptor.impl_info_str()).starts_with("brg");
  if (!fast_) return;
  scratchpad_bytes_ = static_cast<int64_t>(descriptor.scratchpad_desc().get_size());
  primitive_ = dnnl::matmul(descriptor);
  const auto add = [&](int argument, const memory::desc& of) {
    memories_.emplace(argument, memory(of, context.engine, DNNL_MEMORY_NONE));
  };
  add(DNNL_ARG_SCRATCHPAD, descriptor.scratchpad_desc());
  add(DNNL_ARG_SRC, left);
  add(DNNL_ARG_WEIGHTS, right);
  if (shape.bias) add(DNNL_ARG_BIAS, bias);
  add(DNNL_ARG_DST, result);
}

void Bf16Product::run(const Context& context, const void* left, const void* right, const void* bias, void* result,
                      Scratch scratch) {
  void* scratchpad = scratchpad_bytes_ > 0 ? scratch.take(scratchpad_bytes_) : nullptr;
  if (!scratchpad && scratchpad_bytes_ > 0) {
    if (!own_scratchpad_)
      own_scratchpad_ =
          dnnl::memory({{scratchpad_bytes_}, dnnl::memory::data_type::u8, dnnl::memory::format_tag::a}, context.engine);
    scratchpad = own_scratchpad_.get_data_handle();
  }
  const auto set = [&](int argument, const void* data) {
    memories_.at(argument).set_data_handle(const_cast<void*>(data));
  };
  try {
    set(DNNL_ARG_SCRATCHPAD, scratchpad);
    set(DNNL_ARG_SRC, left);
    set(DNNL_ARG_WEIGHTS, right);
    if (bias_) set(DNNL_ARG_BIAS, bias);
    set(DNNL_ARG_DST, result);
    primitive_.execute(context.stream, memories_);
    context.stream.wait();
  } catch (const dnnl::error& error) {
    throw MachineError(std::string("oneDNN: ") + error.what());
  }
}

}  // namespace ff::cpu
