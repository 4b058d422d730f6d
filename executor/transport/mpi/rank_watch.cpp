#include "executor/transport/mpi/rank_watch.h"

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "common/errors.h"

namespace ff {
namespace {

constexpr std::chrono::milliseconds distance(250);  // between signs of life
constexpr int tag = 0;

}  // namespace

RankWatch::RankWatch(std::mutex& mutex, MPI_Comm communicator, double limit_s)
    : mutex_(mutex), communicator_(communicator), limit_s_(limit_s) {
  int rank = 0, size = 1, length = 0;
  MPI_Comm_rank(communicator, &rank);
  MPI_Comm_size(communicator, &size);
  next_ = (rank + 1) % size;
  previous_ = (rank + size - 1) % size;
  char mine[MPI_MAX_PROCESSOR_NAME] = {}, theirs[MPI_MAX_PROCESSOR_NAME] = {};
  MPI_Get_processor_name(mine, &length);
  check_mpi(MPI_Sendrecv(mine, MPI_MAX_PROCESSOR_NAME, MPI_CHAR, next_, tag, theirs, MPI_MAX_PROCESSOR_NAME, MPI_CHAR,
                         previous_, tag, communicator, MPI_STATUS_IGNORE),
            "MPI_Sendrecv");
  previous_host_ = theirs;
  listen();
  thread_ = std::thread([this] { run(); });
}

RankWatch::~RankWatch() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
  MPI_Cancel(&receive_);
  MPI_Request_free(&receive_);
  if (send_ != MPI_REQUEST_NULL) MPI_Request_free(&send_);
}

void RankWatch::listen() {
  check_mpi(MPI_Irecv(&received_, 1, MPI_CHAR, previous_, tag, communicator_, &receive_), "MPI_Irecv");
}

void RankWatch::run() {
  sigset_t all;  // signals are the program's
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, distance, [this] { return ending_; }) && !failure_) {
    try {
      look();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
}

void RankWatch::look() {
  const Clock::time_point now = Clock::now();
  // Time in which this process itself stood still says nothing of the other.
  silence_s_ += std::chrono::duration<double>(std::min<Clock::duration>(now - last_look_, 2 * distance)).count();
  last_look_ = now;
  int done = 0;
  check_mpi(MPI_Test(&send_, &done, MPI_STATUS_IGNORE), "MPI_Test");
  if (done) check_mpi(MPI_Isend(&sent_, 1, MPI_CHAR, next_, tag, communicator_, &send_), "MPI_Isend");
  while (true) {
    check_mpi(MPI_Test(&receive_, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (!done) break;
    silence_s_ = 0;
    listen();
  }
  if (silence_s_ <= limit_s_) return;
  char limit[32];
  std::snprintf(limit, sizeof limit, "%g", limit_s_);
  throw MachineError("no sign of life from rank " + std::to_string(previous_) + " on " + previous_host_ + " for " +
                     limit + " s: it hangs, or the network is cut");
}

}  // namespace ff
