#include "executor/device_choice.h"

#include <catch2/catch.hpp>
#include <mutex>

#include "executor/transport/in_process.h"
#include "temporary_directory.h"

namespace ff {
namespace {

// What all ranks of one node choose; they must agree. `bus_ids`: of the GPU that each rank would take; "" for none.
DeviceChoice choose(const DeviceRequest& request, const Vector<std::string>& bus_ids, int count) {
  DeviceChoice choice;
  Vector<int> gpus(bus_ids.size());
  std::mutex mutex;
  run_in_process(static_cast<int>(bus_ids.size()), [&](Transport& transport) {
    const std::string& bus_id = bus_ids[transport.rank()];
    const GpusSeen seen{bus_id.empty() ? 0 : count, bus_id.empty() ? "no GPU: none" : "", bus_id};
    const DeviceChoice mine = choose_device(request, seen, transport);
    const std::lock_guard lock(mutex);
    gpus[transport.rank()] = mine.gpu;
    if (transport.rank() == 0) choice = mine;
    else CHECK(mine.note == "");
  });
  for (size_t r = 0; r < gpus.size(); ++r) CHECK(gpus[r] == (choice.cuda ? static_cast<int>(r) % count : 0));
  return choice;
}

std::string failure(const DeviceRequest& request, const Vector<std::string>& bus_ids, int count) {
  return message_of<MachineError>([&] { choose(request, bus_ids, count); });
}

const Vector<std::string> two = {"a", "b"}, shared = {"a", "b", "a", "b"}, none = {"", ""};

}  // namespace

TEST_CASE("GPUs for a strategy that is for GPUs, with NCCL between them") {
  const DeviceRequest request{"auto", "auto", false, true};
  const DeviceChoice choice = choose(request, two, 2);
  CHECK(choice.cuda);
  CHECK(choice.nccl);
  CHECK(choice.note == "");
  CHECK_FALSE(choose(request, {"a"}, 1).nccl);  // nobody to talk to
  CHECK(choose({"auto", "mpi", false, true}, two, 2).cuda);
  CHECK_FALSE(choose({"auto", "mpi", false, true}, two, 2).nccl);
}

TEST_CASE("CPUs for a strategy that is for CPUs, unless GPUs are asked for") {
  CHECK_FALSE(choose({"auto", "auto", false, false}, two, 2).cuda);
  CHECK_FALSE(choose({"cpu", "auto", false, true}, two, 2).cuda);
  CHECK(choose({"cuda", "auto", false, false}, two, 2).cuda);
  CHECK(choose({"auto", "nccl", false, false}, two, 2).cuda);
}

TEST_CASE("without GPUs") {
  const DeviceChoice choice = choose({"auto", "auto", false, true}, none, 0);
  CHECK_FALSE(choice.cuda);
  CHECK(choice.note == "the strategy is for GPUs, running on CPUs (no GPU: none): the predicted time does not apply");
  CHECK(choose({"auto", "auto", false, true}, {"a", ""}, 1).note ==
        "the strategy is for GPUs, running on CPUs (rank 1 on localhost: no GPU: none): the predicted time does not "
        "apply");
  CHECK(failure({"cuda", "auto", false, true}, none, 0) == "no GPU: none");
  CHECK(failure({"auto", "nccl", false, true}, none, 0) == "no GPU: none");
  CHECK(failure({"cuda", "auto", false, true}, {"a", ""}, 1) == "rank 1 on localhost: no GPU: none");
}

TEST_CASE("fewer GPUs than ranks on a node") {
  const std::string message =
      "localhost has 2 GPUs for 4 ranks: start at most 2 ranks a node (mpirun --map-by ppr:2:node), let ranks share "
      "GPUs "
      "with --share-gpu, or use --backend cpu";
  CHECK(failure({"auto", "auto", false, true}, shared, 2) == message);
  CHECK(failure({"cuda", "mpi", false, true}, shared, 2) == message);
  const DeviceChoice choice = choose({"auto", "auto", true, true}, shared, 2);
  CHECK(choice.cuda);
  CHECK_FALSE(choice.nccl);
  CHECK(failure({"cuda", "nccl", true, true}, shared, 2) ==
        "NCCL needs a GPU for each rank: use --transport mpi with --share-gpu, or fewer ranks per node");
  // A launcher that shows each rank a GPU of its own.
  CHECK(choose({"auto", "auto", false, true}, {"a", "b", "c"}, 1).nccl);
}

}  // namespace ff
