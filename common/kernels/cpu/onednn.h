// The one place that knows oneDNN (version 2): an engine and a stream a backend, primitives with their memories,
// errors.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <utility>

#include "common/block.h"
#include "common/vector.h"

namespace ff::cpu {

// Engine, stream and thread count that the kernels of one backend share.
struct Context {
  explicit Context(int threads);

  // OpenMP's thread count belongs to the calling thread, and a backend may be made in one thread and used in another:
  // every kernel calls this.
  void use_threads() const;

  // Memory that the backend's kernels use in turn, each within one call: as much as the kernel needs that needs most
  // (OperatorDefinition::shared_workspace_bytes). It may move when a kernel is made.
  void reserve_scratch(int64_t bytes) const;
  float* scratch(int64_t offset_bytes = 0) const;
  int64_t scratch_bytes() const { return scratch_bytes_; }

  dnnl::engine engine;
  mutable dnnl::stream stream;
  int threads;

 private:
  mutable dnnl::memory scratch_;
  mutable int64_t scratch_bytes_ = 0;
};

// A primitive with the memories of its arguments. Memories made by `bind` own a buffer; those made by `argument` get a
// pointer each run.
class Primitive {
 public:
  Primitive() = default;
  // `descriptor` is a primitive_desc created with user_scratchpad(); its scratchpad is allocated here, once.
  template <class Operation, class Descriptor>
  static Primitive make(const Context& context, const Descriptor& descriptor) {
    Primitive primitive;
    primitive.primitive_ = Operation(descriptor);
    primitive.add(DNNL_ARG_SCRATCHPAD, dnnl::memory(descriptor.scratchpad_desc(), context.engine));
    return primitive;
  }

  void add(int argument, const dnnl::memory& memory) { memories_.emplace(argument, memory); }
  // An argument whose data comes with each run.
  void add(const Context& context, int argument, const dnnl::memory::desc& descriptor) {
    memories_.emplace(argument, dnnl::memory(descriptor, context.engine, DNNL_MEMORY_NONE));
  }
  void run(const Context& context, std::initializer_list<std::pair<int, const void*>> data);
  explicit operator bool() const { return static_cast<bool>(primitive_); }

 private:
  dnnl::primitive primitive_;
  std::unordered_map<int, dnnl::memory> memories_;
};

dnnl::primitive_attr user_scratchpad();

// Storage of a block of this shape: channels-last for rank 4, else row-major (see backend.h).
dnnl::memory::desc storage(const Shape& shape);
dnnl::memory::desc row_major(const Shape& shape);

// A memory in `wanted` layout that is filled from, or emptied into, a plain buffer: its own, or in the context's
// scratch memory, at an offset. Without cost where the layouts agree.
class Reordered {
 public:
  static constexpr int64_t own = -1;

  Reordered() = default;
  Reordered(const Context& context, const dnnl::memory::desc& plain, const dnnl::memory::desc& wanted,
            int64_t scratch_offset = own);
  const dnnl::memory& memory() const { return inner_; }
  void fill(const Context& context, const float* plain);  // before the primitive runs
  // Where the primitive writes: before and after it runs.
  void attach(const Context& context, float* plain);
  void empty(const Context& context, float* plain);

 private:
  bool same_ = true;
  int64_t scratch_offset_ = own;
  dnnl::memory outer_, inner_;
  dnnl::reorder to_inner_, to_outer_;
};

}  // namespace ff::cpu
