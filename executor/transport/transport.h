// How ranks exchange data. Rank r is device r of the strategy. Calls of one rank come from one thread. Every failure is a
// MachineError that names the call, the rank and the host.
//
// Sends and receives are non-blocking and match by (source, destination, tag) in the order of posting, so the same tag can be used
// in every iteration. The memory belongs to the transport from the call until `wait` or a successful `test`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ff {

// A pending operation: a slot in its transport. Reset to "none" when complete; waiting for none returns at once.
struct Request {
  int slot = -1;
  bool pending() const { return slot >= 0; }
};

using GroupId = int;

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string name() const = 0;  // "mpi", "in-process"
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string host() const = 0;

  virtual Request send(const void* memory, int64_t bytes, int destination, int tag) = 0;
  virtual Request receive(void* memory, int64_t bytes, int source, int tag) = 0;
  virtual bool test(Request& request) = 0;
  virtual void wait(Request& request) = 0;
  // Lets transfers progress; called between compute tasks, since not every transport has a thread for that.
  virtual void poll() = 0;

  // A group of ranks (ascending) for all-reduces. Every rank of it makes the same groups in the same order; other ranks do not call.
  virtual GroupId make_group(const std::vector<int>& ranks) = 0;
  // Starts summing `elements` floats of all ranks of the group, in place. The ranks start a group's all-reduces in one order.
  virtual Request all_reduce(GroupId group, float* values, int64_t elements) = 0;

  // Control data, among all ranks; they block.
  virtual void barrier() = 0;
  virtual std::vector<std::string> gather(const std::string& bytes) = 0;     // rank 0: everyone's, by rank; others: empty
  virtual std::string broadcast(const std::string& bytes) = 0;               // rank 0's on every rank

  // Ends all ranks; for the program that has printed its message.
  [[noreturn]] virtual void abort(int exit_code) = 0;
};

}  // namespace ff
