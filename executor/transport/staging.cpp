#include "executor/transport/staging.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <thread>

#include "executor/transport/device_transport.h"

namespace ff {
namespace {

// Pinned host memory, kept for the next message of the same size: pinning takes milliseconds.
class PinnedBuffers {
 public:
  explicit PinnedBuffers(CudaBackend& backend) : backend_(backend) {}
  ~PinnedBuffers() {
    for (const auto& [bytes, memory] : free_) backend_.release_pinned(memory);
  }
  void* take(int64_t bytes) {
    const auto it = free_.find(bytes);
    if (it == free_.end()) return backend_.allocate_pinned(bytes);
    void* memory = it->second;
    free_.erase(it);
    return memory;
  }
  void give_back(void* memory, int64_t bytes) { free_.emplace(bytes, memory); }

 private:
  CudaBackend& backend_;
  std::multimap<int64_t, void*> free_;
};

struct StagedOperation {
  enum class Kind : uint8_t { send, receive, all_reduce, collective };
  Kind kind = Kind::send;
  void* device = nullptr;
  void* pinned = nullptr;
  int64_t bytes = 0;
  int peer = -1;  // send
  OperationLabel label{-1};
  GroupId group = -1;  // all-reduce, collective
  // Collective: what is sent is `device`, copied to `pinned`; what is received is copied from `received` in the end.
  std::shared_ptr<CollectiveCall> call;  // with host memory
  void* received = nullptr;
  void* receiver = nullptr;  // on the device
  int64_t received_bytes = 0;
  CudaEvent copied = nullptr;  // out to the pinned buffer, or in from it
  bool started = false;        // the message or the all-reduce, on the host
  Request inner;
};

class StagingTransport : public DeviceTransport {
 public:
  StagingTransport(Transport& host, CudaBackend& backend)
      : DeviceTransport(host), backend_(backend), buffers_(backend), out_(backend.create_stream()),
        follow_(backend.create_event()) {}

  ~StagingTransport() override {
    // After a failure, messages may never arrive: their buffers stay, as the process ends.
    if (std::uncaught_exceptions() == 0 && !given_up_) {
      try {
        while (!ending_.empty()) progress();
      } catch (const std::exception&) {  // another rank failed, which says so itself
      }
    }
    for (StagedOperation& operation : slots_)
      if (operation.copied) backend_.destroy_event(operation.copied);
    backend_.destroy_event(follow_);
    backend_.destroy_stream(out_);
  }

  std::string name() const override { return "staging"; }

  Request send(const void* memory, int64_t bytes, int destination, OperationLabel label) override {
    StagedOperation operation;
    operation.kind = StagedOperation::Kind::send;
    operation.device = const_cast<void*>(memory);
    operation.bytes = bytes;
    operation.peer = destination;
    operation.label = label;
    return copy_out(operation);
  }

  Request receive(void* memory, int64_t bytes, int source, OperationLabel label) override {
    StagedOperation operation;
    operation.kind = StagedOperation::Kind::receive;
    operation.device = memory;
    operation.bytes = bytes;
    operation.pinned = buffers_.take(bytes);
    operation.inner = host_.receive(operation.pinned, bytes, source, label);
    operation.started = true;
    return keep(operation);
  }

  Request all_reduce(GroupId group, float* values, int64_t elements, OperationLabel label) override {
    StagedOperation operation;
    operation.kind = StagedOperation::Kind::all_reduce;
    operation.device = values;
    operation.bytes = elements * static_cast<int64_t>(sizeof(float));
    operation.label = label;
    operation.group = group;
    return copy_out(operation);
  }

  Request collective(GroupId group, const CollectiveCall& call, OperationLabel label) override {
    const Vector<int>& ranks = groups_[group];
    const int place = static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), rank()) - ranks.begin());
    StagedOperation operation;
    operation.kind = StagedOperation::Kind::collective;
    operation.label = label;
    operation.group = group;
    operation.device = const_cast<void*>(call.send);
    operation.bytes = bytes_of(call.type, call.sent(place));
    operation.receiver = call.receive;
    operation.received_bytes = bytes_of(call.type, call.received(place));
    if (operation.received_bytes > 0) operation.received = buffers_.take(operation.received_bytes);
    operation.call = std::make_shared<CollectiveCall>(call);
    operation.call->receive = operation.received;
    return copy_out(operation);
  }

  bool test(Request& request) override {
    if (!request.pending()) return true;
    progress();
    StagedOperation& operation = slots_[static_cast<size_t>(request.slot)];
    // A send's memory may be written again after the copy: the backend's stream waits for it.
    if (operation.kind == StagedOperation::Kind::send) {
      backend_.wait_for_event(operation.copied);
    } else {
      if (!operation.started || !host_.test(operation.inner)) return false;
      if (operation.kind != StagedOperation::Kind::collective)
        backend_.copy_from_host(operation.pinned, operation.device, operation.bytes);
      else if (operation.received)
        backend_.copy_from_host(operation.received, operation.receiver, operation.received_bytes);
      backend_.record_event(operation.copied);
    }
    ending_.push_back(request.slot);
    request.slot = -1;
    return true;
  }

  void wait(Request& request) override {
    while (!test(request)) std::this_thread::yield();
  }

  void poll() override {
    progress();
    host_.poll();
  }

  Vector<GroupId> make_groups(const Vector<Vector<int>>& groups) override {
    const Vector<GroupId> made = host_.make_groups(groups);
    for (int g : made.indices()) groups_[made[g]] = groups[g];
    return made;
  }

  // The host's receives write to pinned buffers; the copies from there are in the backend's own order.
  void begin_iteration() override { progress(); }

  void finish_iteration() override {
    while (!waiting_.empty()) {
      progress();
      std::this_thread::yield();
    }
    backend_.wait();
  }

  void give_up() override { given_up_ = true; }

 private:
  Request copy_out(StagedOperation operation) {
    if (operation.bytes > 0) operation.pinned = buffers_.take(operation.bytes);
    const Request request = keep(operation);
    backend_.record_event(follow_);
    backend_.wait_for_event(follow_, out_);
    if (operation.bytes > 0) backend_.copy_to_host(operation.device, operation.pinned, operation.bytes, out_);
    backend_.record_event(slots_[static_cast<size_t>(request.slot)].copied, out_);
    waiting_.push_back(request.slot);
    progress();
    return request;
  }

  // Starts what has been copied out, in order, and takes back the buffers that nobody needs any more.
  void progress() {
    while (!waiting_.empty()) {
      StagedOperation& operation = slots_[static_cast<size_t>(waiting_.front())];
      if (!backend_.event_done(operation.copied)) break;
      switch (operation.kind) {
        case StagedOperation::Kind::send:
          operation.inner = host_.send(operation.pinned, operation.bytes, operation.peer, operation.label);
          break;
        case StagedOperation::Kind::collective:
          operation.call->send = operation.pinned;
          operation.inner = host_.collective(operation.group, *operation.call, operation.label);
          break;
        default:
          operation.inner = host_.all_reduce(operation.group, static_cast<float*>(operation.pinned),
                                             operation.bytes / 4, operation.label);
      }
      operation.started = true;
      waiting_.pop_front();
    }
    while (!ending_.empty()) {
      StagedOperation& operation = slots_[static_cast<size_t>(ending_.front())];
      const bool done = operation.kind == StagedOperation::Kind::send ? operation.started && host_.test(operation.inner)
                                                                      : backend_.event_done(operation.copied);
      if (!done) break;
      if (operation.pinned) buffers_.give_back(operation.pinned, operation.bytes);
      if (operation.received) buffers_.give_back(operation.received, operation.received_bytes);
      operation.call.reset();
      free_.push_back(ending_.front());
      ending_.pop_front();
    }
  }

  Request keep(StagedOperation operation) {
    if (free_.empty()) {
      free_.push_back(static_cast<int>(slots_.size()));
      slots_.emplace_back();
      slots_.back().copied = backend_.create_event();
    }
    const Request request{free_.back()};
    free_.pop_back();
    StagedOperation& slot = slots_[static_cast<size_t>(request.slot)];
    operation.copied = slot.copied;
    slot = operation;
    return request;
  }

  CudaBackend& backend_;
  PinnedBuffers buffers_;
  std::map<GroupId, Vector<int>> groups_;  // their ranks
  void* out_;                              // stream of the copies to the host
  CudaEvent follow_;                       // of the backend's stream
  std::deque<StagedOperation> slots_;
  Vector<int> free_;
  std::deque<int> waiting_;  // copied out, then started, in this order
  std::deque<int> ending_;   // waited for, until their buffers are free
  bool given_up_ = false;
};

}  // namespace

std::unique_ptr<Transport> make_staging_transport(Transport& host, CudaBackend& backend) {
  return std::make_unique<StagingTransport>(host, backend);
}

}  // namespace ff
