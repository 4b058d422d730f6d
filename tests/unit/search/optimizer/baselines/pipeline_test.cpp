#include "search/optimizer/baselines/pipeline.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <numeric>

#include "tests/support/random_source.h"
#include "tests/support/search_problem.h"

using namespace ff;

namespace {

// Of one way to cut: the place in `sizes` and the first item of every stage.
Nanoseconds slowest_stage(const Vector<Vector<Nanoseconds>>& times, const Vector<int>& places,
                          const Vector<int>& first_item) {
  Nanoseconds slowest = 0;
  for (const int stage : places.indices()) {
    const int end = stage + 1 < first_item.count() ? first_item[stage + 1] : times[0].count();
    Nanoseconds time = 0;
    for (int item = first_item[stage]; item < end; ++item) time += times[places[stage]][item];
    slowest = std::max(slowest, time);
  }
  return slowest;
}

// By trying every cut.
Nanoseconds least_slowest_stage(const Vector<Vector<Nanoseconds>>& times, const Vector<int>& sizes, int stages,
                                int devices) {
  Nanoseconds least = std::numeric_limits<Nanoseconds>::max();
  for_each_choice(Vector<int>(stages, sizes.count()), [&](const Vector<int>& places) {
    int used = 0;
    for (const int place : places) used += sizes[place];
    if (used > devices) return;
    for_each_choice(Vector<int>(stages, times[0].count()), [&](const Vector<int>& first_item) {
      if (first_item[0] == 0 &&
          std::adjacent_find(first_item.begin(), first_item.end(), std::greater_equal<>()) == first_item.end())
        least = std::min(least, slowest_stage(times, places, first_item));
    });
  });
  return least;
}

}  // namespace

TEST_CASE("stages of several devices are cut as well as by trying every cut") {
  RandomSource random(1);
  int found_none = 0;
  for (int round = 0; round < 300; ++round) {
    const int devices = static_cast<int>(random.between(2, 8)), items = static_cast<int>(random.between(1, 5));
    const int stages = static_cast<int>(random.between(1, 4));
    Vector<int> sizes;
    for (int size = 1; size < devices; ++size)
      if (devices % size == 0 && (sizes.empty() || random.between(0, 3) > 0)) sizes.push_back(size);
    if (sizes.size() > 1 && random.between(0, 1)) sizes.erase(sizes.begin());
    Vector<Vector<Nanoseconds>> times(sizes.size(), Vector<Nanoseconds>(items));
    for (auto& row : times)
      for (Nanoseconds& time : row) time = random.between(0, 9);
    const Nanoseconds least = least_slowest_stage(times, sizes, stages, devices);
    const std::optional<StageCut> cut = cut_into_stages(times, sizes, stages, devices);
    INFO("round " << round);
    REQUIRE(cut.has_value() == (least < std::numeric_limits<Nanoseconds>::max()));
    if (!cut) {
      ++found_none;
      continue;
    }
    REQUIRE(cut->first_item.count() == stages);
    REQUIRE(std::accumulate(cut->devices.begin(), cut->devices.end(), 0) <= devices);
    Vector<int> places;
    for (const int size : cut->devices)
      places.push_back(static_cast<int>(std::find(sizes.begin(), sizes.end(), size) - sizes.begin()));
    REQUIRE(slowest_stage(times, places, cut->first_item) == least);
  }
  CHECK(found_none > 10);
  CHECK(found_none < 200);
}

TEST_CASE("pipeline: four recurrent layers on four nodes, faster than data parallelism") {
  SearchProblem rnntc(load_graph(FF_SOURCE_DIR "/graphs/rnntc.json", 1024),
                      load_topology(FF_SOURCE_DIR "/topologies/p100-4x4.json"));
  const AlgorithmResult result = rnntc.run("pipeline");
  CHECK(result.note == "layers in stages, split by sample over 4, 4, 4, 4 devices, each stage on neighbouring devices");
  for (const OperatorId op : rnntc.graph.operator_ids()) {
    const std::string& name = rnntc.graph.operators[op].name;
    const Configuration& configuration = result.strategy[op];
    INFO(name);
    REQUIRE(configuration.parts() == 4);
    REQUIRE(configuration.degrees[0] == 4);
    if (name.rfind("lstm", 0) != 0) continue;
    const DeviceId first = 4 * (name[4] - '1');
    REQUIRE(configuration.devices == Vector<DeviceId>{first, first + 1, first + 2, first + 3});
  }
  const Strategy by_sample = data_parallel(rnntc.graph, rnntc.topology);
  CHECK(rnntc.evaluator.evaluate(result.strategy).makespan < rnntc.evaluator.evaluate(by_sample).makespan);
}

TEST_CASE("pipeline: operators with fewer samples than a stage has devices") {
  SearchProblem nmt(load_graph(FF_SOURCE_DIR "/graphs/nmt.json", 2),
                    load_topology(FF_SOURCE_DIR "/topologies/p100-4x4.json"));
  for (const Configuration& configuration : nmt.run("pipeline").strategy) {
    REQUIRE(configuration.degrees[0] <= 2);
    REQUIRE(configuration.devices.count() == configuration.parts());
  }
}

TEST_CASE("pipeline: not without steps, and not on one device") {
  SearchProblem alexnet("alexnet");
  CHECK_THROWS_AS(alexnet.run("pipeline"), NotApplicable);
  SearchProblem alone("rnntc", "local-cpu-1");
  CHECK_THROWS_AS(alone.run("pipeline"), NotApplicable);
}
