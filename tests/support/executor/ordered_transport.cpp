#include "tests/support/executor/ordered_transport.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "common/vector.h"
#include "executor/transport/device_transport.h"

namespace ff {

struct Posting {
  bool send = false;
  void* memory = nullptr;
  int64_t bytes = 0;
  int peer = -1;
  OperationLabel label{-1};
  GroupId group = -1;  // a collective
  CollectiveCall call{};
  bool complete = false;
};
using Job = Vector<std::shared_ptr<Posting>>;

class OrderedWorld {
 public:
  std::mutex mutex;
  std::condition_variable changed;
  std::string failure;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Posting>>> sends, receives;  // by (source, destination)
  // by ranks and number: by rank
  std::map<Vector<int>, Vector<std::map<int, std::shared_ptr<Posting>>>> reductions;

  void fail(const std::string& message) {
    if (failure.empty()) failure = message;
    changed.notify_all();
  }

  void post(int rank, const std::shared_ptr<Posting>& posting) {
    const std::pair<int, int> pair =
        posting->send ? std::make_pair(rank, posting->peer) : std::make_pair(posting->peer, rank);
    (posting->send ? sends : receives)[pair].push_back(posting);
    auto &out = sends[pair], &in = receives[pair];
    while (!out.empty() && !in.empty()) {
      if (out.front()->label.tag != in.front()->label.tag || out.front()->bytes != in.front()->bytes)
        return fail("ranks " + std::to_string(pair.first) + " and " + std::to_string(pair.second) +
                    " disagree about the order of transfers");
      std::memcpy(in.front()->memory, out.front()->memory, static_cast<size_t>(in.front()->bytes));
      in.front()->complete = out.front()->complete = true;
      in.pop_front();
      out.pop_front();
    }
    changed.notify_all();
  }

  void post_reduction(const Vector<int>& ranks, size_t number, int rank, const std::shared_ptr<Posting>& posting) {
    auto& of_group = reductions[ranks];
    if (of_group.size() <= number) of_group.resize(number + 1);
    auto& members = of_group[number];
    members[rank] = posting;
    if (members.size() < ranks.size()) return;
    Vector<CollectiveCall*> calls;
    for (const auto& [from, member] : members) {
      if (member->label.tag != posting->label.tag) return fail("ranks disagree about the order of collectives");
      calls.push_back(&member->call);
    }
    try {
      perform(calls);
    } catch (const MachineError& error) {
      return fail(error.what());
    }
    for (const auto& [to, member] : members) member->complete = true;
    members.clear();
    changed.notify_all();
  }
};

std::shared_ptr<OrderedWorld> make_ordered_world() { return std::make_shared<OrderedWorld>(); }

namespace {

constexpr std::chrono::seconds patience{60};

class OrderedTransport : public DeviceTransport {
 public:
  OrderedTransport(std::shared_ptr<OrderedWorld> world, Transport& host)
      : DeviceTransport(host), world_(std::move(world)) {
    for (size_t s = 0; s < streams_.size(); ++s) streams_[s].thread = std::thread([this, s] { work(streams_[s]); });
  }

  ~OrderedTransport() override {
    {
      const std::lock_guard lock(world_->mutex);
      closing_ = true;
      world_->changed.notify_all();
    }
    for (Stream& stream : streams_) stream.thread.join();
  }

  std::string name() const override { return "ordered"; }
  bool ordered() const override { return true; }

  Request send(const void* memory, int64_t bytes, int destination, OperationLabel label) override {
    return add({true, const_cast<void*>(memory), bytes, destination, label});
  }
  Request receive(void* memory, int64_t bytes, int source, OperationLabel label) override {
    return add({false, memory, bytes, source, label});
  }

  void begin_group() override { grouping_ = true; }
  void end_group() override {
    grouping_ = false;
    submit(streams_[0], std::move(group_));
    group_.clear();
  }

  Request collective(GroupId group, const CollectiveCall& call, OperationLabel label) override {
    auto posting = std::make_shared<Posting>(Posting{false, nullptr, 0, -1, label, group, call});
    slots_.push_back(posting);
    submit(streams_[1], {posting});
    return {static_cast<int>(slots_.size()) - 1};
  }

  bool test(Request& request) override {
    if (!request.pending()) return true;
    const std::lock_guard lock(world_->mutex);
    if (!slots_[request.slot]->complete) return false;
    request.slot = -1;
    return true;
  }

  void wait(Request& request) override {
    if (!request.pending()) return;
    std::unique_lock lock(world_->mutex);
    const std::shared_ptr<Posting> posting = slots_[request.slot];
    if (!world_->changed.wait_for(lock, patience, [&] { return posting->complete || !world_->failure.empty(); }))
      world_->fail("deadlock");
    if (!posting->complete) throw TransportError(world_->failure, posting->label.task);
    request.slot = -1;
  }

  void poll() override {}

  Vector<GroupId> make_groups(const Vector<Vector<int>>& groups) override {
    Vector<GroupId> made;
    for (const Vector<int>& ranks : groups) {
      made.push_back(static_cast<GroupId>(groups_.size()));
      groups_.push_back({ranks, 0});
    }
    return made;
  }

  void give_up() override {
    const std::lock_guard lock(world_->mutex);
    world_->fail("another rank failed");
  }

 private:
  struct Stream {
    std::deque<std::pair<int64_t, Job>> jobs;  // with their places among all jobs of this rank
    std::thread thread;
  };
  struct Group {
    Vector<int> ranks;
    size_t started;
  };

  Request add(const Posting& posting) {
    slots_.push_back(std::make_shared<Posting>(posting));
    group_.push_back(slots_.back());
    if (!grouping_) end_group();
    return {static_cast<int>(slots_.size()) - 1};
  }

  void submit(Stream& stream, Job job) {
    if (job.empty()) return;
    const std::lock_guard lock(world_->mutex);
    stream.jobs.emplace_back(submitted_++, std::move(job));
    world_->changed.notify_all();
  }

  void work(Stream& stream) {
    std::unique_lock lock(world_->mutex);
    while (true) {
      world_->changed.wait(lock, [&] {
        return closing_ || !world_->failure.empty() || (!stream.jobs.empty() && stream.jobs.front().first == started_);
      });
      if (closing_ || !world_->failure.empty()) return;
      const Job job = std::move(stream.jobs.front().second);
      stream.jobs.pop_front();
      ++started_;
      for (const std::shared_ptr<Posting>& posting : job) {
        if (posting->group < 0) {
          world_->post(rank(), posting);
          continue;
        }
        Group& group = groups_[posting->group];
        world_->post_reduction(group.ranks, group.started++, rank(), posting);
      }
      world_->changed.notify_all();
      const auto over = [&] {
        return std::all_of(job.begin(), job.end(), [](const auto& posting) { return posting->complete; });
      };
      world_->changed.wait(lock, [&] { return closing_ || !world_->failure.empty() || over(); });
    }
  }

  std::shared_ptr<OrderedWorld> world_;
  Array<Stream, 2> streams_;  // transfers, all-reduces
  Vector<std::shared_ptr<Posting>> slots_;
  Vector<Group> groups_;
  Job group_;
  bool grouping_ = false, closing_ = false;
  int64_t submitted_ = 0, started_ = 0;
};

}  // namespace

std::unique_ptr<Transport> make_ordered_transport(std::shared_ptr<OrderedWorld> world, Transport& host) {
  return std::make_unique<OrderedTransport>(std::move(world), host);
}

}  // namespace ff
