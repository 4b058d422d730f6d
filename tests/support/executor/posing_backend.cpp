#include "tests/support/executor/posing_backend.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>

#include "common/kernels/batched_updates.h"
#include "tests/support/executor/through_transport.h"

namespace ff {
namespace {

// Allocations by address.
class Ranges {
 public:
  void add(const void* memory, int64_t bytes) {
    ends_[static_cast<const char*>(memory)] = static_cast<const char*>(memory) + bytes;
  }
  void remove(const void* memory) { ends_.erase(static_cast<const char*>(memory)); }
  bool contains(const void* memory, int64_t bytes) const {
    const char* at = static_cast<const char*>(memory);
    auto it = ends_.upper_bound(at);
    return it != ends_.begin() && at + bytes <= (--it)->second;
  }

 private:
  std::map<const char*, const char*> ends_;
};

struct Stream {
  std::deque<std::function<void()>> work;
};

struct PosingEvent {
  Stream* stream = nullptr;
  int recorded = 0, reached = 0;
};

class Posing : public PosingBackend, public BatchedUpdates {
 public:
  std::string name() const override { return "posing"; }
  std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) override { return cpu_->make_kernel(request); }
  void* allocate(int64_t bytes) override {
    void* memory = cpu_->allocate(bytes);
    device_.add(memory, bytes);
    return memory;
  }
  void release(void* memory) override {
    device_.remove(memory);
    cpu_->release(memory);
  }
  void copy_block(const void* source, const Block& source_block, void* destination, const Block& destination_block,
                  const Block& region, DataType type) override {
    cpu_->copy_block(source, source_block, destination, destination_block, region, type);
  }
  void add_block(const void* source, const Block& source_block, void* destination, const Block& destination_block,
                 const Block& region, DataType type) override {
    cpu_->add_block(source, source_block, destination, destination_block, region, type);
  }
  void convert(const void* source, DataType from, void* destination, DataType to, int64_t elements) override {
    cpu_->convert(source, from, destination, to, elements);
  }
  void round_to_bf16(const float* source, float* destination, int64_t elements) override {
    cpu_->round_to_bf16(source, destination, elements);
  }
  void fill_zero(void* memory, int64_t bytes) override { cpu_->fill_zero(memory, bytes); }
  void add(const float* source, float* destination, int64_t elements) override {
    cpu_->add(source, destination, elements);
  }
  void store_from_host(const void* host, void* memory, const Shape& shape) override {
    cpu_->store_from_host(host, memory, shape);
  }
  void load_to_host(const void* memory, void* host, const Shape& shape) override {
    cpu_->load_to_host(memory, host, shape);
  }
  void update(float* parameter, const float* gradient, OptimizerStates states, int64_t elements,
              const OptimizerStep& step) override {
    cpu_->update(parameter, gradient, states, elements, step);
  }
  double sum_of_squares(const float* values, int64_t elements) override {
    return cpu_->sum_of_squares(values, elements);
  }
  void scale(float* values, int64_t elements, float factor) override { cpu_->scale(values, elements, factor); }
  // Of random networks: some parameters together, not all of them.
  int64_t update_batch_elements() const override { return 500; }
  void update_all(std::span<const UpdateOperands> operands, const OptimizerStep& step) override {
    ff::update_all(*cpu_, operands, step);
  }
  double sum_of_all_squares(std::span<const ElementRun> runs) override { return ff::sum_of_all_squares(*cpu_, runs); }
  void scale_all(std::span<const ElementRun> runs, float factor) override { ff::scale_all(*cpu_, runs, factor); }
  void wait() override {}

  int device() const override { return 0; }
  Precision precision() const override { return Precision::fp32; }
  void* stream() const override { return nullptr; }
  void use_device() const override {}

  CudaEvent create_event() override { return new PosingEvent; }
  void destroy_event(CudaEvent event) override { delete static_cast<PosingEvent*>(event); }
  void record_event(CudaEvent handle, void* stream) override {
    auto* event = static_cast<PosingEvent*>(handle);
    event->stream = static_cast<Stream*>(stream);
    const int number = ++event->recorded;
    if (!stream) event->reached = number;
    else event->stream->work.push_back([event, number] { event->reached = number; });
  }
  void wait_for_event(CudaEvent handle, void* stream) override {
    auto* event = static_cast<PosingEvent*>(handle);
    if (event->reached == event->recorded) return;
    if (stream) throw MachineError("the posing backend does not order streams after other streams but its own");
    while (event->reached < event->recorded) step(*event->stream);  // its own stream waits
  }
  bool event_done(CudaEvent handle) override {
    auto* event = static_cast<PosingEvent*>(handle);
    if (event->reached == event->recorded) return true;
    step(*event->stream);
    return false;
  }
  void* create_stream() override { return new Stream; }
  void destroy_stream(void* stream) override { delete static_cast<Stream*>(stream); }

  void* allocate_pinned(int64_t bytes) override {
    void* memory = std::malloc(static_cast<size_t>(bytes) + 1);
    pinned_.add(memory, bytes);
    return memory;
  }
  void release_pinned(void* memory) override {
    pinned_.remove(memory);
    std::free(memory);
  }
  void copy_to_host(const void* memory, void* host, int64_t bytes, void* stream) override {
    copy(memory, device_, host, pinned_, bytes, stream);
  }
  void copy_from_host(const void* host, void* memory, int64_t bytes, void* stream) override {
    copy(host, pinned_, memory, device_, bytes, stream);
  }

  void set_iteration(int64_t) override {}
  void check() override {}

  bool is_pinned(const void* memory, int64_t bytes) const override { return pinned_.contains(memory, bytes); }

 private:
  static void step(Stream& stream) {
    if (stream.work.empty()) throw MachineError("an event is waited for whose stream has nothing to do");
    const auto work = std::move(stream.work.front());
    stream.work.pop_front();
    work();
  }
  static void copy(const void* from, const Ranges& sources, void* to, const Ranges& targets, int64_t bytes,
                   void* stream) {
    if (!sources.contains(from, bytes) || !targets.contains(to, bytes))
      throw MachineError("a copy between memory that is not what it should be");
    const auto run = [=] { std::memcpy(to, from, static_cast<size_t>(bytes)); };
    if (stream) static_cast<Stream*>(stream)->work.push_back(run);
    else run();
  }

  std::unique_ptr<Backend> cpu_ = make_cpu_backend(1);
  Ranges device_, pinned_;
};

class PinnedOnly : public ThroughTransport {
 public:
  PinnedOnly(Transport& transport, PosingBackend& backend) : ThroughTransport(transport), backend_(backend) {}
  std::string name() const override { return "pinned only"; }
  Request send(const void* memory, int64_t bytes, int destination, OperationLabel label) override {
    check(memory, bytes);
    return host_.send(memory, bytes, destination, label);
  }
  Request receive(void* memory, int64_t bytes, int source, OperationLabel label) override {
    check(memory, bytes);
    return host_.receive(memory, bytes, source, label);
  }
  Request all_reduce(GroupId group, float* values, int64_t elements, OperationLabel label) override {
    check(values, elements * 4);
    return host_.all_reduce(group, values, elements, label);
  }
  Request collective(GroupId group, const CollectiveCall& call, OperationLabel label) override {
    int64_t least = call.elements.empty() ? 0 : *std::min_element(call.elements.begin(), call.elements.end());
    if (call.send) check(call.send, bytes_of(call.type, least));
    if (call.receive) check(call.receive, bytes_of(call.type, least));
    return host_.collective(group, call, label);
  }

 private:
  void check(const void* memory, int64_t bytes) const {
    if (!backend_.is_pinned(memory, bytes)) throw MachineError("a message outside of pinned memory");
  }
  PosingBackend& backend_;
};

}  // namespace

std::unique_ptr<PosingBackend> make_posing_backend() { return std::make_unique<Posing>(); }

std::unique_ptr<Transport> make_pinned_only_transport(Transport& transport, PosingBackend& backend) {
  return std::make_unique<PinnedOnly>(transport, backend);
}

}  // namespace ff
