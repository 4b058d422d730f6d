#include "search/explain/critical_path.h"

#include <catch2/catch.hpp>

#include "tests/support/search_problem.h"

using namespace ff;

namespace {

struct Explained {
  Explained(SearchProblem& problem, const Strategy& strategy, TaskOrder order = TaskOrder::fifo)
      : details(problem.evaluator.details(strategy, order)),
        causes(details.tasks, details.costs, details.timeline, details.fifo_order) {}
  Evaluator::Details details;
  TimelineCauses causes;
};

}  // namespace

TEST_CASE("links of a cluster are a few kinds, found by their name or by that of one end") {
  const LinkKinds links(load_topology(FF_SOURCE_DIR "/topologies/p100-4x4.json"));
  CHECK(links.names() == Vector<std::string>{"gpu-gpu", "gpu-host", "host-network"});
  CHECK(links.channels_of(2).size() == 8);  // both directions of 4 nodes
  CHECK(links.matching("host-network") == Vector<int>{2});
  CHECK(links.matching("host") == Vector<int>{1, 2});
  CHECK(links.matching("nvlink").empty());
}

TEST_CASE("the critical path covers the iteration without gaps, each of its tasks begins when the one before lets it") {
  SearchProblem problem("rnnlm-2step", "p100-4x4");
  RandomStream random(3, 0);
  for (int round = 0; round < 40; ++round) {
    const TaskOrder order = round % 2 == 0 ? TaskOrder::fifo : TaskOrder::latest_start;
    CAPTURE(round);
    const Explained explained(problem, problem.space.random_strategy(random), order);
    const Timeline& timeline = explained.details.timeline;
    const TaskCosts& costs = explained.details.costs;
    const Vector<int>& path = explained.causes.critical_path();
    REQUIRE(!path.empty());
    CHECK(timeline.start[path[0]] == 0);
    CHECK(timeline.end[path.back()] == timeline.makespan);
    for (const int place : path.indices()) {
      const int task = path[place];
      CHECK(explained.causes.slack(task) == 0);
      if (place == 0) continue;
      const Cause& cause = explained.causes.of(task);
      REQUIRE(cause.task == path[place - 1]);
      if (cause.wait == Wait::data) {
        CHECK(timeline.end[cause.task] == timeline.start[task]);
        continue;
      }
      CHECK((cause.wait == Wait::device) == costs.is_device(cause.resource));
      bool freed = false;
      for (const ResourceUse& use : costs.uses_of(cause.task))
        freed = freed ||
                (use.resource == cause.resource && timeline.start[cause.task] + use.occupancy == timeline.start[task]);
      CHECK(freed);
    }
    Nanoseconds sum = 0;
    for (const PathPiece& piece : merged_pieces(path_pieces(problem.evaluator.builder(), explained.details.tasks, costs,
                                                            timeline, explained.causes, LinkKinds(problem.topology))))
      sum += piece.time;
    CHECK(sum == timeline.makespan);
  }
}

TEST_CASE("a task has slack up to where it would hold up another, or the end") {
  SearchProblem problem("alexnet", "p100-4x4");
  const Explained explained(problem, data_parallel(problem.graph, problem.topology));
  const Timeline& timeline = explained.details.timeline;
  const TaskGraph& tasks = explained.details.tasks;
  Nanoseconds most = 0;
  for (const int task : tasks.tasks.indices()) {
    const Nanoseconds slack = explained.causes.slack(task);
    REQUIRE(slack >= 0);
    REQUIRE(timeline.end[task] + slack <= timeline.makespan);
    for (int32_t s = tasks.successor_begin[task]; s < tasks.successor_begin[task + 1]; ++s)
      REQUIRE(timeline.end[task] + slack <=
              timeline.start[tasks.successors[s]] + explained.causes.slack(tasks.successors[s]));
    most = std::max(most, slack);
  }
  CHECK(most > 0);
}

TEST_CASE("names of layers that repeat are one pattern, those of edges one at each end") {
  CHECK(joined_names({"layer2.norm", "layer1.norm", "layer1.norm"}) == "layer[1-2].norm");
  CHECK(joined_names({"a.t10->b.t10", "a.t9->b.t9"}) == "a.t[9-10]->b.t[9-10]");
  CHECK(joined_names({"x", "y", "z"}) == "x, y, ...");
  CHECK(without_numbers("layer12.norm1") == "layer#.norm#");
}
