#include "executor/processor_share.h"

#include <catch2/catch.hpp>

namespace ff {
namespace {

RankProcessors rank(std::set<int> allowed, int node = 0) {
  return {node, "n" + std::to_string(node), {std::move(allowed), 0, 0}};
}

}  // namespace

TEST_CASE("ranks of a node divide the processors that they may use") {
  CHECK(processor_shares({rank({0, 1, 2, 3})}) == Vector<double>{4});
  CHECK(processor_shares({rank({0, 1}), rank({0, 1})}) == Vector<double>{1, 1});
  CHECK(processor_shares({rank({0}), rank({1})}) == Vector<double>{1, 1});           // pinned
  CHECK(processor_shares({rank({0}), rank({0, 1})}) == Vector<double>{0.5, 1.5});    // one of them pinned
  CHECK(processor_shares({rank({0, 1}), rank({0, 1}, 1)}) == Vector<double>{2, 2});  // two nodes
  CHECK(processor_shares({rank({0}), rank({0}), rank({0}), rank({0})})[3] == 0.25);
}

TEST_CASE("a quota is divided among the ranks of its node, what Slurm gives to a task is its own") {
  Vector<RankProcessors> ranks{rank({0, 1, 2, 3}), rank({0, 1, 2, 3})};
  for (RankProcessors& each : ranks) each.processors.quota = 3;
  CHECK(processor_shares(ranks) == Vector<double>{1.5, 1.5});
  for (RankProcessors& each : ranks) each.processors.of_task = 1;
  CHECK(processor_shares(ranks) == Vector<double>{1, 1});
}

TEST_CASE("nothing to say where every thread has a processor") {
  CHECK(processors_note({rank({0, 1}), rank({0, 1})}, {1, 1}) == "");
  CHECK(processors_note({rank({0, 1, 2, 3}), rank({0, 1, 2, 3})}, {2, 2}) == "");
  CHECK(processors_note({rank({0}), rank({0}, 1)}, {1, 1}) == "");
}

TEST_CASE("what too few processors do to predictions") {
  CHECK(processors_note({rank({0, 1}), rank({0, 1}), rank({0, 1}), rank({0, 1})}, {1, 1, 1, 1}) ==
        "4 ranks share 2 processors on n0, fewer than they have threads: they take turns, and an iteration takes up to "
        "2 times as long as predicted, as predictions give every thread a processor of its own");
  CHECK(processors_note({rank({0, 1}), rank({2, 3})}, {2, 3}) ==
        "rank 1 on n0 may use 2 processors, its device model has 3 cores: it runs 2 threads, and takes longer than "
        "predicted (mpirun --bind-to none, or --cpus-per-task, gives it more)");
  Vector<RankProcessors> limited{rank({0, 1, 2, 3}), rank({0, 1, 2, 3})};
  for (RankProcessors& each : limited) each.processors.quota = 1.5;
  CHECK(
      processors_note(limited, {1, 1}) ==
      "2 ranks share a quota of 1.5 processors on n0, fewer than they have threads: they take turns, and an iteration "
      "takes up to 1.33 times as long as predicted, as predictions give every thread a processor of its own");
}

}  // namespace ff
