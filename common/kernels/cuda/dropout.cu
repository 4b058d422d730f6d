#include "common/operators/dropout.h"

#include "common/kernels/cuda/bf16_kernel.h"
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/kernels.h"
#include "common/kernels/cuda/packs.cuh"
#include "common/philox.h"

namespace ff::cuda {
namespace {

// Where the elements of a block, in storage order, lie in the whole row-major tensor: loops, the innermost one last.
struct WholeIndex {
  int depth = 0;
  int64_t sizes[Block::max_rank] = {}, strides[Block::max_rank] = {};
  int64_t offset = 0;

  // `in_loop`: the elements from this one on to the end of the innermost loop.
  __device__ uint64_t index_of(int64_t element, int64_t& in_loop) const {
    uint64_t index = static_cast<uint64_t>(offset);
    in_loop = 1;
    for (int axis = depth - 1; axis >= 0; --axis) {
      const int64_t next = axis > 0 ? element / sizes[axis] : 0, at = element - next * sizes[axis];
      if (axis == depth - 1) in_loop = sizes[axis] - at;
      index += static_cast<uint64_t>(at * strides[axis]);
      element = next;
    }
    return index;
  }
};

WholeIndex whole_index(const Shape& shape, const Block& part) {
  const int rank = part.rank();
  int64_t strides[Block::max_rank], stride = 1;
  WholeIndex index;
  for (int axis = rank - 1; axis >= 0; --axis) {
    strides[axis] = stride;
    index.offset += part[axis].begin * stride;
    stride *= shape[axis];
  }
  for (int i = 0; i < rank; ++i) {
    const int axis = stored_axis(rank, i), last = index.depth - 1;
    // goes on where the inner loop ends: one loop
    if (last >= 0 && index.strides[last] == strides[axis] * part[axis].size()) {
      index.sizes[last] *= part[axis].size();
      index.strides[last] = strides[axis];
      continue;
    }
    index.sizes[index.depth] = part[axis].size();
    index.strides[index.depth++] = strides[axis];
  }
  return index;
}

__device__ inline float drop_or_scale(float value, uint32_t bits, float rate, float kept) {
  return uniform_float(bits) >= rate ? value * kept : 0.0f;
}

// destination = source * (0 or 1 / (1 - rate)), drawn as in common/philox.h, of elements that are neighbours in the
// whole tensor: a thread does those of a counter, which are a pack.
template <class Element>
void drop_packs(const Context& context, int64_t first_counter, uint64_t stream, int64_t iteration, float rate,
                int64_t elements, const Element* source, Element* destination) {
  const float kept = 1.0f / (1.0f - rate);
  const int64_t* iteration_memory = context.iteration_memory();
  for_each_index(context, (elements + pack_size - 1) / pack_size, [=] __device__(int64_t number) {
    const int64_t first = number * pack_size, rest = elements - first;
    Pack<float, pack_size> values{};
    if (rest >= pack_size) values = load_values<pack_size>(source + first);
    const uint64_t draw = static_cast<uint64_t>(iteration_memory ? *iteration_memory : iteration);
    const Array<uint32_t, 4> bits = philox(stream, static_cast<uint64_t>(first_counter + number), draw);
    if (rest >= pack_size) {
#pragma unroll
      for (int j = 0; j < pack_size; ++j) values.of[j] = drop_or_scale(values.of[j], bits[j], rate, kept);
      store_values(destination + first, values);
    } else {
#pragma unroll
      for (int j = 0; j < pack_size; ++j)
        if (j < rest) set(destination[first + j], drop_or_scale(value_of(source[first + j]), bits[j], rate, kept));
    }
  });
}

// Of any part: a thread does four neighbours in memory, which mostly share one counter.
template <class Element>
void drop(const Context& context, const WholeIndex& whole, uint64_t stream, int64_t iteration, float rate,
          int64_t elements, const Element* source, Element* destination) {
  if (whole.depth == 1 && whole.strides[0] == 1 && whole.offset % pack_size == 0 && elements_before_pack(source) == 0 &&
      elements_before_pack(destination) == 0)
    return drop_packs(context, whole.offset / pack_size, stream, iteration, rate, elements, source, destination);
  const float kept = 1.0f / (1.0f - rate);
  const int64_t* iteration_memory = context.iteration_memory();
  for_each_index(context, (elements + 3) / 4, [=] __device__(int64_t four) {
    const uint64_t draw = static_cast<uint64_t>(iteration_memory ? *iteration_memory : iteration);
    const int64_t first = four * 4;
    float values[4];  // all read before the first one is written
#pragma unroll
    for (int j = 0; j < 4; ++j) values[j] = first + j < elements ? value_of(source[first + j]) : 0.0f;
    uint64_t index = 0, drawn_counter = ~uint64_t{0};
    Array<uint32_t, 4> bits{};
    int64_t in_loop = 0;  // elements before the innermost loop ends, up to which the index goes on without divisions
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (first + j >= elements) break;
      if (in_loop > 0) index += static_cast<uint64_t>(whole.strides[whole.depth - 1]);
      else index = whole.index_of(first + j, in_loop);
      --in_loop;
      if (index / 4 != drawn_counter) {
        drawn_counter = index / 4;
        bits = philox(stream, drawn_counter, draw);
      }
      const uint32_t lane = static_cast<uint32_t>(index % 4);
      const uint32_t word = lane == 0 ? bits[0] : lane == 1 ? bits[1] : lane == 2 ? bits[2] : bits[3];
      set(destination[first + j], drop_or_scale(values[j], word, rate, kept));
    }
  });
}

// The mask is drawn again backward: that costs less than to store and read it.
template <class Element>
class DropoutKernel : public Kernel {
 public:
  DropoutKernel(const Context& context, const Dropout& definition, const KernelRequest& request)
      : context_(context), rate_(static_cast<float>(definition.rate)), seed_(request.seed),
        stream_(random_stream(seed_, request.operator_name)), shape_(definition.outputs()[0].shape),
        whole_(whole_index(shape_, request.part)), elements_(request.part.volume()) {}

  void forward(const KernelArguments& arguments) override {
    const auto* const input = static_cast<const Element*>(arguments.inputs[0]);
    auto* const output = reinterpret_cast<Element*>(arguments.outputs[0]);
    if (arguments.training) drop(context_, whole_, stream_, arguments.iteration, rate_, elements_, input, output);
    else copy_bytes(context_, input, output, elements_ * static_cast<int64_t>(sizeof(Element)));
  }
  void backward(const KernelArguments& arguments) override {
    if (arguments.input_gradients[0])
      drop(context_, whole_, stream_, arguments.iteration, rate_, elements_,
           reinterpret_cast<const Element*>(arguments.output_gradients[0]),
           reinterpret_cast<Element*>(arguments.input_gradients[0]));
  }
  void set_part(const Block& part, const std::string& operator_name) override {
    whole_ = whole_index(shape_, part);
    stream_ = random_stream(seed_, operator_name);
  }

 private:
  const Context& context_;
  float rate_;
  uint64_t seed_, stream_;
  Shape shape_;
  WholeIndex whole_;
  int64_t elements_;
};

}  // namespace

std::unique_ptr<Kernel> make_dropout_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<DropoutKernel<float>>(context, dynamic_cast<const Dropout&>(request.definition), request);
}

std::unique_ptr<Kernel> make_dropout_bf16_kernel(const Context& context, const KernelRequest& request) {
  const auto* const definition = dynamic_cast<const Dropout*>(&request.definition);
  return definition ? std::make_unique<DropoutKernel<Bf16>>(context, *definition, request) : nullptr;
}

}  // namespace ff::cuda
