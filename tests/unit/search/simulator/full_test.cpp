// Cases small enough to work by hand. Every kernel, copy and update takes exactly 10 us (the launch floor of a device
// with unlimited rates); links carry 1 byte a nanosecond. The network is x [4, 8] -> fc1 -> fc2 -> loss, both linear 8
// -> 8 without bias, so a whole activation has 4 * 8 * 4 = 128 bytes and a weight 8 * 8 * 4 = 256.
#include <catch2/catch.hpp>
#include <cstdio>

#include "common/task_graph/issue_order.h"
#include "search/optimizer/evaluator.h"
#include "tests/support/graph_text.h"

using namespace ff;

namespace {

std::string topology(const std::string& rest) {
  return R"({"format":"fftopology/1","name":"test","device_models":{"flat":{"peak_tflops":1e9,"memory_gb_per_s":1e9,
  "launch_us":10}},)" +
         rest + "}";
}

std::string devices(int count) {
  std::string text = R"("devices":[)";
  for (int d = 0; d < count; ++d)
    text += (d ? "," : "") + std::string(R"({"name":"d)") + std::to_string(d) + R"(","kind":"gpu","model":"flat"})";
  return text + "]";
}

// One line a task, in order of start: start and end in microseconds, name.
std::string timeline_text(const std::string& topology_text, const Strategy& strategy,
                          const std::string& graph_text = two_linear_layers,
                          Synchronization synchronization = Synchronization::all_reduce) {
  const Graph graph = parse_graph(parse_json(graph_text, "graph"));
  const Topology topo = parse_topology(parse_json(topology_text, "topology"));
  KernelCosts kernels(topo, CostMode::analytic, {});
  Evaluator evaluator({graph, topo, kernels, nullptr, {synchronization}});
  const Evaluator::Details details = evaluator.details(strategy);
  std::string text = "\n";
  for (int task : tasks_by_start(details.tasks, details.timeline)) {
    char times[64];
    std::snprintf(times, sizeof times, "%7.3f %7.3f  ", static_cast<double>(details.timeline.start[task]) / 1e3,
                  static_cast<double>(details.timeline.end[task]) / 1e3);
    text += times + task_name(evaluator.builder(), details.tasks, task) + "\n";
  }
  return text;
}

}  // namespace

TEST_CASE("one device: tasks follow one another") {
  CHECK(timeline_text(topology(devices(1)), {{{1, 1, 1}, {0}}, {{1, 1, 1}, {0}}, {{1, 1}, {0}}}) == R"(
  0.000  10.000  fc1/forward/0
 10.000  20.000  fc2/forward/0
 20.000  30.000  loss/forward/0
 30.000  40.000  loss/backward/0
 40.000  50.000  fc2/backward/0
 50.000  60.000  fc1/backward/0
 60.000  70.000  fc2/update/0@0
 70.000  80.000  fc1/update/0@0
)");
}

TEST_CASE("two devices, an operator each: transfers both ways") {
  // 128 bytes and 5 us of latency: 5.128 us. fc2's update runs on d1 while the gradient travels and d0 works.
  CHECK(timeline_text(
            topology(devices(2) + R"(,"links":[{"between":["d0","d1"],"bandwidth_gb_per_s":1,"latency_us":5}])"),
            {{{1, 1, 1}, {0}}, {{1, 1, 1}, {1}}, {{1, 1}, {1}}}) == R"(
  0.000  10.000  fc1/forward/0
 10.000  15.128  fc1->fc2:0/activation/0-0
 15.128  25.128  fc2/forward/0
 25.128  35.128  loss/forward/0
 35.128  45.128  loss/backward/0
 45.128  55.128  fc2/backward/0
 55.128  60.256  fc2:0->fc1/gradient/0-0
 55.128  65.128  fc2/update/0@1
 60.256  70.256  fc1/backward/0
 70.256  80.256  fc1/update/0@0
)");
}

TEST_CASE("a link that keeps its endpoints busy delays their work") {
  // As before, but at 55.128 the gradient (smaller key) takes d1 first, so fc2's update waits for its end.
  CHECK(
      timeline_text(
          topology(devices(2) +
                   R"(,"links":[{"between":["d0","d1"],"bandwidth_gb_per_s":1,"latency_us":5,"blocks_devices":true}])"),
          {{{1, 1, 1}, {0}}, {{1, 1, 1}, {1}}, {{1, 1}, {1}}}) == R"(
  0.000  10.000  fc1/forward/0
 10.000  15.128  fc1->fc2:0/activation/0-0
 15.128  25.128  fc2/forward/0
 25.128  35.128  loss/forward/0
 35.128  45.128  loss/backward/0
 45.128  55.128  fc2/backward/0
 55.128  60.256  fc2:0->fc1/gradient/0-0
 60.256  70.256  fc2/update/0@1
 60.256  70.256  fc1/backward/0
 70.256  80.256  fc1/update/0@0
)");
}

TEST_CASE("data parallelism: synchronization overlaps backward") {
  // A ring of two: each direction carries 2 (k-1)/k = 1 times 256 bytes, and there are 2 (k-1) = 2 latencies: 10.256
  // us. fc2's synchronization runs during fc1's backward and holds the links for 0.256 us only, so fc1's starts as soon
  // as its gradients are there.
  CHECK(timeline_text(
            topology(devices(2) + R"(,"links":[{"between":["d0","d1"],"bandwidth_gb_per_s":1,"latency_us":5}])"),
            {{{2, 1, 1}, {0, 1}}, {{2, 1, 1}, {0, 1}}, {{2, 1}, {0, 1}}}) == R"(
  0.000  10.000  fc1/forward/0
  0.000  10.000  fc1/forward/1
 10.000  20.000  fc2/forward/0
 10.000  20.000  fc2/forward/1
 20.000  30.000  loss/forward/0
 20.000  30.000  loss/forward/1
 30.000  40.000  loss/backward/0
 30.000  40.000  loss/backward/1
 40.000  50.000  fc2/backward/0
 40.000  50.000  fc2/backward/1
 50.000  60.000  fc1/backward/0
 50.000  60.000  fc1/backward/1
 50.000  60.256  fc2/synchronization/0
 60.000  70.256  fc1/synchronization/0
 60.256  70.256  fc2/update/0@0
 60.256  70.256  fc2/update/0@1
 70.256  80.256  fc1/update/0@0
 70.256  80.256  fc1/update/0@1
)");
}

TEST_CASE("devices work for a collective during their kernels, and compute the next task later") {
  // As before; half of the time of the bytes that a device sends, half of that of those that it receives, and twice 0.1
  // us: 0.456 us for each synchronization. Both are taken before fc2's update, which is ready at 60.256.
  const std::string link = R"(,"links":[{"between":["d0","d1"],"bandwidth_gb_per_s":1,"latency_us":5,
    "cpu_overhead_us":0.1,"cpu_overhead_fraction":0.5}])";
  CHECK(timeline_text(topology(devices(2) + link), {{{2, 1, 1}, {0, 1}}, {{2, 1, 1}, {0, 1}}, {{2, 1}, {0, 1}}}) == R"(
  0.000  10.000  fc1/forward/0
  0.000  10.000  fc1/forward/1
 10.000  20.000  fc2/forward/0
 10.000  20.000  fc2/forward/1
 20.000  30.000  loss/forward/0
 20.000  30.000  loss/forward/1
 30.000  40.000  loss/backward/0
 30.000  40.000  loss/backward/1
 40.000  50.000  fc2/backward/0
 40.000  50.000  fc2/backward/1
 50.000  60.000  fc1/backward/0
 50.000  60.000  fc1/backward/1
 50.000  60.256  fc2/synchronization/0
 60.000  70.256  fc1/synchronization/0
 60.912  70.912  fc2/update/0@0
 60.912  70.912  fc2/update/0@1
 70.912  80.912  fc1/update/0@0
 70.912  80.912  fc1/update/0@1
)");
}

TEST_CASE("data parallelism with an owner: everything after the backward pass") {
  // d0 has the first part of both layers and so owns both weights. Its gradients are summed up where kernels write
  // them; a barrier has nothing to pack and takes the 1 ns of a task. d1 sends both gradients at once: 5 us + 256 ns,
  // the second one after the 256 ns that the first holds the link for. The owner's update takes 10 us, and copying
  // (adding d1's gradient, packing the values) another 10; taking over the values on d1 is 10 us of copying.
  CHECK(timeline_text(
            topology(devices(2) + R"(,"links":[{"between":["d0","d1"],"bandwidth_gb_per_s":1,"latency_us":5}])"),
            {{{2, 1, 1}, {0, 1}}, {{2, 1, 1}, {0, 1}}, {{2, 1}, {0, 1}}}, two_linear_layers,
            Synchronization::parameter_server) == R"(
  0.000  10.000  fc1/forward/0
  0.000  10.000  fc1/forward/1
 10.000  20.000  fc2/forward/0
 10.000  20.000  fc2/forward/1
 20.000  30.000  loss/forward/0
 20.000  30.000  loss/forward/1
 30.000  40.000  loss/backward/0
 30.000  40.000  loss/backward/1
 40.000  50.000  fc2/backward/0
 40.000  50.000  fc2/backward/1
 50.000  60.000  fc1/backward/0
 50.000  60.000  fc1/backward/1
 60.000  60.001  barrier/0
 60.000  60.001  barrier/1
 60.001  65.257  fc1/parameter_gradient/0@1-0
 60.257  65.513  fc2/parameter_gradient/0@1-0
 65.257  85.257  fc1/update/0@0
 85.257 105.257  fc2/update/0@0
 85.257  90.513  fc1/parameter_values/0@0-1
 90.513 100.513  fc1/update/0@1
105.257 110.513  fc2/parameter_values/0@0-1
110.513 120.513  fc2/update/0@1
)");
}

TEST_CASE("a switch: transfers queue for the shared link, in order of key") {
  // fc1's two parts on d0 and d1 send 64 bytes each to d2 over two links of 1 us: 2.064 us. Both are ready at 10; the
  // second finds the link into d2 free at 10.064 (cut-through: the first holds it for 0.064 us). fc2 assembles its
  // input from two pieces (+10 us of copying), and packs two pieces of its gradient (+10 us). fc1's synchronization
  // crosses two links a hop: 2 * 2 us + 256 ns.
  const std::string star = topology(devices(3) + R"(,"switches":["s"],"links":[
    {"between":["d0","s"],"bandwidth_gb_per_s":1,"latency_us":1},
    {"between":["d1","s"],"bandwidth_gb_per_s":1,"latency_us":1},
    {"between":["s","d2"],"bandwidth_gb_per_s":1,"latency_us":1}])");
  CHECK(timeline_text(star, {{{2, 1, 1}, {0, 1}}, {{1, 1, 1}, {2}}, {{1, 1}, {2}}}) == R"(
  0.000  10.000  fc1/forward/0
  0.000  10.000  fc1/forward/1
 10.000  12.064  fc1->fc2:0/activation/0-0
 10.064  12.128  fc1->fc2:0/activation/1-0
 12.128  32.128  fc2/forward/0
 32.128  42.128  loss/forward/0
 42.128  52.128  loss/backward/0
 52.128  72.128  fc2/backward/0
 72.128  74.192  fc2:0->fc1/gradient/0-0
 72.128  82.128  fc2/update/0@2
 72.192  74.256  fc2:0->fc1/gradient/0-1
 74.192  84.192  fc1/backward/0
 74.256  84.256  fc1/backward/1
 84.256  88.512  fc1/synchronization/0
 88.512  98.512  fc1/update/0@0
 88.512  98.512  fc1/update/0@1
)");
}

TEST_CASE("channel splits: every part of the consumer reads every part of the producer, contributions are added") {
  // fc1 and fc2 split by channel over two devices: fc2's part needs all channels of fc1, so each device receives the
  // other's half (64 bytes, 5.064 us) and assembles its input (+10 us). The loss on d0 needs both halves. Weights are
  // split, so nothing is synchronized. At 105.192 d1 has both contributions to fc1's gradient and fc2's own update
  // ready: backward has the smaller key.
  CHECK(timeline_text(
            topology(devices(2) + R"(,"links":[{"between":["d0","d1"],"bandwidth_gb_per_s":1,"latency_us":5}])"),
            {{{1, 2, 1}, {0, 1}}, {{1, 2, 1}, {0, 1}}, {{1, 1}, {0}}}) == R"(
  0.000  10.000  fc1/forward/0
  0.000  10.000  fc1/forward/1
 10.000  15.064  fc1->fc2:0/activation/1-0
 10.000  15.064  fc1->fc2:0/activation/0-1
 15.064  35.064  fc2/forward/0
 15.064  35.064  fc2/forward/1
 35.064  40.128  fc2->loss:0/activation/1-0
 40.128  60.128  loss/forward/0
 60.128  80.128  loss/backward/0
 80.128 100.128  fc2/backward/0
 80.128  85.192  loss:0->fc2/gradient/0-1
 85.192 105.192  fc2/backward/1
100.128 105.192  fc2:0->fc1/gradient/0-1
100.128 110.128  fc2/update/0@0
105.192 125.192  fc1/backward/1
105.192 110.256  fc2:0->fc1/gradient/1-0
110.256 130.256  fc1/backward/0
125.192 135.192  fc2/update/1@1
130.256 140.256  fc1/update/0@0
135.192 145.192  fc1/update/1@1
)");
}
