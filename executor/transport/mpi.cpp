#include "executor/transport/mpi.h"

#define OMPI_SKIP_MPICXX 1  // the C interface alone
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <climits>
#include <cstdlib>

#include "common/errors.h"

namespace ff {
namespace {

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
  }

  ~MpiTransport() override {
    for (MPI_Comm& group : groups_) MPI_Comm_free(&group);
    MPI_Comm_free(&control_);
    MPI_Finalize();
  }

  std::string name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string host() const override { return host_; }

  Request send(const void* memory, int64_t bytes, int destination, int tag) override {
    const Request request = new_request();
    check(MPI_Isend(memory, count_of(bytes), type_of(bytes), destination, tag, MPI_COMM_WORLD, &slots_[request.slot]), "MPI_Isend");
    return request;
  }

  Request receive(void* memory, int64_t bytes, int source, int tag) override {
    const Request request = new_request();
    check(MPI_Irecv(memory, count_of(bytes), type_of(bytes), source, tag, MPI_COMM_WORLD, &slots_[request.slot]), "MPI_Irecv");
    return request;
  }

  bool test(Request& request) override {
    if (!request.pending()) return true;
    int done = 0;
    check(MPI_Test(&slots_[request.slot], &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done) release(request);
    return done != 0;
  }

  void wait(Request& request) override {
    if (!request.pending()) return;
    check(MPI_Wait(&slots_[request.slot], MPI_STATUS_IGNORE), "MPI_Wait");
    release(request);
  }

  // Open MPI moves data only inside its calls.
  void poll() override {
    int found = 0;
    check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE), "MPI_Iprobe");
  }

  GroupId make_group(const std::vector<int>& ranks) override {
    MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
    check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
    check(MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &group), "MPI_Group_incl");
    MPI_Comm communicator = MPI_COMM_NULL;
    check(MPI_Comm_create_group(MPI_COMM_WORLD, group, 0, &communicator), "MPI_Comm_create_group");
    MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    groups_.push_back(communicator);
    return static_cast<GroupId>(groups_.size()) - 1;
  }

  Request all_reduce(GroupId group, float* values, int64_t elements) override {
    const Request request = new_request();
    check(MPI_Iallreduce(MPI_IN_PLACE, values, count_of(elements * 4), MPI_FLOAT, MPI_SUM, groups_[group], &slots_[request.slot]),
          "MPI_Iallreduce");
    return request;
  }

  void barrier() override { check(MPI_Barrier(control_), "MPI_Barrier"); }

  std::vector<std::string> gather(const std::string& bytes) override {
    const int mine = checked_int(static_cast<int64_t>(bytes.size()));
    std::vector<int> sizes(static_cast<size_t>(rank_ == 0 ? size_ : 0)), offsets(sizes.size());
    check(MPI_Gather(&mine, 1, MPI_INT, sizes.data(), 1, MPI_INT, 0, control_), "MPI_Gather");
    int64_t total = 0;
    for (size_t r = 0; r < sizes.size(); ++r) {
      offsets[r] = checked_int(total);
      total += sizes[r];
    }
    std::string all(static_cast<size_t>(checked_int(total)), '\0');
    check(MPI_Gatherv(bytes.data(), mine, MPI_BYTE, all.data(), sizes.data(), offsets.data(), MPI_BYTE, 0, control_), "MPI_Gatherv");
    std::vector<std::string> parts;
    for (size_t r = 0; r < sizes.size(); ++r) parts.push_back(all.substr(static_cast<size_t>(offsets[r]), static_cast<size_t>(sizes[r])));
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
    throw MachineError("rank " + std::to_string(rank_) + " on " + host_ + ": " + call + ": " + std::string(text, static_cast<size_t>(length)));
  }

  int rank_ = 0, size_ = 1;
  std::string host_;
  MPI_Comm control_ = MPI_COMM_NULL;
  std::vector<MPI_Comm> groups_;
  std::vector<MPI_Request> slots_;
  std::vector<int> free_;
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport() { return std::make_unique<MpiTransport>(); }

}  // namespace ff
