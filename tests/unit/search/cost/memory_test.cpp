#include <algorithm>
#include <catch2/catch.hpp>

#include "common/task_graph/issue_order.h"
#include "search/cost/memory.h"
#include "tests/support/random_network.h"

using namespace ff;

TEST_CASE("offsets by hand: a buffer takes the smallest gap among those that live with it") {
  // Steps 0-1: a; 2-3: b where a was; 0-3: c after both; d, from 1 to 2, lives with all.
  const auto buffer = [](int32_t what, int64_t bytes, int first, int last) {
    return PlannedBuffer{{BufferKey::Kind::output, what, 0, 0}, bytes, first, last};
  };
  Vector<PlannedBuffer> buffers = {buffer(0, 640, 0, 1), buffer(1, 512, 2, 3), buffer(2, 256, 0, 3),
                                   buffer(3, 100, 1, 2), buffer(4, 64, 3, 3)};
  CHECK(assign_offsets(buffers) == 640 + 256 + 128);
  CHECK(buffers[0].offset == 0);
  CHECK(buffers[1].offset == 0);
  CHECK(buffers[2].offset == 640);
  CHECK(buffers[3].offset == 896);
  CHECK(buffers[4].offset == 512);  // the gap of 128 between b and c, not the room after c
}

TEST_CASE("offsets are those of a look at all buffers that have their places") {
  RandomSource random(1);
  for (int repetition = 0; repetition < 200; ++repetition) {
    CAPTURE(repetition);
    const int steps = static_cast<int>(random.between(1, 40));
    Vector<PlannedBuffer> buffers;
    for (int b = 0; b < static_cast<int>(random.between(1, 120)); ++b) {
      const int first = static_cast<int>(random.between(0, steps - 1));
      const int last = static_cast<int>(random.between(first, random.between(0, 3) == 0 ? steps : first));
      buffers.push_back({{BufferKey::Kind::output, b, 0, 0}, 64 * random.between(1, 9), first, last});
    }
    const int64_t arena = assign_offsets(buffers);
    Vector<int> by_size(buffers.size());
    for (int b : buffers.indices()) by_size[b] = b;
    std::stable_sort(by_size.begin(), by_size.end(), [&](int a, int b) { return buffers[a].bytes > buffers[b].bytes; });
    int64_t highest = 0;
    for (int i : by_size.indices()) {
      const PlannedBuffer& one = buffers[by_size[i]];
      Vector<std::pair<int64_t, int64_t>> taken;  // by those before it that live with it
      for (int j = 0; j < i; ++j)
        if (const PlannedBuffer& other = buffers[by_size[j]]; one.lives_with(other))
          taken.emplace_back(other.offset, other.offset + other.bytes);
      std::sort(taken.begin(), taken.end());
      int64_t reached = 0, offset = -1, smallest = 0;
      for (const auto& [begin, end] : taken) {
        if (begin - reached >= one.bytes && (offset < 0 || begin - reached < smallest))
          offset = reached, smallest = begin - reached;
        reached = std::max(reached, end);
      }
      CHECK(one.offset == (offset < 0 ? reached : offset));
      highest = std::max(highest, one.offset + one.bytes);
    }
    CHECK(arena == highest);
  }
}

TEST_CASE(
    "no two buffers that live together share memory, in any order, with preallocated and on-demand transfer buffers") {
  int64_t separate = 0, live = 0, arena = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    RandomSource random(seed);
    const Graph graph = random_graph(random);
    const int count = 1 + static_cast<int>(seed % 4);
    const auto [strategy, micro_batches] =
        random_expanded_strategy(graph, 1 + static_cast<int>(seed % 3), count, random);
    const Synchronization synchronization = synchronization_of(seed / 4);
    TaskGraphBuilder builder(
        graph, {.synchronization = synchronization,
                .micro_batches = micro_batches,
                .overlaps_reductions = synchronization == Synchronization::parameter_server || seed % 3 > 0});
    const TaskGraph tasks = builder.build(strategy);
    const Vector<int> order = seed % 2 ? random_task_order(tasks, random) : default_issue_order(builder, tasks);
    Vector<DeviceId> devices;
    for (DeviceId device = 0; device < count; ++device) devices.push_back(device);
    const TransferBuffers buffers = seed / 2 % 2 ? TransferBuffers::preallocated : TransferBuffers::on_demand;
    const Vector<MemoryPlan> plans = plan_memory(builder, strategy, tasks, order, devices, buffers);
    for (DeviceId device = 0; device < count; ++device) {
      const MemoryPlan& plan = plans[device];
      for (size_t a = 0; a < plan.buffers.size(); ++a) {
        const PlannedBuffer& one = plan.buffers[a];
        REQUIRE((one.offset % buffer_alignment == 0 && one.offset + one.bytes <= plan.arena_bytes));
        REQUIRE((one.first >= 0 && one.first <= one.last && one.last <= static_cast<int>(plan.steps.size())));
        for (size_t b = 0; b < a; ++b) {
          const PlannedBuffer& other = plan.buffers[b];
          REQUIRE((!one.lives_with(other) || one.offset + one.bytes <= other.offset ||
                   other.offset + other.bytes <= one.offset));
        }
      }
      CHECK(plan.live_bytes <= plan.arena_bytes);
      CHECK(plan.arena_bytes <= plan.separate_bytes);
      INFO("seed " << seed << " device " << device);
      // One device's plan does not depend on the others'.
      const MemoryPlan alone = plan_memory(builder, strategy, tasks, order, {device}, buffers)[0];
      CHECK(alone.arena_bytes == plan.arena_bytes);
      CHECK(alone.steps == plan.steps);
      separate += plan.separate_bytes;
      live += plan.live_bytes;
      arena += plan.arena_bytes;
    }
  }
  UNSCOPED_INFO("of " << separate << " bytes live " << live << " at once, the arenas take " << arena);
  CHECK(static_cast<double>(arena) < 1.05 * static_cast<double>(live));
  CHECK(static_cast<double>(arena) < 0.9 * static_cast<double>(separate));
}

// 4 samples and 3 classes, one class a part, parts 0 and 2 on one device. Each part has its logits, 16 bytes, and keeps
// 48; of the labels, 16 bytes, a device has one copy, likewise of the three slots of 64 bytes that are gathered. The
// part with class 0 has two outputs of 16 bytes.
TEST_CASE("statistics that are gathered take memory once a device") {
  const Graph graph = parse_graph(parse_json(
      R"({"format":"ffgraph/1","name":"loss","batch_size":4,"inputs":[{"name":"x","shape":["batch",3],"dtype":"f32"},
      {"name":"label","shape":["batch"],"dtype":"i32"}],
      "operators":[{"name":"loss","type":"softmax_cross_entropy","inputs":["x","label"]}]})",
      "graph"));
  TaskGraphBuilder builder(graph);
  MemoryModel model(builder, 2);
  const Strategy strategy = {{{1, 3}, {0, 1, 0}}};
  const TaskGraph tasks = builder.build(strategy);
  const Vector<int64_t> exact =
      model.bytes(strategy, tasks, default_issue_order(builder, tasks), TransferBuffers::preallocated);
  CHECK(exact[0] == 2 * (16 + 48) + 16 + 3 * 64 + 32);
  CHECK(exact[1] == 16 + 48 + 16 + 3 * 64);
}

// As GShard's compiler slices an operand that it would have to gather (Lepikhin et al. 2020, arXiv 2006.16668, section
// 3.3.2). "in" lies by length on two devices; "mean" gathers all lengths of its samples, a part a device those of 8
// samples at once, 8 parts a device those of one sample each.
TEST_CASE("an operator with more parts than devices holds slices of its gathered operand") {
  const auto live = [&](const std::string& in, int parts, TransferBuffers buffers) {
    const Graph graph = parse_graph(parse_json(R"({"format":"ffgraph/1","name":"slices","batch_size":16,
        "inputs":[{"name":"x","shape":["batch",64,64],"dtype":"f32"},{"name":"label","shape":["batch"],"dtype":"i32"}],
        "operators":[{"name":"in","inputs":["x"],)" +
                                                   in + R"(},
        {"name":"mean","type":"mean","inputs":["in"]},
        {"name":"out","type":"linear","inputs":["mean"],"attributes":{"out_features":3}},
        {"name":"loss","type":"softmax_cross_entropy","inputs":["out","label"]}]})",
                                               "graph"));
    Strategy strategy = single_device(graph);
    strategy[0].degrees[1] = 2;
    strategy[0].devices = {0, 1};
    strategy[1] = {{parts, 1}, {}};
    for (int part = 0; part < parts; ++part) strategy[1].devices.push_back(part * 2 / parts);
    TaskGraphBuilder builder(graph);
    const TaskGraph tasks = builder.build(strategy);
    return plan_memory(builder, strategy, tasks, default_issue_order(builder, tasks, buffers), {1}, buffers)[0]
        .live_bytes;
  };
  // bytes; of "in" a device has half of each sample, and packs half of that for the other device
  constexpr int64_t sample = 64 * 64 * 4, own = 16 * sample / 2, moved = own / 2;
  const std::string relu = R"("type":"relu")", linear = R"("type":"linear","attributes":{"out_features":64})";
  // No backward pass. Preallocated, all that moves is there at once, with what it is assembled to: one sample or 8.
  // On demand, one sample arrives while another one is computed with.
  CHECK(live(relu, 2, TransferBuffers::preallocated) >= own + 2 * moved + 8 * sample);
  CHECK(live(relu, 16, TransferBuffers::preallocated) >= own + 2 * moved + sample);
  CHECK(live(relu, 16, TransferBuffers::preallocated) < own + 2 * moved + 2 * sample);
  CHECK(live(relu, 16, TransferBuffers::on_demand) < own + moved + 3 * sample);
  // With one, "in" adds up the slices' gradients in the end.
  CHECK(live(linear, 16, TransferBuffers::on_demand) < 4 * live(linear, 2, TransferBuffers::preallocated) / 5);
}

TEST_CASE("the estimate is near what on-demand transfer buffers need") {
  double estimated = 0, needed = 0, least = 1e9, most = 0;
  unsigned seed_of_most = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    RandomSource random(seed);
    const Graph graph = random_graph(random);
    const int count = 1 + static_cast<int>(seed % 4);
    const Strategy strategy = random_strategy(graph, count, random);
    TaskGraphBuilder builder(graph, {.synchronization = synchronization_of(seed / 4)});
    MemoryModel model(builder, count);
    const TaskGraph tasks = builder.build(strategy);
    const Vector<int64_t> guess = model.bytes(strategy),
                          exact = model.bytes(strategy, tasks,
                                              default_issue_order(builder, tasks, TransferBuffers::on_demand),
                                              TransferBuffers::on_demand);
    for (const DeviceId device : exact.indices()) {
      if (exact[device] == 0) continue;
      const double ratio = static_cast<double>(guess[device]) / static_cast<double>(exact[device]);
      estimated += static_cast<double>(guess[device]);
      needed += static_cast<double>(exact[device]);
      least = std::min(least, ratio);
      if (ratio > most) most = ratio, seed_of_most = seed;
    }
  }
  INFO("in all " << estimated / needed << " of what is needed, of one device " << least << " to " << most << " (seed "
                 << seed_of_most << ")");
  CHECK(estimated > 0.9 * needed);
  CHECK(estimated < 1.1 * needed);
  CHECK(least > 0.4);
  CHECK(most < 2.2);
}

TEST_CASE("changes of operators change the estimate as computing it anew does, and can be taken back") {
  for (unsigned seed = 0; seed < 100; ++seed) {
    RandomSource random(seed);
    const Graph graph = random_graph(random);
    Strategy strategy = random_strategy(graph, 4, random);
    TaskGraphBuilder builder(graph, {.synchronization = synchronization_of(seed / 4)});
    MemoryModel following(builder, 4), anew(builder, 4);
    following.reset(strategy);
    for (int i = 0; i < 20; ++i) {
      const Strategy other = random_strategy(graph, 4, random);
      Strategy changed = strategy;
      Vector<Change> changes;
      for (int count = 1 + i % 4; count > 0; --count) {  // also of one operator twice
        const auto op = std::uniform_int_distribution<OperatorId>(0, strategy.count() - 1)(random);
        changed[op] = other[op];
        changes.push_back({op, other[op]});
      }
      const Vector<int64_t> bytes = following.change(changes, changed);
      CHECK(bytes == anew.bytes(changed));
      following.undo();
      Vector<OperatorId> operators;
      for (const Change& change : changes) operators.push_back(change.op);
      const Vector<int64_t> least = following.without(operators);
      for (const DeviceId device : bytes.indices()) CHECK(least[device] <= bytes[device]);
      following.undo();
      following.change(changes, changed);
      if (i % 2) following.undo();
      else strategy = changed;
    }
    following.change({{0, strategy[0]}}, strategy);
    following.undo();
    CHECK(following.change({{0, strategy[0]}}, strategy) == anew.bytes(strategy));
  }
}
