// A compute backend: the kernels and the memory of one kind of device. The executor runs tasks with it and ffsearch
// times the same kernels with it. Calls are submitted in order; `wait` returns when all are complete (on the CPU they
// complete at once).
//
// Storage. A block of a tensor is stored dense. Rank 4 [sample, channel, height, width] is stored channels-last: the
// order in memory is sample, height, width, channel (oneDNN's nhwc, within 3 % of its private layouts and sliced along
// any axis without them). All other ranks, and all parameters, are row-major.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/operators/operator.h"
#include "common/optimizer.h"
#include "common/vector.h"

namespace ff {

// The statistics phases are those of parts with statistics (OperatorDefinition::statistics_bytes) alone.
enum class Phase : uint8_t { forward_statistics, forward, backward_statistics, backward };
constexpr int phase_count = 4;

// What one task's kernel works on. Pointers are to dense blocks in the backend's memory; an empty block's pointer may
// be null. Kernels of backends compute with f32; what make_typed_kernel (converted_kernel.h) returns takes activations,
// their gradients and parameters of the types that the operator's definition says, after the same pointers.
// Vectors are as long as the definition's inputs, parameters or outputs, or empty where the phase does not use them.
struct KernelArguments {
  Vector<const void*> inputs;       // input_block(i, part); f32 or i32
  Vector<const float*> parameters;  // parameter_block(p, part)
  // Like parameters: is it f32 although the definition says bf16? It is rounded then. Empty: none is.
  Vector<uint8_t> masters;
  Vector<float*> outputs;  // output_block(o, part); forward writes all of it, backward may read it
  // backward only:
  Vector<const float*> output_gradients;  // like outputs; empty for a loss operator
  // like inputs; every element is overwritten; null where no gradient is wanted
  Vector<float*> input_gradients;
  Vector<float*> parameter_gradients;  // like parameters; every element is overwritten, or added to:
  Vector<uint8_t> accumulate;          // like parameters: is it added to? Empty: none is.
  // Where there are statistics: the statistics phases write the part's own (statistics_bytes), the others read what is
  // common to a group of parts: the sum of their own, or, gathered, the own ones of so many parts, one after the
  // other. Backward's differ from forward's.
  float* statistics = nullptr;
  int statistics_slots = 1;
  // Like parameters: those that are not trained, to be updated by update_state; null for the others. Or empty.
  Vector<float*> states;
  int64_t iteration = 0;  // dropout draws a new mask each iteration
  // false: evaluation (dropout is the identity, batch_norm normalizes by its running statistics)
  bool training = true;

  bool accumulates(size_t parameter) const { return !accumulate.empty() && accumulate[parameter]; }
};

// One task's kernel. Whatever forward must keep for backward beyond the arguments lies in the kernel (counted by
// workspace_bytes).
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void forward(const KernelArguments& arguments) = 0;
  virtual void backward(const KernelArguments& arguments) = 0;
  virtual void forward_statistics(const KernelArguments&) {}
  virtual void backward_statistics(const KernelArguments&) {}
  // After forward in training, once a device and iteration for all parts with the same states: moves them towards the
  // batch's statistics.
  virtual void update_state(const KernelArguments&) {}
  virtual int64_t workspace_bytes() const { return 0; }
  // The next calls are for this part, which differs from that of the request along the samples alone, and in its place
  // there, not its size, of this operator, which is that of the request or one with the same function
  // (task_graph/shared_kernels.h). To be called when no forward waits for its backward.
  virtual void set_part(const Block& /*part*/, const std::string& /*operator_name*/) {}
};

struct KernelRequest {
  const OperatorDefinition& definition;
  Block part;
  Vector<bool> input_gradients;  // by input: will backward be asked for it?
  std::string operator_name;     // with the seed and the iteration: the stream of random numbers
  uint64_t seed = 0;
};

// Of the elements that are updated; null: the optimizer has no such state.
struct OptimizerStates {
  float *first = nullptr, *second = nullptr;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;  // "cpu", "cuda"

  virtual std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) = 0;

  // 64-byte aligned, not initialized; throws MachineError when memory runs out
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* memory) = 0;

  // Elements of `region` from a buffer that holds block `source_block` to one that holds `destination_block` (both
  // contain the region). add_block adds instead of overwriting: in f32, and of bf16 each sum is rounded.
  virtual void copy_block(const void* source, const Block& source_block, void* destination,
                          const Block& destination_block, const Block& region, DataType type = DataType::f32) = 0;
  virtual void add_block(const void* source, const Block& source_block, void* destination,
                         const Block& destination_block, const Block& region, DataType type = DataType::f32) = 0;
  // From f32 to bf16, rounded to nearest, ties to even, or from bf16 to f32.
  virtual void convert(const void* source, DataType from, void* destination, DataType to, int64_t elements) = 0;
  // The nearest bf16 of each, as f32.
  virtual void round_to_bf16(const float* source, float* destination, int64_t elements) = 0;
  virtual void fill_zero(void* memory, int64_t bytes) = 0;
  virtual void add(const float* source, float* destination, int64_t elements) = 0;

  // Between host memory in row-major order and the backend's storage, for a whole buffer of this shape (activations and
  // inputs).
  virtual void store_from_host(const void* host, void* memory, const Shape& shape) = 0;
  virtual void load_to_host(const void* memory, void* host, const Shape& shape) = 0;
  // Many small ones at once: the host has the values after finish_loads.
  virtual void begin_load_to_host(const void* memory, void* host, const Shape& shape) {
    load_to_host(memory, host, shape);
  }
  virtual void finish_loads() {}

  // One step of the optimizer.
  //   SGD, torch.optim.SGD without dampening: g += weight_decay * parameter; velocity = momentum * velocity + g;
  //   parameter -= learning_rate * velocity. states[0]: the velocity, null without momentum.
  //   Adam: g += weight_decay * parameter; AdamW: parameter *= 1 - learning_rate * weight_decay. Then m = beta1 * m +
  //   (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g^2; parameter -= step_size * m / (sqrt(v) / second_moment_root +
  //   epsilon). states: m and v.
  virtual void update(float* parameter, const float* gradient, OptimizerStates states, int64_t elements,
                      const OptimizerStep& step) = 0;
  // For the clipping of gradients: in double precision, waits for what was submitted; and values *= factor.
  virtual double sum_of_squares(const float* values, int64_t elements) = 0;
  virtual void scale(float* values, int64_t elements, float factor) = 0;

  // On the CPU what was submitted is complete already. A GPU's kernels report indices out of range (InputError) here.
  virtual void wait() = 0;

  // Memory that kernels share while they run, in addition to each kernel's workspace_bytes.
  virtual int64_t shared_workspace_bytes() const { return 0; }

  // How long does what is submitted between the two take? By the device's own clock, without the time that submitting
  // takes where that runs ahead of the device. The second call waits.
  virtual void start_stopwatch() { started_ = std::chrono::steady_clock::now(); }
  virtual double stop_stopwatch_us() {
    wait();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - started_).count();
  }
  // How long does one of `count` submissions take where they follow each other, as in an iteration? So many samples of
  // it. `submit(i)` submits the i-th, and is called for each sample or, by a GPU, once: that records a CUDA graph.
  virtual Vector<double> times_in_row_us(int count, int samples, const std::function<void(int)>& submit) {
    Vector<double> times;
    for (int sample = 0; sample < samples; ++sample) {
      start_stopwatch();
      for (int i = 0; i < count; ++i) submit(i);
      times.push_back(stop_stopwatch_us() / count);
    }
    return times;
  }

 private:
  std::chrono::steady_clock::time_point started_;
};

// One thread by default; `threads` is the device model's cores.
std::unique_ptr<Backend> make_cpu_backend(int threads = 1);
// Version of oneDNN, "2.6.3".
std::string cpu_library_version();

}  // namespace ff
