#include "executor/transport/nccl.h"

#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <set>
#include <thread>

#include "executor/transport/control_data.h"
#include "executor/transport/device_transport.h"

namespace ff {
namespace {

using Clock = std::chrono::steady_clock;

class NcclTransport : public DeviceTransport {
 public:
  NcclTransport(Transport& host, CudaBackend& backend, bool recorded) : DeviceTransport(host), backend_(backend) {
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", recorded ? "0" : "1", 0);
    // All connections when a communicator is made, or NCCL allocates memory at the first call of each collective.
    setenv("NCCL_RUNTIME_CONNECT", "0", 0);
    int version = 0;
    check(ncclGetVersion(&version), "ncclGetVersion");
    one_stream_ = nccl_needs_one_stream(version, std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT"));
    backend_.use_device();
    ncclUniqueId id{};
    std::string bytes;
    if (host_.rank() == 0) {
      check(ncclGetUniqueId(&id), "ncclGetUniqueId");
      bytes.assign(id.internal, sizeof id.internal);
    }
    bytes = host_.broadcast(bytes);
    std::memcpy(id.internal, bytes.data(), std::min(bytes.size(), sizeof id.internal));
    check(ncclCommInitRank(&world_, host_.size(), id, host_.rank()), "ncclCommInitRank");
    transfer_stream_ = static_cast<cudaStream_t>(backend_.create_stream());
    reduce_stream_ = one_stream_ ? transfer_stream_ : static_cast<cudaStream_t>(backend_.create_stream());
    follow_ = backend_.create_event();
    end_ = backend_.create_event();
  }

  ~NcclTransport() override {
    if (std::uncaught_exceptions() > 0) give_up();
    if (!given_up_) {
      for (const auto& [ranks, group] : groups_)
        if (group.communicator) ncclCommDestroy(group.communicator);
      ncclCommDestroy(world_);
    }
    for (CudaEvent event : events_) backend_.destroy_event(event);
    backend_.destroy_event(follow_);
    backend_.destroy_event(end_);
    backend_.destroy_stream(transfer_stream_);
    if (!one_stream_) backend_.destroy_stream(reduce_stream_);
  }

  std::string name() const override { return "nccl"; }
  bool ordered() const override { return true; }

  Request send(const void* memory, int64_t bytes, int destination, OperationLabel label) override {
    return add({true, const_cast<void*>(memory), bytes, destination, new_operation(label)});
  }
  Request receive(void* memory, int64_t bytes, int source, OperationLabel label) override {
    return add({false, memory, bytes, source, new_operation(label)});
  }

  void begin_group() override { grouping_ = true; }
  void end_group() override {
    grouping_ = false;
    start(group_);
    group_.clear();
  }

  Request all_reduce(GroupId group, float* values, int64_t elements, OperationLabel label) override {
    const int operation = new_operation(label);
    follow(reduce_stream_);
    check(ncclAllReduce(values, values, static_cast<size_t>(elements), ncclFloat32, ncclSum, communicator_of(group),
                        reduce_stream_),
          "ncclAllReduce", label.task);
    backend_.record_event(events_[operation], reduce_stream_);
    return {operation};
  }

  Request collective(GroupId group, const CollectiveCall& call, OperationLabel label) override {
    const int operation = new_operation(label);
    follow(reduce_stream_);
    check(ncclGroupStart(), "ncclGroupStart");
    const ncclResult_t added = add_collective(call, communicator_of(group));
    const ncclResult_t ended = ncclGroupEnd();  // also after a failure, or NCCL would go on grouping
    const std::string name = "NCCL " + std::string(to_string(call.kind));
    check(added, name.c_str(), label.task);
    check(ended, "ncclGroupEnd", label.task);
    backend_.record_event(events_[operation], reduce_stream_);
    return {operation};
  }

  bool test(Request& request) override {
    if (!request.pending()) return true;
    if (!backend_.event_done(events_[request.slot])) return false;
    request.slot = -1;
    return true;
  }

  void wait(Request& request) override {
    if (!request.pending()) return;
    backend_.wait_for_event(events_[request.slot]);
    request.slot = -1;
  }

  void poll() override {}

  // A group that was made before is used again. The others are split from the world, which takes all ranks, those
  // without a common rank at once: so all ranks have to know of all groups here.
  Vector<GroupId> make_groups(const Vector<Vector<int>>& groups) override {
    Vector<Vector<int>> missing;
    for (const Vector<int>& ranks : groups)
      if (!groups_.count(ranks)) missing.push_back(ranks);
    missing = of_all_ranks(missing);
    while (!missing.empty()) {
      Vector<Vector<int>> now, later;
      Vector<bool> taken(size(), false);
      for (const Vector<int>& ranks : missing) {
        const bool free = std::none_of(ranks.begin(), ranks.end(), [&](int r) { return taken[r]; });
        (free ? now : later).push_back(ranks);
        if (!free) continue;
        for (int r : ranks) taken[r] = true;
      }
      split(now);
      missing = later;
    }
    Vector<GroupId> made;
    for (const Vector<int>& ranks : groups) made.push_back(groups_.at(ranks).id);
    return made;
  }

  // NCCL connects two ranks when they first exchange data, and the caller waits for that. All pairs at once, here, so
  // that no order of first transfers can be a wrong one. One float each way is enough: all channels to a peer are set
  // up.
  void connect(const Vector<int>& destinations, const Vector<int>& sources) override {
    constexpr int64_t distance = 64;  // bytes from one peer's float to the next one's
    const int64_t bytes = static_cast<int64_t>(destinations.size() + sources.size()) * distance;
    if (bytes > 0) {
      void* scratch = backend_.allocate(bytes);
      backend_.fill_zero(scratch, bytes);
      backend_.wait();
      char* at = static_cast<char*>(scratch);
      check(ncclGroupStart(), "ncclGroupStart");
      for (int peer : destinations) {
        check(ncclSend(at, 4, ncclInt8, peer, world_, transfer_stream_), "ncclSend");
        at += distance;
      }
      for (int peer : sources) {
        check(ncclRecv(at, 4, ncclInt8, peer, world_, transfer_stream_), "ncclRecv");
        at += distance;
      }
      check(ncclGroupEnd(), "ncclGroupEnd");
      backend_.record_event(end_, transfer_stream_);
      wait_for_end();
      backend_.release(scratch);
    }
    host_.barrier();
  }

  // Both streams come after the backend's, which also makes them part of a recording (iteration_graph.h).
  void begin_iteration() override {
    used_ = 0;
    grouping_ = false;  // a recording that failed may have left a group open
    group_.clear();
    backend_.record_event(follow_);
    backend_.wait_for_event(follow_, transfer_stream_);
    backend_.wait_for_event(follow_, reduce_stream_);
  }

  void receives_follow() override { follow(transfer_stream_); }

  // Also of a stream that had nothing to do: a recording ends with all streams joined.
  void end_iteration() override {
    for (cudaStream_t stream : {transfer_stream_, reduce_stream_}) {
      backend_.record_event(follow_, stream);
      backend_.wait_for_event(follow_);
    }
  }

  // What other ranks wait for is on the other streams: these end, too.
  void finish_iteration() override {
    end_iteration();
    backend_.record_event(end_);
    wait_for_end();
  }

  // Ends the kernels that wait for other ranks, so that freeing memory, which waits for kernels, returns.
  void give_up() override {
    if (given_up_) return;
    given_up_ = true;
    for (const auto& [ranks, group] : groups_)
      if (group.communicator) ncclCommAbort(group.communicator);
    if (world_) ncclCommAbort(world_);
  }

 private:
  struct Member {
    bool send;
    void* memory;
    int64_t bytes;
    int peer;
    int operation;
  };
  struct Group {
    GroupId id;  // -1: of other ranks
    ncclComm_t communicator;
  };

  Request add(const Member& member) {
    if (grouping_) group_.push_back(member);
    else start({member});
    return {member.operation};
  }

  void start(const Vector<Member>& members) {
    if (members.empty()) return;
    if (std::any_of(members.begin(), members.end(), [](const Member& member) { return member.send; }))
      follow(transfer_stream_);
    check(ncclGroupStart(), "ncclGroupStart");
    ncclResult_t added = ncclSuccess;
    size_t count = 0;
    for (; count < members.size() && added == ncclSuccess; ++count) {
      const Member& member = members[count];
      const size_t bytes = static_cast<size_t>(member.bytes);
      added = member.send ? ncclSend(member.memory, bytes, ncclInt8, member.peer, world_, transfer_stream_)
                          : ncclRecv(member.memory, bytes, ncclInt8, member.peer, world_, transfer_stream_);
    }
    const ncclResult_t ended = ncclGroupEnd();  // also after a failure, or NCCL would go on grouping
    const Member& last = members[count - 1];
    check(added, last.send ? "ncclSend" : "ncclRecv", tasks_[last.operation]);
    check(ended, "ncclGroupEnd", tasks_[members.front().operation]);
    for (const Member& member : members) backend_.record_event(events_[member.operation], transfer_stream_);
  }

  ncclComm_t communicator_of(GroupId group) const {
    return std::find_if(groups_.begin(), groups_.end(), [&](const auto& one) { return one.second.id == group; })
        ->second.communicator;
  }

  // Ranks with different counts: a broadcast from each, a reduction to each, as one group.
  ncclResult_t add_collective(const CollectiveCall& call, ncclComm_t communicator) const {
    const auto count = [](int64_t elements) { return static_cast<size_t>(elements); };
    const Vector<int64_t>& elements = call.elements;
    const bool even = std::adjacent_find(elements.begin(), elements.end(), std::not_equal_to<>()) == elements.end();
    ncclResult_t result = ncclSuccess;
    const auto also = [&](ncclResult_t next) {
      if (result == ncclSuccess) result = next;
    };
    const ncclDataType_t type = call.type == DataType::bf16 ? ncclBfloat16 : ncclFloat32;
    switch (call.kind) {
      case CollectiveKind::all_gather:
        if (even) return ncclAllGather(call.send, call.receive, count(elements[0]), type, communicator, reduce_stream_);
        for (int64_t from = 0, begin = 0; from < std::ssize(elements); begin += elements[from++])
          also(ncclBroadcast(call.send, call.receive_at(begin), count(elements[from]), type, static_cast<int>(from),
                             communicator, reduce_stream_));
        return result;
      case CollectiveKind::reduce_scatter:
        if (even)
          return ncclReduceScatter(call.send, call.receive, count(elements[0]), type, ncclSum, communicator,
                                   reduce_stream_);
        for (int64_t to = 0, begin = 0; to < std::ssize(elements); begin += elements[to++])
          also(ncclReduce(call.send_at(begin), call.receive, count(elements[to]), type, ncclSum, static_cast<int>(to),
                          communicator, reduce_stream_));
        return result;
      case CollectiveKind::all_to_all: {
        int64_t sent_before = 0, received_before = 0;
        for (int peer : call.send_elements.indices()) {
          if (const int64_t sent = call.send_elements[peer]; sent > 0) {
            also(ncclSend(call.send_at(sent_before), count(sent), type, peer, communicator, reduce_stream_));
            sent_before += sent;
          }
          if (const int64_t received = call.receive_elements[peer]; received > 0) {
            also(ncclRecv(call.receive_at(received_before), count(received), type, peer, communicator, reduce_stream_));
            received_before += received;
          }
        }
        return result;
      }
      case CollectiveKind::all_reduce:
        return ncclAllReduce(call.send, call.receive, count(elements[0]), type, ncclSum, communicator, reduce_stream_);
      case CollectiveKind::broadcast: {
        void* receive = call.receive ? call.receive : const_cast<void*>(call.send);
        return ncclBroadcast(call.send ? call.send : receive, receive, count(elements[0]), type, call.root,
                             communicator, reduce_stream_);
      }
      case CollectiveKind::reduce:
        return ncclReduce(call.send, call.receive, count(elements[0]), type, ncclSum, call.root, communicator,
                          reduce_stream_);
    }
    return result;
  }

  // What is submitted to `stream` from now on comes after what the backend was given.
  void follow(cudaStream_t stream) {
    backend_.record_event(follow_);
    backend_.wait_for_event(follow_, stream);
  }

  // Operations of an iteration are numbered in the order of their start, and keep their events until the next one.
  int new_operation(OperationLabel label) {
    if (used_ == events_.size()) {
      events_.push_back(backend_.create_event());
      tasks_.push_back(-1);
    }
    tasks_[used_] = label.task;
    return static_cast<int>(used_++);
  }

  // The groups of all ranks, ascending, each once. As control data a group is its size and its ranks.
  Vector<Vector<int>> of_all_ranks(const Vector<Vector<int>>& own) {
    const auto encode = [](const auto& groups) {
      Vector<int> numbers;
      for (const Vector<int>& ranks : groups) {
        numbers.push_back(ranks.count());
        numbers.insert(numbers.end(), ranks.begin(), ranks.end());
      }
      return to_bytes(numbers);
    };
    const auto decode = [](const std::string& bytes, auto add) {
      const Vector<int> numbers = from_bytes<int>(bytes);
      for (auto at = numbers.begin(); at != numbers.end(); at += 1 + *at) add(Vector<int>(at + 1, at + 1 + *at));
    };
    std::set<Vector<int>> united;
    for (const std::string& bytes : host_.gather(encode(own)))
      decode(bytes, [&](const Vector<int>& ranks) { united.insert(ranks); });
    Vector<Vector<int>> all;
    decode(host_.broadcast(encode(united)), [&](const Vector<int>& ranks) { all.push_back(ranks); });
    return all;
  }

  void split(const Vector<Vector<int>>& groups) {
    int color = NCCL_SPLIT_NOCOLOR;
    for (size_t g = 0; g < groups.size(); ++g)
      if (std::find(groups[g].begin(), groups[g].end(), rank()) != groups[g].end()) color = static_cast<int>(g);
    ncclComm_t communicator = nullptr;
    // The world's settings, of which splitShare is 0 by default: with resources of its own all-reduces run during
    // transfers.
    check(ncclCommSplit(world_, color, rank(), &communicator, nullptr), "ncclCommSplit");
    for (size_t g = 0; g < groups.size(); ++g) {
      const bool mine = static_cast<int>(g) == color;
      groups_[groups[g]] = {mine ? made_++ : -1, mine ? communicator : nullptr};
    }
    if (communicator) warm_up(communicator);
  }

  // NCCL prepares a communicator for its first collective when that is called, and allocates memory.
  void warm_up(ncclComm_t communicator) {
    constexpr int64_t bytes = sizeof(float);
    float* scratch = static_cast<float*>(backend_.allocate(bytes));
    backend_.fill_zero(scratch, bytes);
    follow(reduce_stream_);
    check(ncclAllReduce(scratch, scratch, 1, ncclFloat32, ncclSum, communicator, reduce_stream_), "ncclAllReduce");
    backend_.record_event(end_, reduce_stream_);
    wait_for_end();
    backend_.release(scratch);
  }

  // Until all that was submitted before `end_` is done, while watching for what goes wrong elsewhere.
  void wait_for_end() {
    Clock::time_point looked = Clock::now();
    while (!backend_.event_done(end_)) {
      std::this_thread::yield();
      if (Clock::now() - looked < std::chrono::milliseconds(5)) continue;
      looked = Clock::now();
      look_for_errors(world_);
      for (const auto& [ranks, group] : groups_)
        if (group.communicator) look_for_errors(group.communicator);
    }
  }

  void look_for_errors(ncclComm_t communicator) {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(communicator, &state), "ncclCommGetAsyncError");
    if (state == ncclSuccess || state == ncclInProgress) return;
    // A remote error comes of another rank's, which is given the time to say more about it.
    if (state == ncclRemoteError) std::this_thread::sleep_for(std::chrono::seconds(2));
    check(state, "ncclCommGetAsyncError", first_incomplete());
  }

  // The task whose transfer or all-reduce holds up the others, where that can be told: events of a recording have no
  // state of their own.
  int first_incomplete() {
    for (size_t i = 0; i < used_; ++i) {
      try {
        if (!backend_.event_done(events_[i])) return tasks_[i];
      } catch (const MachineError&) {
        return -1;
      }
    }
    return -1;
  }

  void check(ncclResult_t result, const char* call, int task = -1) const {
    if (result == ncclSuccess) return;
    const char* detail = ncclGetLastError(nullptr);
    throw TransportError("rank " + std::to_string(host_.rank()) + " on " + host_.host() + ": " + call + ": " +
                             ncclGetErrorString(result) + (detail && *detail ? std::string(" (") + detail + ")" : ""),
                         task);
  }

  CudaBackend& backend_;
  ncclComm_t world_ = nullptr;
  cudaStream_t transfer_stream_ = nullptr, reduce_stream_ = nullptr;
  CudaEvent follow_ = nullptr, end_ = nullptr;
  std::map<Vector<int>, Group> groups_;
  int made_ = 0;
  Vector<CudaEvent> events_;  // by operation of this iteration
  Vector<int> tasks_;
  size_t used_ = 0;
  Vector<Member> group_;
  bool grouping_ = false;
  bool given_up_ = false;
  bool one_stream_ = false;
};

}  // namespace

std::unique_ptr<Transport> make_nccl_transport(Transport& host, CudaBackend& backend, bool recorded) {
  return std::make_unique<NcclTransport>(host, backend, recorded);
}

std::string nccl_version() {
  int version = 0;  // 22809: 2.28.9
  if (ncclGetVersion(&version) != ncclSuccess) return "";
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

}  // namespace ff
