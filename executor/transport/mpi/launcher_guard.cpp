#include "executor/transport/mpi/launcher_guard.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <csignal>
#include <fstream>
#include <string>

namespace ff {
namespace {

bool is_mpirun(pid_t process) {
  std::string name;
  std::getline(std::ifstream("/proc/" + std::to_string(process) + "/comm"), name);
  return name == "mpirun" || name == "mpiexec" || name == "orterun" || name == "prterun";
}

// Of a process that has forked from one with threads: system calls alone. It holds none of the other's files, or these
// would seem open to whoever is at their other ends.
[[noreturn]] void guard(int pipe, int launcher, int grace_ms) {
  setsid();  // mpirun signals its ranks' process groups
  if (dup2(pipe, 0) < 0 || dup2(launcher, 1) < 0 || syscall(SYS_close_range, 2U, ~0U, 0U) != 0) _exit(1);
  char byte = 0;
  ssize_t bytes = 0;
  do bytes = read(0, &byte, 1);
  while (bytes < 0 && errno == EINTR);
  if (bytes == 1) _exit(0);  // all is well
  pollfd ended{1, POLLIN, 0};
  if (poll(&ended, 1, grace_ms) == 0) syscall(SYS_pidfd_send_signal, 1, SIGKILL, nullptr, 0U);
  _exit(0);
}

}  // namespace

LauncherGuard::LauncherGuard(double grace_s) {
  const pid_t parent = getppid();
  if (!is_mpirun(parent)) return;
  const int launcher = static_cast<int>(syscall(SYS_pidfd_open, parent, 0U));
  int ends[2];
  if (launcher < 0) return;  // Linux before 5.3
  if (pipe2(ends, O_CLOEXEC) == 0) {
    process_ = fork();
    if (process_ == 0)
      guard(ends[0], launcher, static_cast<int>(std::min(grace_s * 1e3, static_cast<double>(INT_MAX))));
    pipe_ = ends[1];
    close(ends[0]);
  }
  close(launcher);
}

LauncherGuard::~LauncherGuard() {
  if (pipe_ < 0) return;
  [[maybe_unused]] const ssize_t written = write(pipe_, "", 1);
  close(pipe_);
  if (process_ > 0) waitpid(process_, nullptr, 0);
}

}  // namespace ff
