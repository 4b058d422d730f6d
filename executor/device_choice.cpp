#include "executor/device_choice.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "common/json_file.h"
#include "executor/cuda/bus_id.h"

namespace ff {
namespace {

// One rank's part of the decision, on rank 0.
struct Seat {
  GpusSeen gpus;
  NodePlace place;
  std::string host;
};

std::string plural(int count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

Vector<Seat> gather_seats(const GpusSeen& seen, Transport& host) {
  const NodePlace place = host.place();
  const Json mine = {seen.count,       seen.why_none,    seen.bus_id, place.node,
                     place.local_rank, place.local_size, host.host()};
  Vector<Seat> seats;
  for (const std::string& bytes : host.gather(mine.dump())) {
    const Json json = Json::parse(bytes);
    seats.push_back({{json[0], json[1], json[2]}, {json[3], json[4], json[5]}, json[6]});
  }
  return seats;
}

// The first rank that would share its GPU with a lower one, or -1.
int first_sharing(const Vector<Seat>& seats) {
  std::map<std::pair<int, std::string>, int> taken;
  for (size_t r = 0; r < seats.size(); ++r)
    if (!taken.emplace(std::make_pair(seats[r].place.node, seats[r].gpus.bus_id), static_cast<int>(r)).second)
      return static_cast<int>(r);
  return -1;
}

std::string too_few(const Seat& seat) {
  return seat.host + " has " + plural(seat.gpus.count, "GPU") + " for " + plural(seat.place.local_size, "rank") +
         ": start at most " + plural(seat.gpus.count, "rank") +
         " a node (mpirun --map-by ppr:" + std::to_string(seat.gpus.count) +
         ":node), let ranks share GPUs with --share-gpu, or use --backend cpu";
}

// The decision, without the numbers of the GPUs. Throws MachineError.
DeviceChoice decide(const DeviceRequest& request, const Vector<Seat>& seats) {
  DeviceChoice choice;
  const bool asked = request.backend == "cuda" || (request.backend == "auto" && request.transport == "nccl");
  if (request.backend == "cpu" || (request.backend == "auto" && !asked && !request.strategy_for_gpus)) return choice;
  const bool alike = std::all_of(seats.begin(), seats.end(),
                                 [&](const Seat& seat) { return seat.gpus.why_none == seats[0].gpus.why_none; });
  for (size_t r = 0; r < seats.size(); ++r) {
    if (seats[r].gpus.count > 0) continue;
    const std::string where = alike ? "" : "rank " + std::to_string(r) + " on " + seats[r].host + ": ";
    if (asked) throw MachineError(where + seats[r].gpus.why_none);
    choice.note = "the strategy is for GPUs, running on CPUs (" + where + seats[r].gpus.why_none +
                  "): the predicted time does not apply";
    return choice;
  }
  choice.cuda = true;
  const int sharing = first_sharing(seats);
  if (sharing >= 0 && !request.share_gpu) throw MachineError(too_few(seats[sharing]));
  // NCCL refuses two ranks of one host on one GPU; NCCL_HOSTID makes them two hosts to it.
  const bool distinct = sharing < 0;
  if (request.transport == "nccl" && !distinct && !std::getenv("NCCL_HOSTID"))
    throw MachineError("NCCL needs a GPU for each rank: use --transport mpi with --share-gpu, or fewer ranks per node");
  choice.nccl = seats.size() > 1 && (request.transport == "nccl" || (request.transport == "auto" && distinct));
  return choice;
}

}  // namespace

GpusSeen look_for_gpus(const NodePlace& place) {
  GpusSeen seen;
  try {
    seen.count = cuda_device_count();
    seen.bus_id = cuda_bus_id(place.local_rank % seen.count);
  } catch (const MachineError& error) {
    seen.count = 0;
    seen.why_none = error.what();
  }
  return seen;
}

DeviceChoice choose_device(const DeviceRequest& request, const GpusSeen& seen, Transport& host) {
  const Vector<Seat> seats = gather_seats(seen, host);
  Json decision;
  std::string note;
  if (host.rank() == 0) {
    try {
      const DeviceChoice choice = decide(request, seats);
      decision = {choice.cuda, choice.nccl, ""};
      note = choice.note;
    } catch (const MachineError& error) {
      decision = {false, false, error.what()};
    }
  }
  decision = Json::parse(host.broadcast(decision.dump()));
  if (const std::string failure = decision[2]; !failure.empty()) throw MachineError(failure);
  DeviceChoice choice{decision[0], 0, decision[1], note};
  if (choice.cuda) choice.gpu = host.place().local_rank % seen.count;
  return choice;
}

}  // namespace ff
