#include "search/simulator/take_task.h"

#include <catch2/catch.hpp>

namespace ff {
namespace {

// Tasks on one device, of which a quarter is occupied by collectives that run meanwhile, over one link.
class Tasks {
 public:
  Tasks() {
    costs.device_count = costs.channel_count = 1;
    costs.resource_count = 3;  // and until when there are collectives
    costs.slowed = {0.25};
    free_at.assign(3, 0);
  }
  int kernel(Nanoseconds duration) { return add(duration, 0, BesideKernels::no, costs.beside.count()); }
  int collective(Nanoseconds duration, BesideKernels kind = BesideKernels::runs, Nanoseconds work = 0) {
    costs.beside.push_back({0, work});
    return add(duration, 1, kind, costs.beside.count() - 1);
  }
  Nanoseconds take(int task, Nanoseconds ready) { return take_task(costs, task, ready, free_at); }
  Nanoseconds device_is_free() const { return free_at[0]; }

 private:
  int add(Nanoseconds duration, int32_t resource, BesideKernels kind, int32_t first_work) {
    costs.duration.push_back(duration);
    costs.uses.push_back({resource, duration});
    costs.use_ranges.push_back({costs.uses.count() - 1, costs.uses.count()});
    costs.beside_ranges.push_back({first_work, costs.beside.count()});
    costs.collectives.push_back(kind);
    return costs.duration.count() - 1;
  }

  TaskCosts costs;
  Vector<Nanoseconds> free_at;
};

}  // namespace

TEST_CASE("a kernel takes longer while a collective runs, and what comes next is later") {
  Tasks tasks;
  CHECK(tasks.take(tasks.collective(1'000), 0) == 0);
  CHECK(tasks.device_is_free() == 0);
  CHECK(tasks.take(tasks.kernel(300), 0) == 0);
  CHECK(tasks.device_is_free() == 400);  // three quarters of the device in 400 ns
  CHECK(tasks.take(tasks.kernel(900), 400) == 400);
  CHECK(tasks.device_is_free() == 1'450);  // 600 ns beside the collective, of which 150 are lost
  CHECK(tasks.take(tasks.kernel(100), 1'450) == 1'450);
  CHECK(tasks.device_is_free() == 1'550);
}

TEST_CASE("a collective slows the kernel that runs when it begins") {
  Tasks tasks;
  tasks.take(tasks.kernel(1'000), 0);
  CHECK(tasks.take(tasks.collective(400), 200) == 200);
  CHECK(tasks.device_is_free() == 1'100);
  // Of two that overlap in time the second one slows by what is beyond the first.
  CHECK(tasks.take(tasks.collective(400), 200) == 600);
  CHECK(tasks.device_is_free() == 1'200);
}

TEST_CASE("a device that computes nothing loses nothing to a collective") {
  Tasks tasks;
  tasks.take(tasks.collective(1'000), 0);
  CHECK(tasks.take(tasks.kernel(100), 1'000) == 1'000);
  CHECK(tasks.device_is_free() == 1'100);
}

// Two that are ready at once follow each other on the link.
TEST_CASE("a device computes while a collective waits for its link, but where it waits for the collective to begin") {
  for (const bool waits : {false, true}) {
    CAPTURE(waits);
    Tasks tasks;
    const BesideKernels kind = waits ? BesideKernels::waited_for : BesideKernels::runs;
    tasks.take(tasks.collective(1'000, kind), 0);
    CHECK(tasks.take(tasks.collective(1'000, kind), 0) == 1'000);
    CHECK(tasks.take(tasks.kernel(400), 0) == (waits ? 1'000 : 0));
  }
}

TEST_CASE("a device's own work for a collective counts from when that is ready") {
  Tasks tasks;
  tasks.take(tasks.collective(1'000), 0);
  CHECK(tasks.take(tasks.collective(1'000, BesideKernels::runs, 50), 10) == 1'000);
  CHECK(tasks.device_is_free() == 60);
}

}  // namespace ff
