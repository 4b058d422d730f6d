#include "executor/transport/mpi/all_reduce.h"

#include <algorithm>

namespace ff {

bool AllReduce::prefers_chain(const Members& members) {
  if (members.one_host()) return false;
  bool several = false;
  int next = 0;
  for (const Vector<int>& host : members.hosts) {
    several = several || host.size() > 1;
    for (const int rank : host)
      if (rank != next++) return false;
  }
  return several;
}

void AllReduce::start(const Members& members, int tag, float* values, int64_t elements) {
  members_ = &members;
  tag_ = tag;
  values_ = values;
  elements_ = elements;
  done_ = elements == 0 || members.size == 1;
  if (!done_) start();
}

AllReduce::Range AllReduce::part(int64_t slice, int64_t owner, int64_t owners) const {
  const int64_t begin = slice * part_elements * owners,
                size = std::min(elements_, begin + part_elements * owners) - begin;
  return {begin + owner * size / owners, begin + (owner + 1) * size / owners};
}

int64_t AllReduce::slices(int64_t owners) const {
  return (elements_ + part_elements * owners - 1) / (part_elements * owners);
}

void AllReduce::send(Vector<MPI_Request>& requests, const float* memory, int64_t elements, int to, int tag) {
  requests.emplace_back();
  check_mpi(MPI_Isend(memory, static_cast<int>(elements), MPI_FLOAT, to, tag_ + tag, members_->communicator,
                      &requests.back()),
            "MPI_Isend of an all-reduce");
}

void AllReduce::receive(Vector<MPI_Request>& requests, float* memory, int64_t elements, int from, int tag) {
  requests.emplace_back();
  check_mpi(MPI_Irecv(memory, static_cast<int>(elements), MPI_FLOAT, from, tag_ + tag, members_->communicator,
                      &requests.back()),
            "MPI_Irecv of an all-reduce");
}

void AllReduce::add(float* target, const float* source, int64_t elements) {
  float* __restrict sum = target;
  const float* __restrict term = source;
  for (int64_t i = 0; i < elements; ++i) sum[i] += term[i];
}

}  // namespace ff
