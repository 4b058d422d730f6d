// Lives of buffers, and where they lie.
#include "common/task_graph/memory_plan.h"

#include <catch2/catch.hpp>

#include "common/task_graph/issue_order.h"
#include "common/task_graph/live_memory.h"
#include "tests/support/graph_text.h"
#include "tests/support/random_network.h"

using namespace ff;

namespace {

using Kind = BufferKey::Kind;

// x [4, 6] -> a (5 features) -> b (3 features) -> loss.
Graph planned_layers() {
  return parse_graph(parse_json(R"({"format":"ffgraph/1","name":"two","batch_size":4,
    "inputs":[{"name":"x","shape":["batch",6],"dtype":"f32"},{"name":"label","shape":["batch"],"dtype":"i32"}],
    "operators":[
      {"name":"a","type":"linear","inputs":["x"],"attributes":{"out_features":5,"bias":false}},
      {"name":"b","type":"linear","inputs":["a"],"attributes":{"out_features":3,"bias":false}},
      {"name":"loss","type":"softmax_cross_entropy","inputs":["b","label"]}]})",
                                "graph"));
}
constexpr OperatorId layer_a = 0, layer_b = 1, last_loss = 2;

MemoryPlan planned(const Strategy& strategy, DeviceId device, TransferBuffers buffers,
                   const Vector<std::string>& recompute = {}) {
  const Graph graph = planned_layers();
  TaskGraphBuilder builder(graph, {.recompute = recompute});
  const TaskGraph tasks = builder.build(strategy);
  return plan_memory(builder, strategy, tasks, default_issue_order(builder, tasks, buffers), {device}, buffers)[0];
}

struct Life {
  BufferKey key;
  int64_t bytes;
  int first, last;
  bool operator==(const Life&) const = default;
};
Vector<Life> lives(const MemoryPlan& plan) {
  Vector<Life> result;
  for (const PlannedBuffer& buffer : plan.buffers)
    result.push_back({buffer.key, buffer.bytes, buffer.first, buffer.last});
  return result;
}

}  // namespace

// Steps: forward of a 0, b 1, loss 2, backward of loss 3, b 4 and its update 5, a 6 and its update 7. a's output is
// read by b's backward task too, b's output by nothing backward. A layer's backward task writes the gradient of what it
// has read, which the producer's backward task reads. Most lives at step 4: 80 bytes of a's output and of its gradient,
// and 48 of the gradient of b's output, each in multiples of 64.
TEST_CASE("on one device a block lives from its producer to the last task that reads it") {
  const MemoryPlan plan = planned(single_device(planned_layers()), 0, TransferBuffers::preallocated);
  CHECK(plan.steps.size() == 8);
  CHECK(lives(plan) == Vector<Life>{{{Kind::output, layer_a, 0}, 80, 0, 4},
                                    {{Kind::output, layer_b, 0}, 48, 1, 2},
                                    {{Kind::input_gradient, layer_b, 0}, 80, 4, 6},
                                    {{Kind::input_gradient, last_loss, 0}, 48, 3, 4}});
  CHECK(plan.live_bytes == 128 + 128 + 64);
  CHECK(plan.arena_bytes == plan.live_bytes);
  CHECK(plan.separate_bytes == 2 * 128 + 2 * 64);
  REQUIRE(plan.find({Kind::output, layer_b, 0}));
  CHECK(plan.find({Kind::output, layer_b, 0})->bytes == 48);
  CHECK_FALSE(plan.find({Kind::output, last_loss, 0}));  // losses are not in the arena
}

// a and the loss on device 0: a's forward task 0, the loss 1 and 2, a's backward task 3 and update 4; 5 is the end.
// What is sent, a's output and the gradient of b's, and what is received, the loss's input and the gradient of a's
// output, are whole blocks and need no buffers besides.
TEST_CASE("preallocated transfer buffers live from the first step, or to the iteration's end") {
  Strategy strategy = single_device(planned_layers());
  strategy[layer_b].devices = {1};
  CHECK(lives(planned(strategy, 0, TransferBuffers::preallocated)) ==
        Vector<Life>{{{Kind::output, layer_a, 0}, 80, 0, 5},
                     {{Kind::input, last_loss, 0}, 48, 0, 1},
                     {{Kind::input_gradient, last_loss, 0}, 48, 2, 5},
                     {{Kind::output_gradient, layer_a, 0}, 80, 0, 3}});
}

// The same: receives are posted a step before the last one that comes before the transfer, and what is sent may be
// written again from the second step after it on.
TEST_CASE("on-demand transfer buffers live about as long as they are in use") {
  Strategy strategy = single_device(planned_layers());
  strategy[layer_b].devices = {1};
  CHECK(lives(planned(strategy, 0, TransferBuffers::on_demand)) ==
        Vector<Life>{{{Kind::output, layer_a, 0}, 80, 0, 2},
                     {{Kind::input, last_loss, 0}, 48, 0, 1},
                     {{Kind::input_gradient, last_loss, 0}, 48, 2, 4},
                     {{Kind::output_gradient, layer_a, 0}, 80, 2, 3}});
}

// Both layers are recomputed, at steps 4 and 5. Backward of a layer reads what the layer reads, not what it writes: so
// a's output is computed again, for the backward task of b, at 6, and b's is not.
TEST_CASE("the output of a recomputed operator lives until what reads it forward has run, and again for backward") {
  CHECK(lives(planned(single_device(planned_layers()), 0, TransferBuffers::preallocated, {"a", "b"})) ==
        Vector<Life>{{{Kind::output, layer_a, 0}, 80, 0, 1},
                     {{Kind::output, layer_b, 0}, 48, 1, 2},
                     {{Kind::input_gradient, layer_b, 0}, 80, 6, 8},
                     {{Kind::input_gradient, last_loss, 0}, 48, 3, 6},
                     {{Kind::recomputed_output, layer_a, 0}, 80, 4, 6}});
}

// fc1 is split by sample, fc2 by feature, so that each of the four devices gathers all of fc1's output.
TEST_CASE("an input that is gathered again lives once for forward and once for backward, and its shard in between") {
  const Graph graph = parse_graph(parse_json(two_linear_layers, "graph"));
  const Strategy strategy{{{4, 1, 1}, {0, 1, 2, 3}}, {{1, 4, 1}, {0, 1, 2, 3}}, {{4, 1}, {0, 1, 2, 3}}};
  for (const Vector<std::string>& recompute : {Vector<std::string>{}, Vector<std::string>{"fc2"}}) {
    CAPTURE(recompute);
    TaskGraphBuilder builder(graph, {.recompute = recompute});
    const TaskGraph tasks = builder.build(strategy);
    REQUIRE(!tasks.collectives.empty());
    REQUIRE(tasks.collectives[0].kind(Direction::forward) == CollectiveKind::all_gather);
    const auto planned = [&](InputsOfCollectives inputs) {
      return plan_lives(builder, strategy, tasks, default_issue_order(builder, tasks), {0},
                        TransferBuffers::preallocated, inputs)[0];
    };
    const MemoryPlan kept = planned(InputsOfCollectives::kept), again = planned(InputsOfCollectives::gathered_again);
    const BufferKey input{Kind::input, layer_b, 0}, gathered_again{Kind::input_gathered_again, layer_b, 0},
        shard{Kind::output, layer_a, 0};
    CHECK(kept.find(gathered_again) == nullptr);
    const PlannedBuffer &whole = *kept.find(input), &first = *again.find(input), &second = *again.find(gathered_again);
    CHECK(first.first == whole.first);
    CHECK(first.last < second.first);
    CHECK(second.last == whole.last);
    CHECK(first.bytes == whole.bytes);
    CHECK(second.bytes == whole.bytes);
    CHECK(tasks.tasks[again.steps[second.first]].kind ==
          (recompute.empty() ? TaskKind::backward : TaskKind::recompute));
    CHECK(kept.find(shard)->last < second.first);
    CHECK(again.find(shard)->last == second.first);
    CHECK(again.buffers.size() == kept.buffers.size() + 1);
  }
}

TEST_CASE("buffers that live together do not overlap, on random networks") {
  int shared = 0, of_parameters = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    RandomSource random(seed);
    const Graph graph = random_graph(random);
    const int devices = 1 + static_cast<int>(seed % 4);
    const auto [strategy, micro_batches] =
        random_expanded_strategy(graph, 1 + static_cast<int>(seed / 4 % 3), devices, random);
    TaskGraphBuilder builder(graph, {.synchronization = synchronization_of(seed / 4),
                                     .micro_batches = micro_batches,
                                     .recompute = seed % 3 ? Vector<std::string>() : Vector<std::string>{"*"}});
    const TaskGraph tasks = builder.build(strategy);
    const TransferBuffers buffers = seed % 2 ? TransferBuffers::on_demand : TransferBuffers::preallocated;
    const Vector<int> order = default_issue_order(builder, tasks, buffers);
    Vector<DeviceId> all;
    for (DeviceId device = 0; device < devices; ++device) all.push_back(device);
    Vector<bool> laid_out(all.size(), true);
    laid_out[devices - 1] = false;
    Vector<MemoryPlan> plans = plan_lives(builder, strategy, tasks, order, all, buffers);
    lay_out(plans, laid_out);
    for (const int d : plans.indices()) {
      const MemoryPlan& plan = plans[d];
      const Vector<int64_t> live = live_bytes(plan);
      CHECK(plan.live_bytes == *std::max_element(live.begin(), live.end()));
      if (!laid_out[d]) {
        CHECK(plan.arena_bytes == 0);
        continue;
      }
      CHECK(plan.arena_bytes >= plan.live_bytes);
      CHECK(plan.arena_bytes <= plan.separate_bytes);
      shared += plan.arena_bytes < plan.separate_bytes;
      int overlaps = 0;
      for (const int i : plan.buffers.indices()) {
        const PlannedBuffer& one = plan.buffers[i];
        CHECK(one.offset % buffer_alignment == 0);
        CHECK((one.bytes > 0 && one.first <= one.last && one.last <= plan.steps.count()));
        CHECK(one.offset + one.bytes <= plan.arena_bytes);
        CHECK(plan.find(one.key) == &one);
        of_parameters += one.key.kind >= Kind::received_parameter_gradient;
        for (int j = 0; j < i; ++j) {
          const PlannedBuffer& other = plan.buffers[j];
          overlaps +=
              one.lives_with(other) && one.offset < other.offset + other.bytes && other.offset < one.offset + one.bytes;
        }
      }
      CHECK(overlaps == 0);
    }
  }
  CHECK(shared > 100);
  CHECK(of_parameters > 100);
}
