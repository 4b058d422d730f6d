#include "executor/transport/mpi/mpi.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "common/errors.h"
#include "common/kernels/bf16.h"
#include "executor/transport/mpi/all_reduce.h"
#include "executor/transport/mpi/calls.h"
#include "executor/transport/mpi/launcher_guard.h"
#include "executor/transport/mpi/open_mpi_settings.h"
#include "executor/transport/mpi/pieces.h"
#include "executor/transport/mpi/progress_thread.h"
#include "executor/transport/mpi/rank_watch.h"

namespace ff {
namespace {

// A group's communicator, and how many all-reduces it has started: their tags.
struct Group {
  AllReduce::Members members;
  unsigned started = 0;
};

void add_bf16(void* terms, void* sums, int* count, MPI_Datatype*) {
  const auto* const term = static_cast<const Bf16*>(terms);
  auto* const sum = static_cast<Bf16*>(sums);
  for (int i = 0; i < *count; ++i) sum[i] = bf16_of(f32_of(sum[i]) + f32_of(term[i]));
}

class MpiTransport : public Transport {
 public:
  MpiTransport() {
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (initialized) throw MachineError("MPI is already initialized in this process");
    settings_ = prepare_open_mpi();
    int provided = 0;
    // One thread a rank calls MPI at a time: this one, or the one of progress.
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS)
      throw MachineError("MPI_Init_thread failed");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    char name[MPI_MAX_PROCESSOR_NAME];
    int length = 0;
    MPI_Get_processor_name(name, &length);
    host_.assign(name, static_cast<size_t>(length));
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &control_), "MPI_Comm_dup");
    int* bound = nullptr;
    int found = 0;
    check_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found), "MPI_Comm_get_attr");
    if (found) largest_tag_ = *bound;
    find_place();
    if (spans_hosts_ && provided >= MPI_THREAD_SERIALIZED)
      progress_ = std::make_unique<ProgressThread>(mutex_, [this] {
        const int steps = advance();
        return ProgressThread::Progress{pieces_.pending() || !active_.empty() || collectives_ > 0, steps};
      });
  }

  ~MpiTransport() override {
    watch_.reset();
    progress_.reset();
    for (Group& group : groups_) MPI_Comm_free(&group.members.communicator);
    MPI_Comm_free(&control_);
    MPI_Finalize();
    guard_.reset();
  }

  std::string name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string host() const override { return host_; }
  NodePlace place() const override { return place_; }

  // Those of Open MPI are of its connections to other hosts.
  Vector<std::string> settings() const override { return spans_hosts_ ? settings_ : Vector<std::string>(); }

  void watch_ranks(double limit_s) override {
    if (!progress_) return;
    guard_ = std::make_unique<LauncherGuard>(limit_s);
    const std::lock_guard lock(mutex_);
    watch_ = std::make_unique<RankWatch>(mutex_, control_, limit_s);
  }

  int largest_tag() const override { return largest_tag_; }

  Request send(const void* memory, int64_t bytes, int destination, OperationLabel label) override {
    return start(
        destination, [&](int slot) { pieces_.send(slot, memory, bytes, destination, label.tag); },
        [&](MPI_Request* request) {
          check_mpi(MPI_Isend(memory, count_of(bytes), type_of(bytes), destination, label.tag, MPI_COMM_WORLD, request),
                    "MPI_Isend");
        });
  }

  Request receive(void* memory, int64_t bytes, int source, OperationLabel label) override {
    return start(
        source, [&](int slot) { pieces_.receive(slot, memory, bytes, source, label.tag); },
        [&](MPI_Request* request) {
          check_mpi(MPI_Irecv(memory, count_of(bytes), type_of(bytes), source, label.tag, MPI_COMM_WORLD, request),
                    "MPI_Irecv");
        });
  }

  bool test(Request& request) override {
    if (!request.pending()) return true;
    const Lock lock(*this);
    advance();
    return finish(request);
  }

  void wait(Request& request) override {
    if (!request.pending()) return;
    if (!spans_hosts_ && active_.empty()) {
      check_mpi(MPI_Wait(&slots_[request.slot].request, MPI_STATUS_IGNORE), "MPI_Wait");
      return release(request);
    }
    // Everything that is on its way must go on while this rank waits for some of it.
    wait_until([&] { return test(request); });
  }

  // Open MPI moves data only inside its calls.
  void poll() override {
    const Lock lock(*this);
    if (pieces_.pending() || !active_.empty()) advance();
    else look();
  }

  Vector<GroupId> make_groups(const Vector<Vector<int>>& groups) override {
    if (watch_) barrier();  // the calls below wait for other ranks, and give no sign of life meanwhile
    const Lock lock(*this);
    Vector<GroupId> made;
    for (const Vector<int>& ranks : groups) made.push_back(make_group(ranks));
    return made;
  }

  Request all_reduce(GroupId group, float* values, int64_t elements, OperationLabel) override {
    const Lock lock(*this);
    Group& members = groups_[static_cast<size_t>(group)];
    const Request request = new_request();
    const bool chain = AllReduce::prefers_chain(members.members);
    if (!chain && members.members.size > most_ranks_of_sliced_all_reduce) {
      check_mpi(MPI_Iallreduce(MPI_IN_PLACE, values, count_of(elements * 4), MPI_FLOAT, MPI_SUM,
                               members.members.communicator, &slots_[request.slot].request),
                "MPI_Iallreduce");
      ++collectives_;
      set_going(request, Kind::collective);
      return request;
    }
    auto& spare = spare_[chain];
    if (spare.empty()) spare.push_back(chain ? chained_all_reduce() : sliced_all_reduce());
    active_.push_back({request.slot, chain, std::move(spare.back())});
    spare.pop_back();
    // MPI guarantees tags up to 32767; so many all-reduces of a group are never in flight.
    constexpr unsigned numbers = (1 << 15) / AllReduce::tags;
    const int tag = AllReduce::tags * static_cast<int>(members.started++ % numbers);
    active_.back().reduce->start(members.members, tag, values, elements);
    set_going(request, Kind::all_reduce);
    return request;
  }

  Request collective(GroupId group, const CollectiveCall& call, OperationLabel label) override {
    const DataType element = call.type;
    const MPI_Datatype type = element == DataType::bf16 ? MPI_UINT16_T : MPI_FLOAT;
    const MPI_Op sum = element == DataType::bf16 ? bf16_sum() : MPI_SUM;
    if (call.kind == CollectiveKind::all_reduce && element == DataType::f32) {
      std::memmove(call.receive, call.send, static_cast<size_t>(bytes_of(element, call.elements[0])));
      return all_reduce(group, static_cast<float*>(call.receive), call.elements[0], label);
    }
    const Lock lock(*this);
    const AllReduce::Members& members = groups_[static_cast<size_t>(group)].members;
    const Request request = new_request();
    Counts& counts = counts_of(request);
    counts.set(call, [this](int64_t count) { return checked_int(count); });
    const void* send = call.send;
    const MPI_Comm communicator = members.communicator;
    MPI_Request* started = &slots_[request.slot].request;
    switch (call.kind) {
      case CollectiveKind::all_gather:
        check_mpi(MPI_Iallgatherv(send, counts.send[members.rank], type, call.receive, counts.send.data(),
                                  counts.send_begin.data(), type, communicator, started),
                  "MPI_Iallgatherv");
        break;
      case CollectiveKind::reduce_scatter:
        check_mpi(MPI_Ireduce_scatter(send, call.receive, counts.send.data(), type, sum, communicator, started),
                  "MPI_Ireduce_scatter");
        break;
      case CollectiveKind::all_to_all:
        check_mpi(MPI_Ialltoallv(send, counts.send.data(), counts.send_begin.data(), type, call.receive,
                                 counts.receive.data(), counts.receive_begin.data(), type, communicator, started),
                  "MPI_Ialltoallv");
        break;
      case CollectiveKind::all_reduce:  // of bf16
        std::memmove(call.receive, send, static_cast<size_t>(bytes_of(element, counts.send[0])));
        check_mpi(MPI_Iallreduce(MPI_IN_PLACE, call.receive, counts.send[0], type, sum, communicator, started),
                  "MPI_Iallreduce");
        break;
      case CollectiveKind::broadcast: {
        const bool root = members.rank == call.root;
        if (root && call.receive)
          std::memcpy(call.receive, send, static_cast<size_t>(bytes_of(element, counts.send[0])));
        check_mpi(MPI_Ibcast(root ? const_cast<void*>(send) : call.receive, counts.send[0], type, call.root,
                             communicator, started),
                  "MPI_Ibcast");
        break;
      }
      case CollectiveKind::reduce:
        check_mpi(MPI_Ireduce(send == call.receive ? MPI_IN_PLACE : send, call.receive, counts.send[0], type, sum,
                              call.root, communicator, started),
                  "MPI_Ireduce");
    }
    ++collectives_;
    set_going(request, Kind::collective);
    return request;
  }

  void barrier() override {
    finish_control([&](MPI_Request* request) { check_mpi(MPI_Ibarrier(control_, request), "MPI_Ibarrier"); });
  }

  Vector<std::string> gather(const std::string& bytes) override {
    const int mine = checked_int(static_cast<int64_t>(bytes.size()));
    Vector<int> sizes(rank_ == 0 ? size_ : 0), offsets(sizes.size());
    finish_control([&](MPI_Request* request) {
      check_mpi(MPI_Igather(&mine, 1, MPI_INT, sizes.data(), 1, MPI_INT, 0, control_, request), "MPI_Igather");
    });
    int64_t total = 0;
    for (size_t r = 0; r < sizes.size(); ++r) {
      offsets[r] = checked_int(total);
      total += sizes[r];
    }
    std::string all(static_cast<size_t>(checked_int(total)), '\0');
    finish_control([&](MPI_Request* request) {
      check_mpi(MPI_Igatherv(bytes.data(), mine, MPI_BYTE, all.data(), sizes.data(), offsets.data(), MPI_BYTE, 0,
                             control_, request),
                "MPI_Igatherv");
    });
    Vector<std::string> parts;
    for (size_t r = 0; r < sizes.size(); ++r)
      parts.push_back(all.substr(static_cast<size_t>(offsets[r]), static_cast<size_t>(sizes[r])));
    return parts;
  }

  std::string broadcast(const std::string& bytes) override {
    int size = checked_int(static_cast<int64_t>(bytes.size()));
    finish_control(
        [&](MPI_Request* request) { check_mpi(MPI_Ibcast(&size, 1, MPI_INT, 0, control_, request), "MPI_Ibcast"); });
    std::string all = rank_ == 0 ? bytes : std::string(static_cast<size_t>(size), '\0');
    finish_control([&](MPI_Request* request) {
      check_mpi(MPI_Ibcast(all.data(), size, MPI_BYTE, 0, control_, request), "MPI_Ibcast");
    });
    return all;
  }

  [[noreturn]] void abort(int exit_code) override {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
  }

 private:
  // Counts and displacements of a collective in progress, which MPI reads until it is complete.
  struct Counts {
    Vector<int> send, send_begin, receive, receive_begin;
    template <class Checked>
    void set(const CollectiveCall& call, const Checked& checked) {
      const auto fill = [&](const Vector<int64_t>& from, Vector<int>& counts, Vector<int>& begins) {
        int64_t begin = 0;
        counts.clear();
        begins.clear();
        for (int64_t count : from) {
          counts.push_back(checked(count));
          begins.push_back(checked(begin));
          begin += count;
        }
      };
      fill(call.kind == CollectiveKind::all_to_all ? call.send_elements : call.elements, send, send_begin);
      fill(call.receive_elements, receive, receive_begin);
    }
  };
  Counts& counts_of(const Request& request) {
    while (counts_.size() <= static_cast<size_t>(request.slot)) counts_.push_back(std::make_unique<Counts>());
    return *counts_[request.slot];
  }

  // The ranks that can share memory are a node's.
  void find_place() {
    MPI_Comm node = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node),
              "MPI_Comm_split_type");
    MPI_Comm_set_errhandler(node, MPI_ERRORS_RETURN);
    MPI_Comm_rank(node, &place_.local_rank);
    MPI_Comm_size(node, &place_.local_size);
    place_.node = rank_;
    check_mpi(MPI_Bcast(&place_.node, 1, MPI_INT, 0, node), "MPI_Bcast");
    MPI_Comm_free(&node);
    nodes_.resize(static_cast<size_t>(size_));
    check_mpi(MPI_Allgather(&place_.node, 1, MPI_INT, nodes_.data(), 1, MPI_INT, MPI_COMM_WORLD), "MPI_Allgather");
    spans_hosts_ = std::any_of(nodes_.begin(), nodes_.end(), [&](int other) { return other != place_.node; });
  }
  bool elsewhere(int rank) const { return nodes_[rank] != place_.node; }

  GroupId make_group(const Vector<int>& ranks) {
    MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
    check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
    check_mpi(MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &group), "MPI_Group_incl");
    MPI_Comm communicator = MPI_COMM_NULL;
    check_mpi(MPI_Comm_create_group(MPI_COMM_WORLD, group, 0, &communicator), "MPI_Comm_create_group");
    MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    AllReduce::Members members{communicator, 0, static_cast<int>(ranks.size()), {}};
    MPI_Comm_rank(communicator, &members.rank);
    std::map<int, int> host_of_node;
    for (const int member : ranks.indices()) {
      const auto [it, added] = host_of_node.emplace(nodes_[ranks[member]], static_cast<int>(members.hosts.size()));
      if (added) members.hosts.emplace_back();
      members.hosts[it->second].push_back(member);
    }
    groups_.push_back({members, 0});
    return static_cast<GroupId>(groups_.size()) - 1;
  }

  // How a slot's operation goes on.
  enum class Kind { mpi_request, collective, pieces, all_reduce };
  struct ActiveAllReduce {
    int slot;
    bool chain;  // how it is done
    std::unique_ptr<AllReduce> reduce;
  };
  struct Slot {
    MPI_Request request = MPI_REQUEST_NULL;
    Kind kind = Kind::mpi_request;
  };

  // Held by whoever calls MPI, where a thread may call it too.
  class Lock {
   public:
    explicit Lock(MpiTransport& transport) : lock_(transport.mutex_, std::defer_lock) {
      if (!transport.progress_) return;
      lock_.lock();
      transport.progress_->rethrow();
      if (transport.watch_) transport.watch_->rethrow();
    }

   private:
    std::unique_lock<std::mutex> lock_;
  };

  // A message: in pieces to or from another host, else by MPI.
  template <typename InPieces, typename ByMpi>
  Request start(int peer, const InPieces& in_pieces, const ByMpi& by_mpi) {
    const Lock lock(*this);
    const Request request = new_request();
    if (elsewhere(peer)) {
      in_pieces(request.slot);
      set_going(request, Kind::pieces);
    } else {
      by_mpi(&slots_[request.slot].request);
    }
    return request;
  }

  void set_going(const Request& request, Kind kind) {
    slots_[request.slot].kind = kind;
    if (progress_) progress_->wake();
  }

  // Lets MPI move what it has been given.
  void look() {
    int found = 0;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE), "MPI_Iprobe");
  }

  // Lets everything that is on its way go on. Returns how many steps that was.
  int advance() {
    int steps = pieces_.advance();
    for (ActiveAllReduce& active : active_) steps += active.reduce->advance();
    if (steps == 0 && collectives_ > 0) look();
    return steps;
  }

  // Whether the operation is complete; then it is released.
  bool finish(Request& request) {
    Slot& slot = slots_[request.slot];
    int done = 0;
    switch (slot.kind) {
      case Kind::pieces: done = pieces_.complete(request.slot); break;
      case Kind::all_reduce: done = finish_all_reduce(request); break;
      case Kind::collective:
      case Kind::mpi_request: check_mpi(MPI_Test(&slot.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    }
    if (done && slot.kind == Kind::collective) --collectives_;
    if (done) release(request);
    return done != 0;
  }

  bool finish_all_reduce(const Request& request) {
    const auto it =
        std::find_if(active_.begin(), active_.end(), [&](const auto& active) { return active.slot == request.slot; });
    if (!it->reduce->done()) return false;
    spare_[it->chain].push_back(std::move(it->reduce));
    active_.erase(it);
    return true;
  }

  // Between hosts a wait is long: after some 2 ms it leaves the processor to others, in naps.
  template <class Done>
  void wait_until(const Done& done) {
    constexpr int looks_without_naps = 1000, nap_us = 20;
    if (progress_) progress_->rest(true);
    try {
      for (int looks = 0; !done(); ++looks)
        if (spans_hosts_ && looks >= looks_without_naps) nap(nap_us);
    } catch (...) {
      if (progress_) progress_->rest(false);
      throw;
    }
    if (progress_) progress_->rest(false);
  }

  // A collective of all ranks, while messages go on: the rank that another waits for may be this one.
  template <class Start>
  void finish_control(const Start& start) {
    MPI_Request request = MPI_REQUEST_NULL;
    {
      const Lock lock(*this);
      start(&request);
    }
    wait_until([&] {
      const Lock lock(*this);
      advance();
      int done = 0;
      check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      return done != 0;
    });
  }

  Request new_request() {
    if (free_.empty()) {
      free_.push_back(static_cast<int>(slots_.size()));
      slots_.emplace_back();
    }
    const Request request{free_.back()};
    free_.pop_back();
    slots_[request.slot] = {};
    return request;
  }
  void release(Request& request) {
    free_.push_back(request.slot);
    request.slot = -1;
  }

  // MPI has no type of its own for bf16: these are the bits.
  MPI_Op bf16_sum() {
    if (bf16_sum_ == MPI_OP_NULL) check_mpi(MPI_Op_create(add_bf16, /*commute=*/1, &bf16_sum_), "MPI_Op_create");
    return bf16_sum_;
  }

  // Most blocks consist of 4-byte elements, so that a message may have 8 GiB although MPI counts with int.
  static MPI_Datatype type_of(int64_t bytes) { return bytes % 4 == 0 ? MPI_FLOAT : MPI_BYTE; }
  int count_of(int64_t bytes) const { return checked_int(bytes % 4 == 0 ? bytes / 4 : bytes); }
  int checked_int(int64_t count) const {
    if (count > INT_MAX)
      throw MachineError("rank " + std::to_string(rank_) + " on " + host_ + ": a message of " + std::to_string(count) +
                         " elements exceeds what MPI can send");
    return static_cast<int>(count);
  }

  int rank_ = 0, size_ = 1;
  int largest_tag_ = 32767;  // what MPI guarantees
  std::string host_;
  Vector<std::string> settings_;
  NodePlace place_;
  Vector<int> nodes_;         // NodePlace::node, by rank
  bool spans_hosts_ = false;  // some rank is on another host
  MPI_Comm control_ = MPI_COMM_NULL;
  MPI_Op bf16_sum_ = MPI_OP_NULL;                       // made when it is first needed
  std::deque<Group> groups_;                            // whose addresses stay
  Vector<ActiveAllReduce> active_;                      // in the order of their start
  Array<Vector<std::unique_ptr<AllReduce>>, 2> spare_;  // by `chain`, with their scratch memory, for the next ones
  PiecedMessages pieces_;                               // to and from other hosts
  int collectives_ = 0;                                 // of MPI's own, in progress
  Vector<Slot> slots_;
  Vector<std::unique_ptr<Counts>> counts_;  // by slot
  Vector<int> free_;
  std::mutex mutex_;                          // of all above, where there is a thread
  std::unique_ptr<ProgressThread> progress_;  // where ranks are on several hosts
  std::unique_ptr<RankWatch> watch_;          // there, when it has been asked for
  std::unique_ptr<LauncherGuard> guard_;      // with it
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport() { return std::make_unique<MpiTransport>(); }

}  // namespace ff
