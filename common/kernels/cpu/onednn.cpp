#include "common/kernels/cpu/onednn.h"

#include <omp.h>

#include "common/errors.h"

namespace ff::cpu {
namespace {

// Strides of a dense block, in elements, innermost axis last in `order`.
dnnl::memory::desc dense(const Shape& shape, const Vector<size_t>& order) {
  dnnl::memory::dims sizes(shape.begin(), shape.end()), strides(shape.size());
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = stride;
    stride *= shape[order[i]];
  }
  return {sizes, dnnl::memory::data_type::f32, strides};
}

}  // namespace

Context::Context(int threads_of_rank) : engine(dnnl::engine::kind::cpu, 0), stream(engine), threads(threads_of_rank) {}

void Context::use_threads() const {
  if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
}

void Context::reserve_scratch(int64_t bytes) const {
  if (bytes <= scratch_bytes_) return;
  scratch_ = {};  // before its successor is there
  scratch_ = dnnl::memory({{bytes}, dnnl::memory::data_type::u8, dnnl::memory::format_tag::a}, engine);
  scratch_bytes_ = bytes;
}

float* Context::scratch(int64_t offset_bytes) const {
  return static_cast<float*>(scratch_.get_data_handle()) + offset_bytes / static_cast<int64_t>(sizeof(float));
}

void Primitive::run(const Context& context, std::initializer_list<std::pair<int, const void*>> data) {
  try {
    for (const auto& [argument, pointer] : data) memories_.at(argument).set_data_handle(const_cast<void*>(pointer));
    primitive_.execute(context.stream, memories_);
    context.stream.wait();
  } catch (const dnnl::error& error) {
    throw MachineError(std::string("oneDNN: ") + error.what());
  }
}

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

dnnl::memory::desc storage(const Shape& shape) {
  return shape.size() == 4 ? dense(shape, {0, 2, 3, 1}) : row_major(shape);
}

dnnl::memory::desc row_major(const Shape& shape) {
  Vector<size_t> order(shape.size());
  for (size_t axis = 0; axis < order.size(); ++axis) order[axis] = axis;
  return dense(shape, order);
}

Reordered::Reordered(const Context& context, const dnnl::memory::desc& plain, const dnnl::memory::desc& wanted,
                     int64_t scratch_offset)
    : same_(plain == wanted), scratch_offset_(scratch_offset), outer_(plain, context.engine, DNNL_MEMORY_NONE) {
  inner_ = same_ || scratch_offset != own ? dnnl::memory(wanted, context.engine, DNNL_MEMORY_NONE)
                                          : dnnl::memory(wanted, context.engine);
  if (same_) return;
  if (scratch_offset != own) context.reserve_scratch(scratch_offset + static_cast<int64_t>(wanted.get_size()));
  to_inner_ = dnnl::reorder(dnnl::reorder::primitive_desc(context.engine, plain, context.engine, wanted));
  to_outer_ = dnnl::reorder(dnnl::reorder::primitive_desc(context.engine, wanted, context.engine, plain));
}

void Reordered::fill(const Context& context, const float* plain) {
  attach(context, const_cast<float*>(plain));
  if (same_) return;
  outer_.set_data_handle(const_cast<float*>(plain));
  to_inner_.execute(context.stream, outer_, inner_);
  context.stream.wait();
}

void Reordered::attach(const Context& context, float* plain) {
  if (same_) inner_.set_data_handle(plain);
  else if (scratch_offset_ != own) inner_.set_data_handle(context.scratch(scratch_offset_));
}

void Reordered::empty(const Context& context, float* plain) {
  if (same_) return;
  outer_.set_data_handle(plain);
  to_outer_.execute(context.stream, inner_, outer_);
  context.stream.wait();
}

}  // namespace ff::cpu
