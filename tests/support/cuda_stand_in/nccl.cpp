// NCCL among threads and processes of one machine. What ranks tell each other are files of a directory in memory
// (/dev/shm), written under another name and then renamed; the receiver removes them.
//
// An operation blocks until its data has arrived at the other ranks, who need not have room for it before they ask; it
// occupies its device meanwhile: no other operation of any communicator begins (streams.cpp). Operations of a
// communicator keep the order of their calls; those of several communicators too where NCCL_LAUNCH_ORDER_IMPLICIT is 1
// and the version 2.26 or newer (NCCL documentation, environment variables), or else come in any order. Ranks that wait
// for each other in a circle for ever find that out (Blocked).
#include "include/nccl.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "common/kernels/bf16.h"
#include "library.h"

using namespace cuda_stand_in;
namespace files = std::filesystem;

struct NcclStandInCommunicator {
  std::string directory, name;
  int rank = 0, size = 0, device = 0;
  std::vector<int> world_ranks;            // of its ranks
  std::map<int, uint64_t> sent, received;  // messages, by peer
  uint64_t collectives = 0, splits = 0;
  WorkPointer last;  // its latest operation, and in which recording
  std::shared_ptr<Capture> last_capture;
  bool aborted = false;
};

namespace {

enum class Kind { send, receive, all_reduce, reduce, reduce_scatter, all_gather, broadcast };
constexpr const char* kind_names[] = {"send",           "receive",    "all-reduce", "reduce",
                                      "reduce-scatter", "all-gather", "broadcast"};

struct Operation {
  Kind kind;
  const char* send;
  char* receive;
  size_t count;
  ncclDataType_t type;
  int other;  // the peer, or the root
  ncclComm_t communicator;
  cudaStream_t stream;

  size_t bytes() const { return count * (type == ncclFloat32 ? 4 : type == ncclBfloat16 ? 2 : 1); }
  std::string text() const {
    std::string ranks;
    for (int rank : communicator->world_ranks) ranks += " " + std::to_string(rank);
    const int of = communicator->world_ranks[static_cast<size_t>(std::max(other, 0))];
    return std::string(kind_names[static_cast<int>(kind)]) +
           (kind == Kind::send ? " to rank " + std::to_string(of) : "") +
           (kind == Kind::receive ? " from rank " + std::to_string(of) : "") + " of " + std::to_string(bytes()) +
           " bytes among ranks" + ranks;
  }
};

thread_local int group_depth = 0;
thread_local std::vector<Operation> group;
thread_local std::string last_error;
std::map<int, std::pair<WorkPointer, std::shared_ptr<Capture>>> latest;  // operation of any communicator, by device

int version() {
  const char* text = std::getenv("FF_NCCL_STAND_IN_VERSION");
  return text ? std::atoi(text) : 22809;
}
bool implicit_order() {
  const char* text = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  return text && std::string(text) == "1" && version() >= 22600;
}

void write_file(const std::string& directory, const std::string& name, const std::string& text) {
  static std::atomic<int> number{0};
  const std::string own = directory + "/.new-" + std::to_string(getpid()) + "-" + std::to_string(++number);
  std::ofstream(own, std::ios::binary) << text;
  std::error_code ignored;
  files::rename(own, directory + "/" + name, ignored);
}
bool read_file(const std::string& path, std::string& text) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return false;
  text.assign(std::istreambuf_iterator<char>(file), {});
  return true;
}
// Of all ranks, in their order; blocks.
std::vector<std::string> exchange(const std::string& directory, const std::string& name, int rank, int size,
                                  const std::string& own) {
  write_file(directory, name + "-" + std::to_string(rank), own);
  std::vector<std::string> all(static_cast<size_t>(size));
  for (int other = 0; other < size; ++other)
    while (!read_file(directory + "/" + name + "-" + std::to_string(other), all[static_cast<size_t>(other)]))
      std::this_thread::sleep_for(std::chrono::microseconds(200));
  return all;
}

ncclResult_t fail(ncclResult_t result, const std::string& why) {
  last_error = why;
  return result;
}

// One group of operations while it runs.
struct Running {
  struct Incoming {
    std::string path;
    const Operation* operation;
    int from;  // rank of the communicator
  };
  bool begun = false;
  std::vector<std::string> outgoing;  // paths, until they were taken
  std::vector<int> outgoing_to;       // world ranks
  std::vector<Incoming> incoming;
  std::map<const Operation*, std::map<int, std::string>> arrived;  // data, by rank
  uint64_t polls = 0;
};

// What a rank that is blocked tells the others: that it looked again, at which operation, and whom it waits for. If
// all ranks that can be reached from one are blocked, and nothing changes while each of them looks twice, and twice
// again, then they wait for ever. In the first round each takes what has arrived; in the second one each sees whether
// what it gave was taken, which whom it waits for need not show (one that waits for the same rank in both directions).
// Twice, because the first look may have begun before the round. A rank that was seen before another one had begun may
// not have looked at what that one sent: so all are seen anew when one of them changes.
class Blocked {
 public:
  static std::string circle(const NcclStandInCommunicator& own, const Running& running, const Operation& operation,
                            const std::set<int>& waits_for) {
    static std::map<std::string, Observation> observations;  // by path
    const int self = own.world_ranks[static_cast<size_t>(own.rank)];
    const std::string verdict = own.directory + "/deadlock";  // of the rank that finds it first
    if (std::string known; read_file(verdict, known)) return known;
    static uint64_t serial = 0;
    if (running.polls == 1) ++serial;
    std::string waits;
    for (int rank : waits_for) waits += " " + std::to_string(rank);
    write_file(own.directory, "blocked-" + std::to_string(self),
               std::to_string(serial) + " " + std::to_string(running.polls) + waits + "\n" + operation.text());
    Observation& before = observations[own.directory + std::to_string(self)];
    if (before.own_operation != serial) before = {serial, 0, {}};
    std::map<int, std::string> found{{self, operation.text()}};
    const std::map<int, Seen> now = reached_from(own, self, waits_for, found);
    const auto same = [](const auto& a, const auto& b) {
      return a.first == b.first && a.second.operation == b.second.operation && a.second.waits_for == b.second.waits_for;
    };
    if (now.empty() || !std::equal(now.begin(), now.end(), before.ranks.begin(), before.ranks.end(), same)) {
      before = {serial, 0, now};
      return "";
    }
    for (const auto& [rank, other] : now)
      if (other.polls < before.ranks.at(rank).polls + 2) return "";
    if (++before.rounds < 2) {
      before.ranks = now;
      return "";
    }
    std::string text;
    for (const auto& [rank, its_operation] : found)
      text += (text.empty() ? "rank " : "; rank ") + std::to_string(rank) + " in " + its_operation;
    write_file(own.directory, "deadlock", text);
    return text;
  }

  static void ends(const NcclStandInCommunicator& own) {
    std::error_code ignored;
    files::remove(own.directory + "/blocked-" + std::to_string(own.world_ranks[static_cast<size_t>(own.rank)]),
                  ignored);
  }

 private:
  struct Seen {
    uint64_t operation, polls;
    std::vector<int> waits_for;
  };
  struct Observation {
    uint64_t own_operation = 0;
    int rounds = 0;  // that are complete
    std::map<int, Seen> ranks;
  };

  // The other ranks that one waits for, and those that these wait for; empty: not all of them are blocked.
  static std::map<int, Seen> reached_from(const NcclStandInCommunicator& own, int self, const std::set<int>& waits_for,
                                          std::map<int, std::string>& operations) {
    std::map<int, Seen> reached;
    std::vector<int> todo(waits_for.begin(), waits_for.end());
    while (!todo.empty()) {
      const int rank = todo.back();
      todo.pop_back();
      if (rank == self || reached.contains(rank)) continue;
      std::string text;
      if (!read_file(own.directory + "/blocked-" + std::to_string(rank), text)) return {};
      std::istringstream line(text.substr(0, text.find('\n')));
      Seen one{};
      line >> one.operation >> one.polls;
      for (int next; line >> next;) one.waits_for.push_back(next);
      todo.insert(todo.end(), one.waits_for.begin(), one.waits_for.end());
      reached.emplace(rank, std::move(one));
      operations[rank] = text.substr(text.find('\n') + 1);
    }
    return reached;
  }
};

void begin(const LibraryCall& call, const std::vector<Operation>& operations, Running& running) {
  running.begun = true;
  for (const Operation& one : operations) {
    NcclStandInCommunicator& own = *one.communicator;
    const size_t ranks = static_cast<size_t>(own.size), bytes = one.bytes();
    const auto path = [&](const std::string& sort, int from, int to, uint64_t number) {
      return own.name + "-" + sort + std::to_string(number) + "-" + std::to_string(from) + "-" + std::to_string(to);
    };
    const auto give = [&](const std::string& name, int to, const char* data, size_t size) {
      std::string text = (one.kind == Kind::send ? "message of " + std::to_string(bytes) + " bytes" : one.text()) +
                         " root " + std::to_string(one.kind == Kind::send ? 0 : one.other) + "\n";
      if (size) text.append(data, size);
      write_file(own.directory, name, text);
      running.outgoing.push_back(own.directory + "/" + name);
      running.outgoing_to.push_back(own.world_ranks[static_cast<size_t>(to)]);
    };
    if (one.kind == Kind::send) {
      if (!call.reads("what is sent", one.send, bytes)) return;
      give(path("m", own.rank, one.other, own.sent[one.other]++), one.other, one.send, bytes);
      continue;
    }
    if (one.kind == Kind::receive) {
      running.incoming.push_back(
          {own.directory + "/" + path("m", one.other, own.rank, own.received[one.other]++), &one, one.other});
      continue;
    }
    const bool has_data = one.kind != Kind::broadcast || own.rank == one.other;
    const size_t sent_bytes = one.kind == Kind::reduce_scatter ? bytes * ranks : bytes;
    if (has_data && !call.reads("what is sent", one.send, sent_bytes)) return;
    const uint64_t number = own.collectives++;
    for (int rank = 0; rank < own.size; ++rank) {
      const bool needs = has_data && (one.kind != Kind::reduce || rank == one.other);
      const size_t offset = one.kind == Kind::reduce_scatter ? bytes * static_cast<size_t>(rank) : 0;
      if (rank == own.rank) {
        running.arrived[&one][rank] = needs ? std::string(one.send + offset, bytes) : "";
        continue;
      }
      give(path("c", own.rank, rank, number), rank, one.send + offset, needs ? bytes : 0);
      running.incoming.push_back({own.directory + "/" + path("c", rank, own.rank, number), &one, rank});
    }
  }
}

// Takes what has arrived. Whether nothing is missing.
bool look(const LibraryCall& call, Running& running) {
  for (size_t i = 0; i < running.incoming.size();) {
    const Running::Incoming& incoming = running.incoming[i];
    std::string text;
    if (!read_file(incoming.path, text)) {
      ++i;
      continue;
    }
    const Operation& one = *incoming.operation;
    const std::string head = text.substr(0, text.find('\n')),
                      expected = (one.kind == Kind::receive ? "message of " + std::to_string(one.bytes()) + " bytes"
                                                            : one.text()) +
                                 " root " + std::to_string(one.kind == Kind::receive ? 0 : one.other);
    const int from = one.communicator->world_ranks[static_cast<size_t>(incoming.from)];
    if (head != expected)
      call.fail("expected \"" + expected + "\", rank " + std::to_string(from) + " has \"" + head + "\"");
    running.arrived[&one][incoming.from] = text.substr(text.find('\n') + 1);
    std::error_code ignored;
    files::remove(incoming.path, ignored);
    running.incoming.erase(running.incoming.begin() + static_cast<std::ptrdiff_t>(i));
  }
  for (size_t i = 0; i < running.outgoing.size();) {
    std::error_code ignored;
    if (files::exists(running.outgoing[i], ignored)) {
      ++i;
      continue;
    }
    running.outgoing.erase(running.outgoing.begin() + static_cast<std::ptrdiff_t>(i));
    running.outgoing_to.erase(running.outgoing_to.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return running.incoming.empty() && running.outgoing.empty();
}

// Sums in the order of ranks, so that all ranks have the same bits.
void sum_bf16_into(char* target, const std::map<int, std::string>& parts, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    ff::Bf16 sum = 0;
    for (const auto& [rank, data] : parts) {
      ff::Bf16 value;
      std::memcpy(&value, data.data() + i * sizeof value, sizeof value);
      sum = ff::bf16_of(ff::f32_of(sum) + ff::f32_of(value));
    }
    std::memcpy(target + i * sizeof sum, &sum, sizeof sum);
  }
}
void sum_into(char* target, const std::map<int, std::string>& parts, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    float sum = 0;
    bool first = true;
    for (const auto& [rank, data] : parts) {
      float value;
      std::memcpy(&value, data.data() + i * sizeof value, sizeof value);
      sum = first ? value : sum + value;
      first = false;
    }
    std::memcpy(target + i * sizeof sum, &sum, sizeof sum);
  }
}

void end(const LibraryCall& call, const std::vector<Operation>& operations, Running& running) {
  for (const Operation& one : operations) {
    const NcclStandInCommunicator& own = *one.communicator;
    const std::map<int, std::string>& parts = running.arrived[&one];
    const size_t bytes = one.bytes(),
                 received = one.kind == Kind::all_gather ? bytes * static_cast<size_t>(own.size) : bytes;
    if (one.kind == Kind::send || (one.kind == Kind::reduce && own.rank != one.other)) continue;
    if (!call.writes("what is received", one.receive, received)) return;
    switch (one.kind) {
      case Kind::receive: std::memcpy(one.receive, parts.at(one.other).data(), bytes); break;
      case Kind::broadcast: std::memcpy(one.receive, parts.at(one.other).data(), bytes); break;
      case Kind::all_gather:
        for (const auto& [rank, data] : parts)
          std::memcpy(one.receive + bytes * static_cast<size_t>(rank), data.data(), bytes);
        break;
      default:
        if (one.type == ncclBfloat16) sum_bf16_into(one.receive, parts, one.count);
        else sum_into(one.receive, parts, one.count);
    }
  }
}

Progress run(const LibraryCall& call, const std::vector<Operation>& operations, Running& running) {
  if (operations[0].communicator->aborted || !communication_failure().empty()) return Progress::done;
  if (!running.begun) begin(call, operations, running);
  if (device_failed()) return Progress::done;
  const bool complete = look(call, running);
  if (device_failed()) return Progress::done;
  if (!complete) {
    ++running.polls;
    std::set<int> waits_for(running.outgoing_to.begin(), running.outgoing_to.end());
    const Operation* stuck = &operations[0];
    for (const Running::Incoming& incoming : running.incoming) {
      waits_for.insert(incoming.operation->communicator->world_ranks[static_cast<size_t>(incoming.from)]);
      stuck = incoming.operation;
    }
    const std::string circle = Blocked::circle(*stuck->communicator, running, *stuck, waits_for);
    if (!circle.empty()) {
      communication_failure() = "deadlock: " + circle;
      std::fprintf(stderr, "CUDA stand-in: %s\n", communication_failure().c_str());
    }
    return Progress::blocked;
  }
  Blocked::ends(*operations[0].communicator);
  end(call, operations, running);
  running = {};  // a graph may run it again
  return Progress::done;
}

// Operations of one communicator and one group, as one piece of work.
ncclResult_t launch(const std::vector<Operation>& operations) {
  const std::lock_guard lock(state_mutex());
  NcclStandInCommunicator& own = *operations[0].communicator;
  for (const Operation& one : operations)
    if (one.stream != operations[0].stream) return fail(ncclInvalidUsage, "a group of several streams");
  const cudaStream_t stream = operations[0].stream;
  const auto work = std::make_shared<Work>();
  work->name = "NCCL " + operations[0].text();
  work->communicates = true;
  const auto running = std::make_shared<Running>();
  const auto kept = std::make_shared<std::vector<Operation>>(operations);
  work->run = [call = LibraryCall(work->name, own.device), kept, running] { return run(call, *kept, *running); };
  const std::shared_ptr<Capture> capture = capture_of(stream);
  if (own.last && own.last_capture == capture) work->follows.push_back(own.last);
  if (const auto before = latest.find(own.device);
      implicit_order() && before != latest.end() && before->second.second == capture && before->second.first)
    work->follows.push_back(before->second.first);
  own.last = work;
  own.last_capture = capture;
  latest[own.device] = {work, capture};
  return submit(stream, work) == cudaSuccess ? ncclSuccess : fail(ncclUnhandledCudaError, "a CUDA call failed");
}

ncclResult_t add(const Operation& operation) {
  if (!operation.communicator) return fail(ncclInvalidArgument, "no communicator");
  const int size = operation.communicator->size;
  if (operation.other < -1 || operation.other >= size)
    return fail(ncclInvalidArgument, "no rank " + std::to_string(operation.other) + " of " + std::to_string(size));
  if (!operation.stream) return fail(ncclInvalidArgument, "the stand-in knows no default stream");
  group.push_back(operation);
  return group_depth > 0 ? ncclSuccess : (++group_depth, ncclGroupEnd());
}

Operation make(Kind kind, const void* send, void* receive, size_t count, ncclDataType_t type, int other,
               ncclComm_t communicator, cudaStream_t stream) {
  return {kind, static_cast<const char*>(send), static_cast<char*>(receive), count, type, other, communicator, stream};
}

void leave(ncclComm_t communicator) {
  std::error_code ignored;
  write_file(communicator->directory, "left-" + communicator->name + "-" + std::to_string(communicator->rank), "");
  if (communicator->name != "world") return;
  for (int rank = 0; rank < communicator->size; ++rank)
    if (!files::exists(communicator->directory + "/left-world-" + std::to_string(rank), ignored)) return;
  files::remove_all(communicator->directory, ignored);
}

}  // namespace

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
  }
  return "unknown result code";
}
const char* ncclGetLastError(ncclComm_t) {
  return communication_failure().empty() ? last_error.c_str() : communication_failure().c_str();
}
ncclResult_t ncclGetVersion(int* number) {
  *number = version();
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "/dev/shm/ff-nccl-stand-in-XXXXXX");
  return mkdtemp(id->internal) ? ncclSuccess : fail(ncclSystemError, "no directory in /dev/shm");
}

ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank) {
  if (ranks < 1 || rank < 0 || rank >= ranks) return fail(ncclInvalidArgument, "rank or size");
  auto made = std::make_unique<NcclStandInCommunicator>();
  made->directory = id.internal;
  made->name = "world";
  made->rank = rank;
  made->size = ranks;
  made->device = current_device();
  for (int r = 0; r < ranks; ++r) made->world_ranks.push_back(r);
  const char* host = std::getenv("NCCL_HOSTID");
  const std::vector<std::string> places = exchange(
      made->directory, "place", rank, ranks, (host ? host : "host") + std::string(" ") + std::to_string(made->device));
  for (int r = 0; r < ranks; ++r)
    if (r != rank && places[static_cast<size_t>(r)] == places[static_cast<size_t>(rank)])
      return fail(ncclInvalidUsage, "Duplicate GPU detected : rank " + std::to_string(rank) + " and rank " +
                                        std::to_string(r) + " both on CUDA device " + std::to_string(made->device));
  *communicator = made.release();
  return ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t communicator, int color, int key, ncclComm_t* made, ncclConfig_t*) {
  const std::string name = communicator->name + ".split" + std::to_string(communicator->splits++);
  const std::vector<std::string> all = exchange(communicator->directory, name, communicator->rank, communicator->size,
                                                std::to_string(color) + " " + std::to_string(key));
  *made = nullptr;
  if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  std::vector<std::pair<int, int>> members;  // key, rank
  for (int rank = 0; rank < communicator->size; ++rank) {
    std::istringstream text(all[static_cast<size_t>(rank)]);
    int its_color = 0, its_key = 0;
    text >> its_color >> its_key;
    if (its_color == color) members.push_back({its_key, rank});
  }
  std::sort(members.begin(), members.end());
  auto one = std::make_unique<NcclStandInCommunicator>();
  one->directory = communicator->directory;
  one->name = name + "c" + std::to_string(color);
  one->size = static_cast<int>(members.size());
  one->device = communicator->device;
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i].second == communicator->rank) one->rank = static_cast<int>(i);
    one->world_ranks.push_back(communicator->world_ranks[static_cast<size_t>(members[i].second)]);
  }
  *made = one.release();
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  const std::lock_guard lock(state_mutex());
  run_until(communicator->last_capture ? nullptr : communicator->last);
  leave(communicator);
  return ncclSuccess;  // work that was recorded may still know it
}
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  const std::lock_guard lock(state_mutex());
  communicator->aborted = true;
  leave(communicator);
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* state) {
  const std::lock_guard lock(state_mutex());
  *state = communication_failure().empty() ? ncclSuccess : ncclInternalError;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group_depth <= 0) return fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group_depth > 0) return ncclSuccess;
  std::vector<Operation> all;
  all.swap(group);
  std::vector<ncclComm_t> communicators;
  for (const Operation& one : all)
    if (std::find(communicators.begin(), communicators.end(), one.communicator) == communicators.end())
      communicators.push_back(one.communicator);
  for (ncclComm_t communicator : communicators) {
    std::vector<Operation> own;
    std::copy_if(all.begin(), all.end(), std::back_inserter(own),
                 [&](const Operation& one) { return one.communicator == communicator; });
    if (const ncclResult_t result = launch(own); result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

ncclResult_t ncclSend(const void* memory, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return add(make(Kind::send, memory, nullptr, count, type, peer, communicator, stream));
}
ncclResult_t ncclRecv(void* memory, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return add(make(Kind::receive, nullptr, memory, count, type, peer, communicator, stream));
}
ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t communicator, cudaStream_t stream) {
  return add(make(Kind::all_reduce, send, receive, count, type, -1, communicator, stream));
}
ncclResult_t ncclReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t, int root,
                        ncclComm_t communicator, cudaStream_t stream) {
  return add(make(Kind::reduce, send, receive, count, type, root, communicator, stream));
}
ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t receive_count, ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t communicator, cudaStream_t stream) {
  return add(make(Kind::reduce_scatter, send, receive, receive_count, type, -1, communicator, stream));
}
ncclResult_t ncclAllGather(const void* send, void* receive, size_t send_count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) {
  return add(make(Kind::all_gather, send, receive, send_count, type, -1, communicator, stream));
}
ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
  return add(make(Kind::broadcast, send, receive, count, type, root, communicator, stream));
}
