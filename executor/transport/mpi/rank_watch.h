// Whether ranks on other hosts are still there: a host that hangs or cannot be reached sends nothing, and TCP
// tells of that after a quarter of an hour. A thread of each rank sends the next one a byte every quarter of a second,
// whatever the rank computes meanwhile, and listens to the one before it: of a host that is lost, the rank after its
// last one hears nothing more.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

#include "executor/transport/mpi/calls.h"

namespace ff {

class RankWatch {
 public:
  // All ranks of the communicator make one at once, with nothing else on its way there. `mutex` is held by whoever
  // calls MPI.
  RankWatch(std::mutex& mutex, MPI_Comm communicator, double limit_s);
  ~RankWatch();

  // Throws MachineError if a rank is lost. The mutex is held.
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  void run();
  void look();
  void listen();

  std::mutex& mutex_;
  const MPI_Comm communicator_;
  const double limit_s_;
  int next_ = 0, previous_ = 0;  // ranks
  std::string previous_host_;
  char sent_ = 0, received_ = 0;
  MPI_Request send_ = MPI_REQUEST_NULL, receive_ = MPI_REQUEST_NULL;
  Clock::time_point last_look_ = Clock::now();
  double silence_s_ = 0;  // of the previous rank
  std::exception_ptr failure_;
  bool ending_ = false;
  std::condition_variable wake_;
  std::thread thread_;  // last: it uses all of these
};

}  // namespace ff
