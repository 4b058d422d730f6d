#include "search/background.h"

#include <catch2/catch.hpp>

#include "tests/support/search_problem.h"

using namespace ff;

namespace {

// Of a job that keeps these devices, and no link, busy so much of the time.
JobLoad load_on(const Topology& topology, const Vector<double>& devices, int64_t memory_bytes = 0) {
  JobLoad load{Vector<double>(topology.devices.count() + topology.channels.count(), 0.0),
               Vector<int64_t>(topology.devices.size(), memory_bytes)};
  for (const int d : devices.indices()) load.busy[d] = devices[d];
  return load;
}

}  // namespace

TEST_CASE("what other jobs leave of a device is what they do not use, but at least a turn, and the rest of memory") {
  const Topology topology = load_topology(FF_SOURCE_DIR "/topologies/p100-1x4.json");
  const DeviceModel whole = topology.model_of(0);
  const Topology left = left_by(topology, {load_on(topology, {0.25, 1, 0, 0}, 1000000000)});
  CHECK(left.model_of(0).peak_tflops == Approx(0.75 * whole.peak_tflops));
  CHECK(left.model_of(1).peak_tflops == Approx(0.5 * whole.peak_tflops));
  CHECK(left.model_of(1).speed == Approx(0.5));
  CHECK(left.models[left.model_of(1).scaled_from].name == whole.name);
  CHECK(left.model_of(2).peak_tflops == whole.peak_tflops);
  CHECK(left.model_of(3).memory_bytes == whole.memory_bytes - 1000000000);
  CHECK(left.devices[2].model == left.devices[3].model);
  CHECK(left.file == topology.file);
  const JobLoad busy = load_on(topology, {1, 1, 1, 1});
  CHECK(left_by(topology, {busy, busy, busy}).model_of(0).peak_tflops == Approx(0.25 * whole.peak_tflops));
  JobLoad links = load_on(topology, {0, 0, 0, 0});
  links.busy[topology.devices.count()] = 0.1;
  const Topology slower = left_by(topology, {links});
  CHECK(slower.channels[0].bandwidth_gb_per_s == Approx(0.9 * topology.channels[0].bandwidth_gb_per_s));
  CHECK(slower.channels[1].bandwidth_gb_per_s == topology.channels[1].bandwidth_gb_per_s);
}

TEST_CASE("a job's load is the share of an iteration that it keeps things busy") {
  SearchProblem problem("lenet");
  const JobLoad load = load_of(problem.evaluator.details(single_device(problem.graph, 2)), problem.topology);
  CHECK(load.busy[2] == Approx(1));  // nothing else happens
  CHECK(load.busy[0] == 0);
  for (const int channel : problem.topology.channels.indices())
    CHECK(load.busy[problem.topology.devices.count() + channel] == 0);
}

TEST_CASE("with a co-located job on one device a plan leaves that device alone, or loses less than half of it") {
  SearchProblem alone("lenet");
  const JobLoad load = load_of(alone.evaluator.details(single_device(alone.graph, 0)), alone.topology);
  SearchProblem shared(load_graph(FF_SOURCE_DIR "/graphs/lenet.json"), left_by(alone.topology, {load}));
  const McmcSettings settings{.proposals = 2000, .unequal_shares = true};
  const Nanoseconds without = alone.search(settings).best_prediction.makespan,
                    with = shared.search(settings).best_prediction.makespan,
                    plain = shared.evaluator.evaluate(data_parallel(shared.graph, shared.topology)).makespan;
  CHECK(with < 2 * without);
  CHECK(with < plain);
}

TEST_CASE("a processor that waits is busy, one that has nothing to do is not") {
  SearchProblem problem("lenet", "local-cpu-4");
  Strategy strategy = single_device(problem.graph, 0);
  strategy[3].devices = {1};
  const JobLoad load = load_of(problem.evaluator.details(strategy), problem.topology);
  CHECK(load.busy[0] == 1);
  CHECK(load.busy[1] == 1);
  CHECK(load.busy[2] == 0);
}
