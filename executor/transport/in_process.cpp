#include "executor/transport/in_process.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "common/errors.h"

namespace ff {
namespace {

struct Operation {
  void* memory = nullptr;
  int64_t bytes = 0;
  bool complete = false;
};
using OperationPtr = std::shared_ptr<Operation>;

// A collective that some ranks of the group have started.
struct Joined {
  std::map<int, std::pair<OperationPtr, CollectiveCall>> by_rank;
};

// Everything that the ranks share, under one lock.
struct World {
  explicit World(int ranks) : size(ranks), control(static_cast<size_t>(ranks)) {}

  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  bool failed = false;

  struct Queue {
    std::deque<OperationPtr> sends, receives;  // one of them is empty
  };
  std::map<std::tuple<int, int, int>, Queue> queues;  // by source, destination, tag
  // By ranks of the group and which of this rank's groups with these ranks it is; then by number of the collective.
  std::map<std::pair<Vector<int>, int>, std::map<int64_t, Joined>> collectives;

  // Control data: everyone deposits, the last one publishes, everyone reads.
  Vector<std::string> control, published;
  int deposited = 0;
  int64_t control_round = 0;
};

class InProcessTransport : public Transport {
 public:
  InProcessTransport(World& world, int rank) : world_(world), rank_(rank) {}

  std::string name() const override { return "in-process"; }
  int rank() const override { return rank_; }
  int size() const override { return world_.size; }
  std::string host() const override { return "localhost"; }
  NodePlace place() const override { return {0, rank_, world_.size}; }

  Request send(const void* memory, int64_t bytes, int destination, OperationLabel label) override {
    const auto operation = std::make_shared<Operation>(Operation{const_cast<void*>(memory), bytes});
    const std::lock_guard lock(world_.mutex);
    World::Queue& queue = world_.queues[{rank_, destination, label.tag}];
    if (queue.receives.empty()) queue.sends.push_back(operation);
    else match(operation, take(queue.receives));
    return keep(operation);
  }

  Request receive(void* memory, int64_t bytes, int source, OperationLabel label) override {
    const auto operation = std::make_shared<Operation>(Operation{memory, bytes});
    const std::lock_guard lock(world_.mutex);
    World::Queue& queue = world_.queues[{source, rank_, label.tag}];
    if (queue.sends.empty()) queue.receives.push_back(operation);
    else match(take(queue.sends), operation);
    return keep(operation);
  }

  bool test(Request& request) override {
    if (!request.pending()) return true;
    const std::lock_guard lock(world_.mutex);
    if (!slots_[request.slot]->complete) {
      fail_if_peer_failed();
      return false;
    }
    release(request);
    return true;
  }

  void wait(Request& request) override {
    if (!request.pending()) return;
    const OperationPtr operation = slots_[request.slot];
    std::unique_lock lock(world_.mutex);
    world_.changed.wait(lock, [&] { return operation->complete || world_.failed; });
    if (!operation->complete) fail_if_peer_failed();
    release(request);
  }

  void poll() override {}

  Vector<GroupId> make_groups(const Vector<Vector<int>>& groups) override {
    Vector<GroupId> made;
    for (const Vector<int>& ranks : groups) made.push_back(make_group(ranks));
    return made;
  }

  Request collective(GroupId id, const CollectiveCall& call, OperationLabel) override {
    Group& group = groups_[id];
    const auto operation = std::make_shared<Operation>();
    const std::lock_guard lock(world_.mutex);
    auto& started = world_.collectives[{group.ranks, group.instance}];
    const int64_t number = group.started++;
    Joined& joined = started[number];
    joined.by_rank[rank_] = {operation, call};
    if (joined.by_rank.size() == group.ranks.size()) {
      complete(joined);
      started.erase(number);
    }
    return keep(operation);
  }

  void barrier() override { exchange(""); }
  Vector<std::string> gather(const std::string& bytes) override {
    Vector<std::string> all = exchange(bytes);
    return rank_ == 0 ? all : Vector<std::string>();
  }
  std::string broadcast(const std::string& bytes) override { return exchange(bytes)[0]; }

  [[noreturn]] void abort(int exit_code) override {
    throw MachineError("rank " + std::to_string(rank_) + " aborted with exit code " + std::to_string(exit_code));
  }

 private:
  struct Group {
    Vector<int> ranks;
    int instance;  // a second group of the same ranks is another one
    int64_t started;
  };

  GroupId make_group(const Vector<int>& ranks) {
    int instance = 0;
    for (const Group& group : groups_) instance += group.ranks == ranks;
    groups_.push_back({ranks, instance, 0});
    return static_cast<GroupId>(groups_.size()) - 1;
  }

  static OperationPtr take(std::deque<OperationPtr>& queue) {
    OperationPtr first = std::move(queue.front());
    queue.pop_front();
    return first;
  }

  void match(const OperationPtr& send, const OperationPtr& receive) {
    if (send->bytes != receive->bytes)
      throw MachineError("a message of " + std::to_string(send->bytes) + " bytes meets a receive of " +
                         std::to_string(receive->bytes));
    if (send->bytes > 0) std::memcpy(receive->memory, send->memory, static_cast<size_t>(send->bytes));
    send->complete = receive->complete = true;
    world_.changed.notify_all();
  }

  void complete(Joined& joined) {
    Vector<CollectiveCall*> calls;
    for (auto& [rank, one] : joined.by_rank) calls.push_back(&one.second);
    perform(calls);
    for (const auto& [rank, one] : joined.by_rank) one.first->complete = true;
    world_.changed.notify_all();
  }

  Vector<std::string> exchange(const std::string& bytes) {
    std::unique_lock lock(world_.mutex);
    fail_if_peer_failed();
    const int64_t round = world_.control_round;
    world_.control[rank_] = bytes;
    if (++world_.deposited == world_.size) {
      world_.published = world_.control;
      world_.deposited = 0;
      ++world_.control_round;
      world_.changed.notify_all();
    } else {
      world_.changed.wait(lock, [&] { return world_.control_round != round || world_.failed; });
      if (world_.control_round == round) fail_if_peer_failed();
    }
    return world_.published;  // the next round cannot be published before every rank has deposited again
  }

  void fail_if_peer_failed() const {
    if (world_.failed) throw MachineError("rank " + std::to_string(rank_) + ": another rank failed");
  }

  Request keep(OperationPtr operation) {
    for (size_t slot = 0; slot < slots_.size(); ++slot)
      if (!slots_[slot]) {
        slots_[slot] = std::move(operation);
        return {static_cast<int>(slot)};
      }
    slots_.push_back(std::move(operation));
    return {static_cast<int>(slots_.size()) - 1};
  }
  void release(Request& request) {
    slots_[request.slot].reset();
    request.slot = -1;
  }

  World& world_;
  const int rank_;
  Vector<OperationPtr> slots_;
  Vector<Group> groups_;
};

}  // namespace

void run_in_process(int ranks, const std::function<void(Transport&)>& run) {
  World world(ranks);
  std::exception_ptr first;
  const auto run_rank = [&](int rank) {
    InProcessTransport transport(world, rank);
    try {
      run(transport);
    } catch (...) {
      const std::lock_guard lock(world.mutex);
      if (!first) first = std::current_exception();
      world.failed = true;
      world.changed.notify_all();
    }
  };
  Vector<std::thread> threads;
  for (int rank = 1; rank < ranks; ++rank) threads.emplace_back(run_rank, rank);
  run_rank(0);
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace ff
