// How ranks exchange data. Rank r is device r of the strategy. Calls of one rank come from one thread. Every failure is
// a MachineError that names the call, the rank and the host.
//
// Sends and receives are non-blocking and match by (source, destination, tag) in the order of posting, so the same tag
// can be used in every iteration. The memory belongs to the transport from the call until `wait` or a successful
// `test`.
//
// Three kinds of transport differ in two properties:
//                      follows_backend  ordered
//   mpi, in_process    no               no       memory is the host's; the caller has waited for the backend before it
//                      sends
//   staging            yes              no       memory is a GPU's, copied through the host
//   nccl               yes              yes      memory is a GPU's; the GPUs exchange data themselves
// One that follows the backend takes calls while the backend still works: a send or an all-reduce takes effect after
// everything the backend was given before it, and `wait` holds back what the backend is given afterwards, not (or not
// only) the caller. An ordered one has no tags to match by: all ranks start transfers and all-reduces in one total
// order (ProgramPlan::transfer_groups), at both ends.
#pragma once

#include <climits>
#include <cstdint>
#include <memory>
#include <string>

#include "common/errors.h"
#include "common/vector.h"
#include "executor/transport/collective_call.h"

namespace ff {

// A pending operation: a slot in its transport. Reset to "none" when complete; waiting for none returns at once.
struct Request {
  int slot = -1;
  bool pending() const { return slot >= 0; }
};

using GroupId = int;

// What the ends of an operation match by, and the caller's task, which only it knows: for messages, -1 for none.
struct OperationLabel {
  OperationLabel(int tag, int task = -1) : tag(tag), task(task) {}
  int tag, task;
};

// A failure found after the call that caused it. `task` is that operation's, -1 when it is not known.
class TransportError : public MachineError {
 public:
  TransportError(const std::string& message, int task) : MachineError(message), task(task) {}
  int task;
};

// Where a rank runs: the ranks of a node share its memory and its GPUs.
struct NodePlace {
  int node = 0;        // the lowest rank on this node
  int local_rank = 0;  // this rank's number among those of its node
  int local_size = 1;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string name() const = 0;  // "mpi", "in-process", "staging", "nccl"
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string host() const = 0;
  virtual NodePlace place() const = 0;
  // What this program has told the library beneath it, NAME=VALUE, where that matters to what ranks exchange.
  virtual Vector<std::string> settings() const { return {}; }
  // From now on a rank on another host that gives no sign of life for so long is a failure, of whichever call comes
  // next. All ranks call, before anything else. Nothing between ranks of one host: mpirun sees their processes.
  virtual void watch_ranks(double /*limit_s*/) {}
  virtual bool follows_backend() const { return false; }
  virtual bool ordered() const { return false; }
  // The one for host memory, when this one is for a GPU's.
  virtual Transport& for_host_memory() { return *this; }

  // Tags of sends and receives are from 0 to this.
  virtual int largest_tag() const { return INT_MAX; }
  virtual Request send(const void* memory, int64_t bytes, int destination, OperationLabel label) = 0;
  virtual Request receive(void* memory, int64_t bytes, int source, OperationLabel label) = 0;
  virtual bool test(Request& request) = 0;
  virtual void wait(Request& request) = 0;
  // Lets transfers progress; called between compute tasks, since not every transport has a thread for that.
  virtual void poll() = 0;

  // Groups of ranks (each ascending) for collectives. All ranks call, each with the groups that it is in, in ascending
  // order.
  virtual Vector<GroupId> make_groups(const Vector<Vector<int>>& groups) = 0;
  // Starts summing `elements` floats of all ranks of the group, in place. The ranks start a group's all-reduces in one
  // order, which is all that they match by.
  virtual Request all_reduce(GroupId group, float* values, int64_t elements, OperationLabel label) {
    return collective(group, {CollectiveKind::all_reduce, -1, values, values, {elements}, {}, {}}, label);
  }

  // Starts a collective of the group; its memory is the transport's until it is complete. The ranks start a group's
  // collectives and all-reduces in one order.
  virtual Request collective(GroupId group, const CollectiveCall& call, OperationLabel label) = 0;

  // For transports that follow the backend or are ordered; nothing in the others.
  // Sets up the connections to these ranks. All ranks call, once a program.
  virtual void connect(const Vector<int>& /*destinations*/, const Vector<int>& /*sources*/) {}
  // The receives that follow may write to their memory once the backend has done what it has been given so far.
  virtual void begin_iteration() {}
  // From now on receives that start may write to memory that the backend has been using; of ordered transports.
  virtual void receives_follow() {}
  // Transfers between these two start together.
  virtual void begin_group() {}
  virtual void end_group() {}
  // What the backend is given from now on comes after all transfers and all-reduces.
  virtual void end_iteration() {}
  // Returns when the backend is done and no other rank waits for a call of this one. Throws TransportError for what has
  // gone wrong meanwhile.
  virtual void finish_iteration() {}
  // After a failure of this rank: gives up all transfers, so that nothing in this process waits for another rank.
  virtual void give_up() {}

  // Control data, among all ranks; they block.
  virtual void barrier() = 0;
  // rank 0: everyone's, by rank; others: empty
  virtual Vector<std::string> gather(const std::string& bytes) = 0;
  virtual std::string broadcast(const std::string& bytes) = 0;  // rank 0's on every rank

  // Ends all ranks; for the program that has printed its message.
  [[noreturn]] virtual void abort(int exit_code) = 0;
};

}  // namespace ff
