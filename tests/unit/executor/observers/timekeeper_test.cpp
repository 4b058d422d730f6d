#include "executor/observers/timekeeper.h"

#include <catch2/catch.hpp>

namespace ff {
namespace {

// Says what it is told to: each mark 10 ns after the one before.
class FakeClock : public Clock {
 public:
  explicit FakeClock(int& begun) : begun_(begun) {}
  void begin() override {
    ++begun_;
    times_ns_.clear();
  }
  void mark() override { times_ns_.push_back(static_cast<int64_t>(10 * (times_ns_.size() + 1))); }
  const Vector<int64_t>& times_ns() override { return times_ns_; }

 private:
  int& begun_;
  Vector<int64_t> times_ns_;
};

void iterate(Timekeeper& timekeeper, bool training, int task) {
  timekeeper.begin(training);
  for (const Activity activity : {Activity::wait, Activity::copy, Activity::compute, Activity::send})
    timekeeper.did(activity, task);
  timekeeper.end();
}

}  // namespace

TEST_CASE("a clock with little overhead times every training iteration") {
  int begun = 0;
  Timekeeper timekeeper(std::make_unique<FakeClock>(begun), true);
  for (const int task : {1, 2}) iterate(timekeeper, true, task);
  iterate(timekeeper, false, 3);  // an evaluation counts for nothing
  CHECK(begun == 2);
  CHECK(timekeeper.total().busy_ns == 40);  // a copy and a kernel an iteration, 10 ns each
  CHECK(timekeeper.total().transfer_ns == 20);
  const Vector<Event>& events = timekeeper.events();
  REQUIRE(events.size() == 4);
  for (size_t i = 0; i < events.size(); ++i) {
    CHECK(events[i].task == 2);
    CHECK(events[i].end_ns - events[i].begin_ns == 10);
    CHECK((i == 0 || events[i].begin_ns == events[i - 1].end_ns));
  }
  CHECK(events[2].activity == Activity::compute);
}

TEST_CASE("a clock that costs much times the second training iteration alone") {
  int begun = 0;
  Timekeeper timekeeper(std::make_unique<FakeClock>(begun), false);
  iterate(timekeeper, false, 1);
  iterate(timekeeper, true, 2);
  CHECK(begun == 0);
  CHECK(timekeeper.total().busy_ns == 0);
  iterate(timekeeper, false, 3);
  iterate(timekeeper, true, 4);
  CHECK(begun == 1);
  CHECK(timekeeper.total().busy_ns == 20);
  iterate(timekeeper, true, 5);  // as the second, in proportion to its time
  CHECK(begun == 1);
  CHECK(timekeeper.events()[0].task == 4);
}

}  // namespace ff
