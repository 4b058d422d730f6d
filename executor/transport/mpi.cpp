#include "executor/transport/mpi.h"

#define OMPI_SKIP_MPICXX 1  // the C interface alone
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "common/errors.h"

namespace ff {
namespace {

// A group's communicator, and how many all-reduces it has started: their tags.
struct Group {
  MPI_Comm communicator;
  int rank, size;
  unsigned started = 0;
};

// An all-reduce in progress. MPI_Iallreduce of Open MPI 4.1 takes twice as long as MPI_Allreduce from 128 KiB on, and
// that one leaves the cache: of 64 MiB among 2 ranks they take 54 and 29 ms, this one 10 ms (4 MiB: 1.3, 0.6, 0.4). Up
// to `exchange_bytes`, every rank sends all its values to every other. Beyond, the values are reduced slice by slice:
// each rank owns a part of the slice, receives the others' values of it, adds them in rank order and sends the sums
// back: 2 (k-1)/k times the bytes, as a ring.
class AllReduce {
 public:
  static constexpr int most_ranks = 8;  // beyond, the k-1 messages at once would crowd a network

  void start(const Group& group, int tag, float* values, int64_t elements) {
    group_ = group;
    tag_ = tag;
    values_ = values;
    elements_ = elements;
    slice_begin_ = 0;
    exchange_ = elements * 4 <= exchange_bytes;
    done_ = elements == 0 || group.size == 1;
    if (!done_) begin_slice();
  }

  bool done() const { return done_; }

  // Goes as far as the messages that have arrived allow. Returns MPI's error code.
  int advance() {
    while (!done_) {
      int arrived = 0;
      const int code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &arrived, MPI_STATUSES_IGNORE);
      if (code != MPI_SUCCESS || error_ != MPI_SUCCESS) return code != MPI_SUCCESS ? code : error_;
      if (!arrived) return MPI_SUCCESS;
      if (!adding_) {
        next_slice();
        continue;
      }
      add();
      if (exchange_) next_slice();
      else send_sums();
    }
    return error_;
  }

 private:
  static constexpr int64_t exchange_bytes = 16 << 10;
  // of a slice, for each rank: 128 KiB stay in the cache between the two steps
  static constexpr int64_t part_elements = 32 << 10;

  int64_t slice_end() const {
    return exchange_ ? elements_ : std::min(elements_, slice_begin_ + part_elements * group_.size);
  }
  // What rank `owner` reduces of this slice.
  std::pair<int64_t, int64_t> part(int owner) const {
    if (exchange_) return {0, elements_};
    const int64_t size = slice_end() - slice_begin_;
    return {slice_begin_ + owner * size / group_.size, slice_begin_ + (owner + 1) * size / group_.size};
  }
  float* received(int from) {
    return scratch_.data() + (from < group_.rank ? from : from - 1) * (exchange_ ? elements_ : part_elements);
  }

  void send(int to, int64_t begin, int64_t end) {
    requests_.emplace_back();
    note(MPI_Isend(values_ + begin, static_cast<int>(end - begin), MPI_FLOAT, to, tag_, group_.communicator,
                   &requests_.back()));
  }
  void receive(int from, float* memory, int64_t elements) {
    requests_.emplace_back();
    note(MPI_Irecv(memory, static_cast<int>(elements), MPI_FLOAT, from, tag_, group_.communicator, &requests_.back()));
  }
  void note(int code) {
    if (code != MPI_SUCCESS) error_ = code;
  }

  void begin_slice() {
    const auto [begin, end] = part(group_.rank);
    const size_t needed = static_cast<size_t>((group_.size - 1) * (exchange_ ? elements_ : part_elements));
    if (scratch_.size() < needed) scratch_.resize(needed);
    requests_.clear();
    for (int other = 0; other < group_.size; ++other)
      if (other != group_.rank) receive(other, received(other), end - begin);
    for (int other = 0; other < group_.size; ++other)
      if (other != group_.rank) send(other, part(other).first, part(other).second);
    adding_ = true;
  }

  // In rank order, so that every rank computes the same bits.
  void add() {
    const auto [begin, end] = part(group_.rank);
    float* __restrict mine = values_ + begin;
    const int64_t count = end - begin;
    if (group_.rank > 0) {
      float* __restrict sum = received(0);
      for (int other = 1; other < group_.size; ++other) {
        const float* __restrict values = other == group_.rank ? mine : received(other);
        for (int64_t i = 0; i < count; ++i) sum[i] += values[i];
      }
      std::memcpy(mine, sum, static_cast<size_t>(count) * sizeof(float));
    } else {
      for (int other = 1; other < group_.size; ++other) {
        const float* __restrict values = received(other);
        for (int64_t i = 0; i < count; ++i) mine[i] += values[i];
      }
    }
  }

  void send_sums() {
    const auto [begin, end] = part(group_.rank);
    requests_.clear();
    for (int other = 0; other < group_.size; ++other)
      if (other != group_.rank) receive(other, values_ + part(other).first, part(other).second - part(other).first);
    for (int other = 0; other < group_.size; ++other)
      if (other != group_.rank) send(other, begin, end);
    adding_ = false;
  }

  void next_slice() {
    slice_begin_ = slice_end();
    done_ = slice_begin_ == elements_;
    if (!done_) begin_slice();
  }

  Group group_{};
  int tag_ = 0;
  float* values_ = nullptr;
  int64_t elements_ = 0, slice_begin_ = 0;
  bool exchange_ = false, adding_ = false, done_ = true;
  int error_ = MPI_SUCCESS;
  Vector<MPI_Request> requests_;
  Vector<float> scratch_;
};

class MpiTransport : public Transport {
 public:
  MpiTransport() {
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (initialized) throw MachineError("MPI is already initialized in this process");
    int provided = 0;
    // One thread a rank calls MPI.
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
      throw MachineError("MPI_Init_thread failed");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    char name[MPI_MAX_PROCESSOR_NAME];
    int length = 0;
    MPI_Get_processor_name(name, &length);
    host_.assign(name, static_cast<size_t>(length));
    check(MPI_Comm_dup(MPI_COMM_WORLD, &control_), "MPI_Comm_dup");
    int* bound = nullptr;
    int found = 0;
    check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found), "MPI_Comm_get_attr");
    if (found) largest_tag_ = *bound;
    find_place();
  }

  ~MpiTransport() override {
    for (Group& group : groups_) MPI_Comm_free(&group.communicator);
    MPI_Comm_free(&control_);
    MPI_Finalize();
  }

  std::string name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string host() const override { return host_; }
  NodePlace place() const override { return place_; }

  int largest_tag() const override { return largest_tag_; }

  Request send(const void* memory, int64_t bytes, int destination, OperationLabel label) override {
    const Request request = new_request();
    check(MPI_Isend(memory, count_of(bytes), type_of(bytes), destination, label.tag, MPI_COMM_WORLD,
                    &slots_[request.slot]),
          "MPI_Isend");
    return request;
  }

  Request receive(void* memory, int64_t bytes, int source, OperationLabel label) override {
    const Request request = new_request();
    check(MPI_Irecv(memory, count_of(bytes), type_of(bytes), source, label.tag, MPI_COMM_WORLD, &slots_[request.slot]),
          "MPI_Irecv");
    return request;
  }

  bool test(Request& request) override {
    if (!request.pending()) return true;
    advance_all_reduces();
    if (is_all_reduce(request)) return finish_all_reduce(request);
    int done = 0;
    check(MPI_Test(&slots_[request.slot], &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done) release(request);
    return done != 0;
  }

  void wait(Request& request) override {
    // All-reduces must go on while this rank waits for something else.
    while (request.pending() && !active_.empty()) test(request);
    if (!request.pending()) return;
    check(MPI_Wait(&slots_[request.slot], MPI_STATUS_IGNORE), "MPI_Wait");
    release(request);
  }

  // Open MPI moves data only inside its calls.
  void poll() override {
    if (!active_.empty()) return advance_all_reduces();
    int found = 0;
    check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE), "MPI_Iprobe");
  }

  Vector<GroupId> make_groups(const Vector<Vector<int>>& groups) override {
    Vector<GroupId> made;
    for (const Vector<int>& ranks : groups) made.push_back(make_group(ranks));
    return made;
  }

  Request all_reduce(GroupId group, float* values, int64_t elements, OperationLabel) override {
    Group& members = groups_[group];
    const Request request = new_request();
    if (members.size > AllReduce::most_ranks) {
      check(MPI_Iallreduce(MPI_IN_PLACE, values, count_of(elements * 4), MPI_FLOAT, MPI_SUM, members.communicator,
                           &slots_[request.slot]),
            "MPI_Iallreduce");
      return request;
    }
    if (spare_.empty()) spare_.push_back(std::make_unique<AllReduce>());
    active_.emplace_back(request.slot, std::move(spare_.back()));
    spare_.pop_back();
    constexpr unsigned tags = 1 << 14;  // MPI guarantees 32767; so many all-reduces of a group are never in flight
    active_.back().second->start(members, static_cast<int>(members.started++ % tags), values, elements);
    return request;
  }

  Request collective(GroupId group, const CollectiveCall& call, OperationLabel label) override {
    if (call.kind == CollectiveKind::all_reduce) {
      std::memcpy(call.receive, call.send, static_cast<size_t>(call.elements[0]) * sizeof(float));
      return all_reduce(group, call.receive, call.elements[0], label);
    }
    const Group& members = groups_[group];
    const Request request = new_request();
    Counts& counts = counts_of(request);
    counts.set(call, [this](int64_t count) { return checked_int(count); });
    const float* send = call.send;
    const MPI_Comm communicator = members.communicator;
    MPI_Request* started = &slots_[request.slot];
    switch (call.kind) {
      case CollectiveKind::all_gather:
        check(MPI_Iallgatherv(send, counts.send[members.rank], MPI_FLOAT, call.receive, counts.send.data(),
                              counts.send_begin.data(), MPI_FLOAT, communicator, started),
              "MPI_Iallgatherv");
        break;
      case CollectiveKind::reduce_scatter:
        check(MPI_Ireduce_scatter(send, call.receive, counts.send.data(), MPI_FLOAT, MPI_SUM, communicator, started),
              "MPI_Ireduce_scatter");
        break;
      case CollectiveKind::all_to_all:
        check(MPI_Ialltoallv(send, counts.send.data(), counts.send_begin.data(), MPI_FLOAT, call.receive,
                             counts.receive.data(), counts.receive_begin.data(), MPI_FLOAT, communicator, started),
              "MPI_Ialltoallv");
        break;
      case CollectiveKind::all_reduce: break;  // above
      case CollectiveKind::broadcast: {
        const bool root = members.rank == call.root;
        if (root && call.receive) std::memcpy(call.receive, send, static_cast<size_t>(counts.send[0]) * sizeof(float));
        check(MPI_Ibcast(root ? const_cast<float*>(send) : call.receive, counts.send[0], MPI_FLOAT, call.root,
                         communicator, started),
              "MPI_Ibcast");
        break;
      }
      case CollectiveKind::reduce:
        check(MPI_Ireduce(send == call.receive ? MPI_IN_PLACE : send, call.receive, counts.send[0], MPI_FLOAT, MPI_SUM,
                          call.root, communicator, started),
              "MPI_Ireduce");
    }
    return request;
  }

  void barrier() override { check(MPI_Barrier(control_), "MPI_Barrier"); }

  Vector<std::string> gather(const std::string& bytes) override {
    const int mine = checked_int(static_cast<int64_t>(bytes.size()));
    Vector<int> sizes(rank_ == 0 ? size_ : 0), offsets(sizes.size());
    check(MPI_Gather(&mine, 1, MPI_INT, sizes.data(), 1, MPI_INT, 0, control_), "MPI_Gather");
    int64_t total = 0;
    for (size_t r = 0; r < sizes.size(); ++r) {
      offsets[r] = checked_int(total);
      total += sizes[r];
    }
    std::string all(static_cast<size_t>(checked_int(total)), '\0');
    check(MPI_Gatherv(bytes.data(), mine, MPI_BYTE, all.data(), sizes.data(), offsets.data(), MPI_BYTE, 0, control_),
          "MPI_Gatherv");
    Vector<std::string> parts;
    for (size_t r = 0; r < sizes.size(); ++r)
      parts.push_back(all.substr(static_cast<size_t>(offsets[r]), static_cast<size_t>(sizes[r])));
    return parts;
  }

  std::string broadcast(const std::string& bytes) override {
    int size = checked_int(static_cast<int64_t>(bytes.size()));
    check(MPI_Bcast(&size, 1, MPI_INT, 0, control_), "MPI_Bcast");
    std::string all = rank_ == 0 ? bytes : std::string(static_cast<size_t>(size), '\0');
    check(MPI_Bcast(all.data(), size, MPI_BYTE, 0, control_), "MPI_Bcast");
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
    check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
    MPI_Comm_set_errhandler(node, MPI_ERRORS_RETURN);
    MPI_Comm_rank(node, &place_.local_rank);
    MPI_Comm_size(node, &place_.local_size);
    place_.node = rank_;
    check(MPI_Bcast(&place_.node, 1, MPI_INT, 0, node), "MPI_Bcast");
    MPI_Comm_free(&node);
  }

  GroupId make_group(const Vector<int>& ranks) {
    MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
    check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
    check(MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &group), "MPI_Group_incl");
    MPI_Comm communicator = MPI_COMM_NULL;
    check(MPI_Comm_create_group(MPI_COMM_WORLD, group, 0, &communicator), "MPI_Comm_create_group");
    MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    Group made{communicator, 0, static_cast<int>(ranks.size())};
    MPI_Comm_rank(communicator, &made.rank);
    groups_.push_back(made);
    return static_cast<GroupId>(groups_.size()) - 1;
  }

  bool is_all_reduce(const Request& request) const {
    return std::any_of(active_.begin(), active_.end(),
                       [&](const auto& active) { return active.first == request.slot; });
  }

  void advance_all_reduces() {
    for (auto& [slot, reduce] : active_) check(reduce->advance(), "all-reduce");
  }

  bool finish_all_reduce(Request& request) {
    const auto it =
        std::find_if(active_.begin(), active_.end(), [&](const auto& active) { return active.first == request.slot; });
    if (!it->second->done()) return false;
    spare_.push_back(std::move(it->second));
    active_.erase(it);
    release(request);
    return true;
  }

  Request new_request() {
    if (free_.empty()) {
      free_.push_back(static_cast<int>(slots_.size()));
      slots_.push_back(MPI_REQUEST_NULL);
    }
    const Request request{free_.back()};
    free_.pop_back();
    return request;
  }
  void release(Request& request) {
    free_.push_back(request.slot);
    request.slot = -1;
  }

  // Blocks consist of 4-byte elements, so that a message may have 8 GiB although MPI counts with int.
  static MPI_Datatype type_of(int64_t bytes) { return bytes % 4 == 0 ? MPI_FLOAT : MPI_BYTE; }
  int count_of(int64_t bytes) const { return checked_int(bytes % 4 == 0 ? bytes / 4 : bytes); }
  int checked_int(int64_t count) const {
    if (count > INT_MAX)
      throw MachineError("rank " + std::to_string(rank_) + " on " + host_ + ": a message of " + std::to_string(count) +
                         " elements exceeds what MPI can send");
    return static_cast<int>(count);
  }

  void check(int code, const char* call) const {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    throw MachineError("rank " + std::to_string(rank_) + " on " + host_ + ": " + call + ": " +
                       std::string(text, static_cast<size_t>(length)));
  }

  int rank_ = 0, size_ = 1;
  int largest_tag_ = 32767;  // what MPI guarantees
  std::string host_;
  NodePlace place_;
  MPI_Comm control_ = MPI_COMM_NULL;
  Vector<Group> groups_;
  Vector<std::pair<int, std::unique_ptr<AllReduce>>> active_;  // by request slot, in the order of their start
  Vector<std::unique_ptr<AllReduce>> spare_;                   // with their scratch memory, for the next ones
  Vector<MPI_Request> slots_;
  Vector<std::unique_ptr<Counts>> counts_;  // by slot
  Vector<int> free_;
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport() { return std::make_unique<MpiTransport>(); }

}  // namespace ff
