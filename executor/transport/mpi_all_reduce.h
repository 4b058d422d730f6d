// An all-reduce over MPI's messages. MPI_Iallreduce of Open MPI 4.1 takes twice as long as MPI_Allreduce from 128 KiB
// on, and that one leaves the cache: of 64 MiB among 2 ranks of a host they take 54 and 29 ms, this one 10 ms (4 MiB:
// 1.3, 0.6, 0.4).
//
// Up to `exchange_bytes`, every rank sends all its values to every other. Beyond, the values are reduced slice by slice:
// each rank owns a part of the slice, receives the others' values of it, adds them in rank order and sends the sums back:
// 2 (k-1)/k times the bytes, as a ring. Within a host one slice at a time stays in the cache. Between hosts a link would
// stand idle while a slice turns around, so several are on their way.
#pragma once

#include <utility>

#include "common/vector.h"
#include "executor/transport/mpi_calls.h"

namespace ff {

class AllReduce {
 public:
  static constexpr int most_ranks = 8;  // beyond, the k-1 messages at once would crowd a network
  static constexpr int tags = 2;        // that each needs, from the one that `start` gets

  struct Members {
    MPI_Comm communicator;
    int rank, size;
    bool one_host;
  };

  // `values` are summed in place, the same bits on all ranks.
  void start(const Members& members, int tag, float* values, int64_t elements);
  bool done() const { return done_; }
  // Goes as far as the messages that have arrived allow. Returns how many steps that was.
  int advance();

 private:
  static constexpr int64_t exchange_bytes = 16 << 10;
  static constexpr int64_t part_elements = 32 << 10;  // of a slice, for each rank: 128 KiB
  static constexpr int64_t slices_between_hosts = 8;  // 2 MiB between two ranks: 17 ms of 1 Gb/s, 1.7 ms of 10 Gb/s

  // What one of the slices on their way waits for.
  struct Lane {
    Vector<MPI_Request> requests;
    Vector<float> received;  // [other ranks, elements of a part]
  };

  int64_t slices() const;
  std::pair<int64_t, int64_t> slice_range(int64_t slice) const;
  // What rank `owner` reduces of the slice.
  std::pair<int64_t, int64_t> part(int64_t slice, int owner) const;
  Lane& lane(int64_t slice) { return lanes_[slice % static_cast<int64_t>(lanes_.size())]; }
  float* received(int64_t slice, int from);
  void send(Lane& lane, int to, int64_t begin, int64_t end, int tag);
  void receive(Lane& lane, int from, float* memory, int64_t elements, int tag);
  void begin(int64_t slice);
  void add(int64_t slice);
  void send_sums(int64_t slice);

  Members members_{};
  int tag_ = 0;
  float* values_ = nullptr;
  int64_t elements_ = 0;
  bool exchange_ = false, done_ = true;
  // Slices in [0, begun_) have sent their values, those in [0, added_) their sums, those in [0, finished_) are done.
  // Ranks take slices in order in each step, so that messages match by it.
  int64_t begun_ = 0, added_ = 0, finished_ = 0;
  Vector<Lane> lanes_;
};

}  // namespace ff
