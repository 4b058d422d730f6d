// Open MPI's mpirun ends when the daemons of all hosts have told it that their ranks are gone. Of a host that stands
// still or cannot be reached it waits for that without end (4.1; a SIGTERM makes it crash), long after its ranks have
// ended with a message. A separate process then kills it, in addition to the ranks that mpirun started; the
// daemons of other hosts notice that and end too.
#pragma once

namespace ff {

class LauncherGuard {
 public:
  // From now on mpirun is killed if it is still there this long after this process has ended without destroying the
  // guard. Does nothing where mpirun has not started this process directly.
  explicit LauncherGuard(double grace_s);
  ~LauncherGuard();
  LauncherGuard(const LauncherGuard&) = delete;

 private:
  int pipe_ = -1, process_ = -1;
};

}  // namespace ff
