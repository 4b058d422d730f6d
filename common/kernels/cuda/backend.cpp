#include <cstring>
#include <stdexcept>
#include <utility>

#include "common/errors.h"
#include "common/kernels/cuda/bf16_kernel.h"
#include "common/kernels/cuda/kernels.h"
#include "common/kernels/cuda/recorded_graph.h"

namespace ff {
namespace {

constexpr OperatorFunction<std::unique_ptr<Kernel>(const cuda::Context&, const KernelRequest&)> factories[] = {
#define FF_ROW(type, name) {#type, cuda::make_##name##_kernel},
    FF_OPERATORS(FF_ROW)
#undef FF_ROW
};

// A kernel on its device, whichever device the calling thread used before. A launch that fails says so at once.
class KernelOnDevice : public Kernel {
 public:
  KernelOnDevice(const cuda::Context& context, std::unique_ptr<Kernel> kernel)
      : context_(context), kernel_(std::move(kernel)) {}

  void forward(const KernelArguments& arguments) override { run(&Kernel::forward, arguments); }
  void backward(const KernelArguments& arguments) override { run(&Kernel::backward, arguments); }
  void forward_statistics(const KernelArguments& arguments) override { run(&Kernel::forward_statistics, arguments); }
  void backward_statistics(const KernelArguments& arguments) override { run(&Kernel::backward_statistics, arguments); }
  void update_state(const KernelArguments& arguments) override { run(&Kernel::update_state, arguments); }
  int64_t workspace_bytes() const override { return kernel_->workspace_bytes(); }
  void set_part(const Block& part, const std::string& operator_name) override {
    kernel_->set_part(part, operator_name);
  }

 private:
  void run(void (Kernel::*phase)(const KernelArguments&), const KernelArguments& arguments) {
    context_.use();
    ((*kernel_).*phase)(arguments);
    FF_CHECK(cudaGetLastError());
  }

  const cuda::Context& context_;
  std::unique_ptr<Kernel> kernel_;
};

// So long the stream is kept busy before a measured kernel, so that all of its launches are submitted when the clock
// starts to run, as in a captured graph.
constexpr int64_t submission_ns = 150'000;

// SGD with momentum moves 20 bytes per element: these take 25 us on an H100, and the launch 1.5.
constexpr int64_t update_elements = int64_t{4} << 20;

class DeviceBackend : public CudaBackend, public BatchedUpdates, public Bf16Kernels {
 public:
  DeviceBackend(int device, Precision precision) : context_(device, precision) {
    FF_CHECK(cudaEventCreate(&begin_));
    FF_CHECK(cudaEventCreate(&end_));
  }
  ~DeviceBackend() override {
    cudaSetDevice(context_.device);
    cudaStreamSynchronize(context_.stream);
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    if (pinned_) cudaFreeHost(pinned_);
  }

  std::string name() const override { return "cuda"; }
  int device() const override { return context_.device; }
  Precision precision() const override { return context_.precision; }
  void* stream() const override { return context_.stream; }
  void use_device() const override { context_.use(); }

  std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) override {
    context_.use();
    const auto make = function_of(request.definition.type(), factories);
    try {
      return std::make_unique<KernelOnDevice>(context_, make(context_, request));
    } catch (const MachineError& error) {
      throw MachineError(std::string(error.what()) + " (kernel \"" + request.definition.signature(request.part) +
                         "\")");
    }
  }
  std::unique_ptr<Kernel> make_bf16_kernel(const KernelRequest& request, void* scratch) override {
    context_.use();
    auto kernel = cuda::make_bf16_kernel(context_, request, scratch);
    if (!kernel) return nullptr;
    return std::make_unique<KernelOnDevice>(context_, std::move(kernel));
  }
  std::string native_operators() const override { return cuda::native_bf16_operators(context_); }
  int64_t shared_workspace_bytes() const override { return context_.scratch_bytes(); }

  void* allocate(int64_t bytes) override {
    context_.use();
    void* memory = nullptr;
    // aligned to 256 bytes
    const cudaError_t status = cudaMalloc(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 64)));
    if (status == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();  // or it would be found by the next check
      throw MachineError("out of memory on GPU " + std::to_string(context_.device) + ": cannot allocate " +
                         std::to_string(bytes) + " bytes");
    }
    cuda::check(status, "cudaMalloc");
    return memory;
  }
  // Called by destructors, also after a failure after which every call fails: it throws nothing. cudaFree waits for
  // the work that uses the memory; its errors are reported by `wait`.
  void release(void* memory) override {
    cudaSetDevice(context_.device);
    cudaFree(memory);
  }

  void copy_block(const void* source, const Block& source_block, void* destination, const Block& destination_block,
                  const Block& region, DataType type) override {
    context_.use();
    if (type == DataType::bf16)
      cuda::copy_block_bf16(context_, source, source_block, destination, destination_block, region);
    else cuda::copy_block(context_, source, source_block, destination, destination_block, region);
    FF_CHECK(cudaGetLastError());
  }
  void add_block(const void* source, const Block& source_block, void* destination, const Block& destination_block,
                 const Block& region, DataType type) override {
    context_.use();
    if (type == DataType::bf16)
      cuda::add_block_bf16(context_, source, source_block, destination, destination_block, region);
    else
      cuda::add_block(context_, static_cast<const float*>(source), source_block, static_cast<float*>(destination),
                      destination_block, region);
    FF_CHECK(cudaGetLastError());
  }
  void convert(const void* source, DataType from, void* destination, DataType to, int64_t elements) override {
    context_.use();
    if (from == DataType::bf16 && to == DataType::f32)
      cuda::widen(context_, static_cast<const uint16_t*>(source), static_cast<float*>(destination), elements);
    else if (from == DataType::f32 && to == DataType::bf16)
      cuda::narrow(context_, static_cast<const float*>(source), static_cast<uint16_t*>(destination), elements);
    else throw std::logic_error("conversion between types other than f32 and bf16");
    FF_CHECK(cudaGetLastError());
  }
  void round_to_bf16(const float* source, float* destination, int64_t elements) override {
    context_.use();
    cuda::round_to_bf16(context_, source, destination, elements);
    FF_CHECK(cudaGetLastError());
  }
  void fill_zero(void* memory, int64_t bytes) override {
    context_.use();
    cuda::fill_zero(context_, memory, bytes);
  }
  void add(const float* source, float* destination, int64_t elements) override {
    context_.use();
    cuda::add_to(context_, source, destination, elements);
    FF_CHECK(cudaGetLastError());
  }

  // Both return when the host's memory may be used again: after all work that was submitted before.
  void store_from_host(const void* host, void* memory, const Shape& shape) override {
    const int64_t elements = volume(shape);
    if (elements == 0) return;
    context_.use();
    float* target = static_cast<float*>(memory);
    if (shape.size() == 4) target = staging(elements);
    FF_CHECK(cudaMemcpyAsync(target, host, static_cast<size_t>(elements) * element_bytes, cudaMemcpyHostToDevice,
                             context_.stream));
    if (shape.size() == 4)
      cuda::transpose(context_, target, shape[0], shape[1], shape[2] * shape[3], static_cast<float*>(memory));
    FF_CHECK(cudaStreamSynchronize(context_.stream));
  }
  void load_to_host(const void* memory, void* host, const Shape& shape) override {
    const int64_t elements = volume(shape);
    if (elements == 0) return;
    context_.use();
    const float* source = static_cast<const float*>(memory);
    if (shape.size() == 4) {
      float* rows = staging(elements);
      cuda::transpose(context_, source, shape[0], shape[2] * shape[3], shape[1], rows);
      source = rows;
    }
    FF_CHECK(cudaMemcpyAsync(host, source, static_cast<size_t>(elements) * element_bytes, cudaMemcpyDeviceToHost,
                             context_.stream));
    FF_CHECK(cudaStreamSynchronize(context_.stream));
  }

  // By way of pinned memory, since a copy to other memory is waited for.
  void begin_load_to_host(const void* memory, void* host, const Shape& shape) override {
    if (shape.size() == 4) return load_to_host(memory, host, shape);
    const size_t bytes = static_cast<size_t>(volume(shape)) * element_bytes;
    if (bytes == 0) return;
    context_.use();
    const size_t begin = host_copies_.empty() ? 0 : host_copies_.back().begin + host_copies_.back().bytes;
    if (begin + bytes > pinned_bytes_) {
      finish_loads();
      if (pinned_) cudaFreeHost(pinned_);
      pinned_ = nullptr;
      pinned_bytes_ = 0;
      FF_CHECK(cudaHostAlloc(&pinned_, 2 * (begin + bytes), cudaHostAllocPortable));
      pinned_bytes_ = 2 * (begin + bytes);
      return begin_load_to_host(memory, host, shape);
    }
    FF_CHECK(
        cudaMemcpyAsync(static_cast<char*>(pinned_) + begin, memory, bytes, cudaMemcpyDeviceToHost, context_.stream));
    host_copies_.push_back({host, begin, bytes});
  }
  void finish_loads() override {
    if (host_copies_.empty()) return;
    context_.use();
    FF_CHECK(cudaStreamSynchronize(context_.stream));
    for (const HostCopy& copy : host_copies_)
      std::memcpy(copy.host, static_cast<const char*>(pinned_) + copy.begin, copy.bytes);
    host_copies_.clear();
  }

  void update(float* parameter, const float* gradient, OptimizerStates states, int64_t elements,
              const OptimizerStep& step) override {
    const UpdateOperands operands{parameter, gradient, states, elements};
    update_all({&operands, 1}, step);
  }
  double sum_of_squares(const float* values, int64_t elements) override {
    const ElementRun run{const_cast<float*>(values), elements};
    return sum_of_all_squares({&run, 1});
  }
  void scale(float* values, int64_t elements, float factor) override {
    const ElementRun run{values, elements};
    scale_all({&run, 1}, factor);
  }

  int64_t update_batch_elements() const override { return update_elements; }
  void update_all(std::span<const UpdateOperands> operands, const OptimizerStep& step) override {
    context_.use();
    cuda::update(context_, operands, step);
    FF_CHECK(cudaGetLastError());
  }
  double sum_of_all_squares(std::span<const ElementRun> runs) override {
    context_.use();
    return cuda::sum_of_squares(context_, runs);
  }
  void scale_all(std::span<const ElementRun> runs, float factor) override {
    context_.use();
    cuda::scale(context_, runs, factor);
    FF_CHECK(cudaGetLastError());
  }

  void wait() override {
    context_.use();
    FF_CHECK(cudaStreamSynchronize(context_.stream));
    context_.report_fault();
  }

  void start_stopwatch() override {
    context_.use();
    cuda::keep_busy(context_, submission_ns);
    FF_CHECK(cudaEventRecord(begin_, context_.stream));
  }
  double stop_stopwatch_us() override {
    context_.use();
    FF_CHECK(cudaEventRecord(end_, context_.stream));
    FF_CHECK(cudaEventSynchronize(end_));
    context_.report_fault();
    float ms = 0;
    FF_CHECK(cudaEventElapsedTime(&ms, begin_, end_));
    return 1e3 * ms;
  }

  // A kernel of a graph starts sooner after its predecessor than one that is launched alone.
  Vector<double> times_in_row_us(int count, int samples, const std::function<void(int)>& submit) override {
    context_.use();
    cuda::RecordedGraph graph(context_.stream);
    try {
      graph.begin();
      for (int i = 0; i < count; ++i) submit(i);
      graph.end();
    } catch (...) {
      graph.give_up();
      throw;
    }
    graph.launch();  // the first one takes longer
    wait();
    Vector<double> times;
    for (int sample = 0; sample < samples; ++sample) {
      start_stopwatch();
      graph.launch();
      times.push_back(stop_stopwatch_us() / count);
    }
    return times;
  }

  CudaEvent create_event() override {
    context_.use();
    cudaEvent_t event = nullptr;
    FF_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
  }
  void destroy_event(CudaEvent event) override { cudaEventDestroy(static_cast<cudaEvent_t>(event)); }
  void record_event(CudaEvent event, void* stream) override {
    context_.use();
    FF_CHECK(cudaEventRecord(static_cast<cudaEvent_t>(event), stream_or_own(stream)));
  }
  void wait_for_event(CudaEvent event, void* stream) override {
    context_.use();
    FF_CHECK(cudaStreamWaitEvent(stream_or_own(stream), static_cast<cudaEvent_t>(event), 0));
  }
  bool event_done(CudaEvent event) override {
    context_.use();
    const cudaError_t status = cudaEventQuery(static_cast<cudaEvent_t>(event));
    if (status == cudaErrorNotReady) {
      (void)cudaGetLastError();
      return false;
    }
    cuda::check(status, "cudaEventQuery");
    return true;
  }
  void* create_stream() override {
    context_.use();
    int least = 0, greatest = 0;
    FF_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    cudaStream_t stream = nullptr;
    FF_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
    return stream;
  }
  void destroy_stream(void* stream) override { cudaStreamDestroy(static_cast<cudaStream_t>(stream)); }

  void* allocate_pinned(int64_t bytes) override {
    context_.use();
    void* memory = nullptr;
    FF_CHECK(cudaHostAlloc(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 64)), cudaHostAllocPortable));
    return memory;
  }
  void release_pinned(void* memory) override { cudaFreeHost(memory); }
  void copy_to_host(const void* memory, void* host, int64_t bytes, void* stream) override {
    context_.use();
    FF_CHECK(cudaMemcpyAsync(host, memory, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream_or_own(stream)));
  }
  void copy_from_host(const void* host, void* memory, int64_t bytes, void* stream) override {
    context_.use();
    FF_CHECK(cudaMemcpyAsync(memory, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream_or_own(stream)));
  }

  void set_iteration(int64_t iteration) override {
    context_.use();
    context_.set_iteration(iteration);
    FF_CHECK(cudaGetLastError());
  }
  void check() override {
    context_.use();
    const cudaError_t status = cudaStreamQuery(context_.stream);
    if (status != cudaErrorNotReady) cuda::check(status, "cudaStreamQuery");
    else (void)cudaGetLastError();
  }

 private:
  cudaStream_t stream_or_own(void* stream) const {
    return stream ? static_cast<cudaStream_t>(stream) : context_.stream;
  }

  // For images on their way between layouts.
  float* staging(int64_t elements) {
    if (staging_.size() < elements) {
      FF_CHECK(cudaStreamSynchronize(context_.stream));
      staging_ = cuda::Memory<float>();
      staging_ = cuda::Memory<float>(context_, elements);
    }
    return staging_.data();
  }

  cuda::Context context_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  cuda::Memory<float> staging_;
  // On their way to the host, one after the other in pinned memory.
  struct HostCopy {
    void* host;
    size_t begin, bytes;
  };
  Vector<HostCopy> host_copies_;
  void* pinned_ = nullptr;
  size_t pinned_bytes_ = 0;
};

}  // namespace

std::unique_ptr<CudaBackend> make_cuda_backend(int device, Precision precision) {
  const int count = cuda_device_count();
  if (device < 0 || device >= count)
    throw MachineError("no GPU " + std::to_string(device) + ": this machine has " + std::to_string(count) +
                       (count == 1 ? " GPU" : " GPUs"));
  // Values of bf16 are exact in TF32.
  return std::make_unique<DeviceBackend>(device, precision == Precision::fp32 ? precision : Precision::tf32);
}

}  // namespace ff
