// The simulators' queue against a sorted set.
#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "search/simulator/delta/event_queue.h"

using namespace ff;
using namespace ff::delta;

namespace {

struct Earlier {
  bool operator()(const Event& a, const Event& b) const { return earlier(a, b); }
};

bool same(const Event& a, const Event& b) {
  return a.ready == b.ready && a.key == b.key && a.index == b.index && a.holder == b.holder;
}

// Random pushes after what was taken last, pops, and now and then a save and load, so much later. `spread`: how far
// after.
void exercise(std::mt19937& random, EventQueue& queue, Nanoseconds spread, int steps) {
  std::set<Event, Earlier> expected;
  const auto below = [&](int64_t limit) { return static_cast<int64_t>(random() % static_cast<uint64_t>(limit)); };
  Nanoseconds now = 0;
  TaskKey next_key = 0;
  for (int step = 0; step < steps; ++step) {
    const int64_t choice = below(100);
    if (choice < 52 || expected.empty()) {
      // Many at one time, some far away.
      const Nanoseconds ready = now + (choice % 3 == 0   ? spread / 2
                                       : choice % 7 == 0 ? 40 * spread + below(spread)
                                                         : below(spread));
      const Event event{ready, static_cast<TaskKey>(below(2) ? 1 : 2) << 40 | ++next_key, static_cast<int32_t>(step),
                        static_cast<int32_t>(below(9))};
      queue.push(event);
      expected.insert(event);
    } else if (choice < 98) {
      REQUIRE(same(queue.front(), *expected.begin()));
      const Event event = queue.pop();
      REQUIRE(same(event, *expected.begin()));
      expected.erase(expected.begin());
      now = event.ready;
    } else {
      const Nanoseconds later = below(2) * below(spread);
      Vector<Event> saved;
      queue.save(saved);
      REQUIRE(saved.size() == expected.size());
      REQUIRE(std::equal(saved.begin(), saved.end(), expected.begin(), same));
      queue.load(saved, later);
      expected.clear();
      for (Event event : saved) {
        event.ready += later;
        expected.insert(event);
      }
      now += later;
    }
    REQUIRE(queue.size() == expected.size());
    REQUIRE(queue.empty() == expected.empty());
  }
}

}  // namespace

TEST_CASE("the event queue hands out events in order") {
  std::mt19937 random(7);
  EventQueue queue;
  for (const Nanoseconds spread : {Nanoseconds{1}, Nanoseconds{50}, Nanoseconds{5000}, Nanoseconds{3000000}})
    for (int round = 0; round < 6; ++round) {
      queue.clear();
      // After a first round with a long queue, buckets of every width, too narrow and too wide ones included.
      if (round > 0) queue.set_density(static_cast<size_t>(1) << (4 * round), 100 * spread);
      exercise(random, queue, spread, 3000);
      queue.clear();
      for (int i = 0; i < 600; ++i) queue.push({i, static_cast<TaskKey>(i), 0, 0});
    }
}
