// What goes from part to part: both ends of each message and of each collective agree, and every copy lies within what
// it copies from and to. What single plans look like is in program_plan_test.cpp.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "common/task_graph/issue_order.h"
#include "executor/plan/program_plan.h"
#include "tests/support/random_network.h"

namespace ff {
namespace {

// The plans of all ranks.
struct Plans {
  Plans(const Graph& graph, const Strategy& strategy, int ranks, Synchronization synchronization, int micro_batches,
        TransferBuffers buffers)
      : builder(graph, {.synchronization = synchronization, .micro_batches = micro_batches}) {
    for (int rank = 0; rank < ranks; ++rank) {
      tasks.push_back(builder.build(strategy, rank));
      plans.push_back(plan_program(builder, strategy, tasks[rank], default_issue_order(builder, tasks[rank], buffers),
                                   {.rank = rank, .transfer_buffers = buffers}));
    }
  }
  TaskKey key(int rank, int task) const { return tasks[rank].tasks[task].key; }

  TaskGraphBuilder builder;
  Vector<TaskGraph> tasks;  // [rank]
  Vector<ProgramPlan> plans;
};

// From rank, to rank, tag: task and bytes.
using Messages = std::map<std::array<int, 3>, std::pair<TaskKey, int64_t>>;

Messages sent(const Plans& all) {
  Messages messages;
  for (const int rank : all.plans.indices())
    for (const TransferPlan& send : all.plans[rank].sends)
      CHECK(messages.emplace(std::array{rank, send.peer, send.tag}, std::pair(all.key(rank, send.task), send.bytes))
                .second);
  return messages;
}

Messages received(const Plans& all) {
  Messages messages;
  for (const int rank : all.plans.indices())
    for (const TransferPlan& receive : all.plans[rank].receives)
      CHECK(messages
                .emplace(std::array{receive.peer, rank, receive.tag},
                         std::pair(all.key(rank, receive.task), receive.bytes))
                .second);
  return messages;
}

bool within(const ProgramPlan& plan, Place place, int64_t elements) {
  return place.exists() && place.buffer < plan.buffers.count() &&
         place.offset_bytes() + bytes_of(place.type, elements) <= plan.buffers[place.buffer].bytes();
}

bool within(const ProgramPlan& plan, const BlockCopy& copy) {
  return copy.source_block.contains(copy.region) && copy.destination_block.contains(copy.region) &&
         within(plan, copy.source, copy.source_block.volume()) &&
         within(plan, copy.destination, copy.destination_block.volume());
}

// How many copies there are.
int64_t check_places(const ProgramPlan& plan) {
  int64_t copies = 0;
  for (const auto* transfers : {&plan.sends, &plan.receives})
    for (const TransferPlan& one : *transfers)
      CHECK(within(plan, one.memory, one.bytes / bytes_of(one.memory.type, 1)));
  for (const StepPlan& step : plan.steps)
    for (const auto* list : {&step.gather, &step.pack})
      for (const BlockCopy& copy : *list) {
        CHECK(within(plan, copy));
        ++copies;
      }
  return copies;
}

// One end of a collective: where it is, and what it moves.
struct Member {
  int rank;
  const CollectivePlan* plan;
  Vector<int> group;
};

void check_members(const Vector<Member>& members) {
  const CollectivePlan& first = *members[0].plan;
  const Vector<int>& group = members[0].group;
  REQUIRE(members.size() == group.size());
  for (const int i : members.indices()) {
    const CollectivePlan& one = *members[i].plan;
    CHECK(members[i].rank == group[i]);
    CHECK(members[i].group == group);
    CHECK(one.kind == first.kind);
    CHECK(one.root == first.root);
    CHECK(one.type == first.type);
    CHECK(one.elements == first.elements);
    if (one.kind != CollectiveKind::all_to_all) continue;
    for (const int j : members.indices()) CHECK(one.send_elements[j] == members[j].plan->receive_elements[i]);
  }
}

}  // namespace

TEST_CASE("edges: what a rank sends another one receives, and collectives have the same sizes on all ranks") {
  int messages = 0, collectives = 0;
  int64_t copies = 0;
  std::map<CollectiveKind, int> kinds;
  for (uint32_t seed = 0; seed < 250; ++seed) {
    INFO("seed " << seed);
    RandomSource random(seed);
    const Graph graph = random_graph(random);
    const int ranks = 1 + static_cast<int>(seed % 6);
    const auto [strategy, micro_batches] =
        random_expanded_strategy(graph, 1 + static_cast<int>(seed / 6 % 2), ranks, random);
    const Plans all(graph, strategy, ranks, synchronization_of(seed / 2), micro_batches,
                    seed % 2 ? TransferBuffers::on_demand : TransferBuffers::preallocated);
    const Messages both = sent(all);
    CHECK(received(all) == both);
    messages += static_cast<int>(both.size());
    std::map<TaskKey, Vector<Member>> by_task;
    for (const int rank : all.plans.indices()) {
      const ProgramPlan& plan = all.plans[rank];
      copies += check_places(plan);
      for (const StepPlan& step : plan.steps)
        if (step.collective >= 0) {
          const CollectivePlan& moved = plan.collectives[step.collective];
          by_task[all.key(rank, step.task)].push_back({rank, &moved, plan.groups[moved.group]});
        }
    }
    for (const auto& [key, members] : by_task) {
      check_members(members);
      ++kinds[members[0].plan->kind];
      ++collectives;
    }
  }
  CHECK(messages > 2000);
  CHECK(collectives > 100);
  CHECK(copies > 2000);
  CHECK(kinds.size() >= 4);
}

// a on four ranks by channel, b by sample on the same: rank r sends the rows of every other rank's sample of its own
// two channels, 1 x 2 floats, and receives as many; it is one all_to_all.
TEST_CASE("edges: an exchange of channels for samples sends each rank its share") {
  const Graph graph = parse_graph(parse_json(R"({"format":"ffgraph/1","name":"two","batch_size":4,
    "inputs":[{"name":"x","shape":["batch",6],"dtype":"f32"},{"name":"label","shape":["batch"],"dtype":"i32"}],
    "operators":[
      {"name":"a","type":"linear","inputs":["x"],"attributes":{"out_features":8,"bias":false}},
      {"name":"b","type":"linear","inputs":["a"],"attributes":{"out_features":3,"bias":false}},
      {"name":"loss","type":"softmax_cross_entropy","inputs":["b","label"]}]})",
                                             "graph"));
  const Vector<DeviceId> devices{0, 1, 2, 3};
  const Plans all(graph, {{{1, 4, 1}, devices}, {{4, 1, 1}, devices}, {{4, 1}, devices}}, 4,
                  Synchronization::all_reduce, 1, TransferBuffers::preallocated);
  for (const ProgramPlan& plan : all.plans) {
    CHECK(plan.sends.empty());
    REQUIRE(plan.collectives.size() == 2);  // forward, and the gradients back
    for (const CollectivePlan& moved : plan.collectives) {
      CHECK(moved.kind == CollectiveKind::all_to_all);
      CHECK(moved.send_elements == Vector<int64_t>{2, 2, 2, 2});
      CHECK(moved.receive_elements == Vector<int64_t>{2, 2, 2, 2});
    }
  }
}

}  // namespace ff
