// All-reduces over MPI's messages. MPI_Iallreduce of Open MPI 4.1 takes twice as long as MPI_Allreduce from 128 KiB on,
// and that one leaves the cache: of 64 MiB among 2 ranks of a host they take 54 and 29 ms, this one 10 ms (4 MiB: 1.3,
// 0.6, 0.4).
//
// The values are reduced slice by slice, so that they stay in the cache; every rank computes the same bits, as the
// terms are added in rank order. Within a host one slice is on its way at a time. Between hosts a link would stand
// idle while a slice turns around, so several are.
#pragma once

#include <memory>
#include <utility>

#include "common/vector.h"
#include "executor/transport/mpi/calls.h"

namespace ff {

class AllReduce {
 public:
  static constexpr int tags = 4;  // that each needs, from the one that `start` gets

  struct Members {
    MPI_Comm communicator;
    int rank, size;
    Vector<Vector<int>> hosts;  // the ranks of each, ascending
    bool one_host() const { return hosts.size() == 1; }
  };

  // Several ranks on each of several hosts, and ranks of a host stand together: chained_all_reduce then moves half as
  // much between 2 hosts of 2 ranks as sliced_all_reduce.
  static bool prefers_chain(const Members& members);

  virtual ~AllReduce() = default;
  // `values` are summed in place. `members` outlive the all-reduce.
  void start(const Members& members, int tag, float* values, int64_t elements);
  bool done() const { return done_; }
  // Goes as far as the messages that have arrived allow. Returns how many steps that was.
  virtual int advance() = 0;

 protected:
  static constexpr int64_t part_elements = 32 << 10;  // of a slice, for each rank that adds: 128 KiB
  static constexpr int64_t slices_between_hosts = 8;  // 2 MiB between two ranks: 17 ms of 1 Gb/s, 1.7 ms of 10 Gb/s

  struct Range {
    int64_t begin, end;
    int64_t size() const { return end - begin; }
  };

  // Begins the first slices.
  virtual void start() = 0;
  void finish() { done_ = true; }
  const Members& members() const { return *members_; }
  int rank() const { return members_->rank; }
  float* values() { return values_; }
  int64_t elements() const { return elements_; }
  // What the `owner`th of `owners` adds of a slice that each of them has a part of.
  Range part(int64_t slice, int64_t owner, int64_t owners) const;
  int64_t slices(int64_t owners) const;

  void send(Vector<MPI_Request>& requests, const float* memory, int64_t elements, int to, int tag);
  void receive(Vector<MPI_Request>& requests, float* memory, int64_t elements, int from, int tag);
  // target[i] += source[i]
  static void add(float* target, const float* source, int64_t elements);

 private:
  const Members* members_ = nullptr;
  int tag_ = 0;
  float* values_ = nullptr;
  int64_t elements_ = 0;
  bool done_ = true;
};

// Up to 16 KiB every rank sends all its values to every other. Beyond, each rank owns a part of each slice, receives
// the others' values of it, adds them and sends the sums back: 2 (k-1)/k times the bytes, as a ring. For up to 8
// ranks: with more, the k-1 messages at once would crowd a network.
std::unique_ptr<AllReduce> sliced_all_reduce();
constexpr int most_ranks_of_sliced_all_reduce = 8;

// For prefers_chain. Of each host, some rank adds what its host's ranks have of a part to what comes from the host
// before, and hands it on to the next host; from the last one the sums go back the same way. So a link between two
// hosts carries all bytes once in each direction, both at once, however many ranks share it.
std::unique_ptr<AllReduce> chained_all_reduce();

}  // namespace ff
