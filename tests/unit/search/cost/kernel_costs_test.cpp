#include "search/cost/kernel_costs.h"

#include <stdlib.h>

#include <catch2/catch.hpp>

#include "common/graph.h"

using namespace ff;

// One device of model "m".
static Topology one_device(const std::string& kind) {
  return parse_topology(parse_json(
      R"({"format":"fftopology/1","name":"t","device_models":{"m":{"peak_tflops":1,"memory_gb_per_s":1,"launch_us":3}},
      "devices":[{"name":"x","kind":")" +
          kind + R"(","model":"m"}]})",
      "t"));
}

TEST_CASE("costs come from the allowed source") {
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/lenet.json", 2);
  const Topology topology = one_device("gpu");
  const OperatorDefinition& conv = *graph.operators[0].definition;
  Profile profile;
  profile.device_model = "m";
  profile.entries[kernel_signature(conv, conv.whole(), Phase::forward, {})] = {42, 1, 0};

  KernelCosts automatic(topology, CostMode::automatic, {profile});
  CHECK(automatic.kernel(conv, conv.whole(), Phase::forward, true, {}, 0).ns == 42000);
  CHECK(automatic.kernel(conv, conv.whole(), Phase::forward, true, {}, 0).source == CostSource::profile);
  CHECK(automatic.kernel(conv, conv.whole(), Phase::backward, true, {}, 0).source == CostSource::analytic);

  KernelCosts only_profile(topology, CostMode::profile, {profile});
  CHECK_THROWS_WITH(
      only_profile.kernel(conv, conv.whole(), Phase::backward, true, {}, 0),
      Catch::Contains("has no entry \"backward-parameters conv2d") && Catch::Contains("run ffsearch profile"));
  KernelCosts measured(topology, CostMode::measure, {});
  CHECK_THROWS_WITH(measured.kernel(conv, conv.whole(), Phase::forward, true, {}, 0),
                    Catch::Contains("this machine has no such device"));
  profile.device_model = "n";
  profile.file = "n.json";
  CHECK_THROWS_WITH(
      KernelCosts(topology, CostMode::automatic, {profile}),
      "n.json: is the profile of device model \"n\", which the topology \"t\" does not have; did you mean \"m\"?");
}

TEST_CASE("a GPU's profile is used with the precision that it was measured with") {
  const Topology topology = one_device("gpu");
  Profile profile;
  profile.file = "m.json";
  profile.device_model = "m";
  profile.measured["precision"] = "tf32";
  CHECK_NOTHROW(KernelCosts(topology, CostMode::profile, {profile}, 0, Precision::tf32));
  CHECK_THROWS_WITH(KernelCosts(topology, CostMode::profile, {profile}),
                    "m.json: was measured with precision tf32, not fp32; give --precision tf32 or another profile");
}

TEST_CASE("kernels are measured with the executor's own, forward and backward apart", "[slow]") {
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/lenet.json", 2);
  const Topology topology = one_device("cpu");
  KernelCosts costs(topology, CostMode::measure, {});
  const OperatorDefinition& conv = *graph.operators[0].definition;
  const KernelCost forward = costs.kernel(conv, conv.whole(), Phase::forward, true, {}, 0);
  CHECK(forward.source == CostSource::measured);
  CHECK(forward.ns > 100);
  CHECK(costs.measured_count() == 2);
  CHECK(costs.kernel(conv, conv.whole(), Phase::forward, true, {}, 0).ns == forward.ns);  // once is enough
  CHECK(costs.measured_count() == 2);
  CHECK(costs.copy(1 << 20, 0) > 1000);
  CHECK(costs.update(1 << 20, 0) > 1000);
  CHECK(costs.measurement_note() == "");
}

TEST_CASE("kernels are measured with the processors that this process may use") {
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/lenet.json", 2);
  const OperatorDefinition& conv = *graph.operators[0].definition;
  const auto note_of = [&](Topology topology) {
    KernelCosts costs(topology, CostMode::measure, {});
    costs.kernel(conv, conv.whole(), Phase::forward, false, {}, 0);
    return costs.measurement_note();
  };
  setenv("SLURM_CPUS_PER_TASK", "1", 1);
  Topology wide = one_device("cpu");
  wide.models[0].cores = 2;
  CHECK(note_of(wide) ==
        "kernels of device model \"m\" were measured with 1 thread, as many as this process may use processors, not "
        "with the model's 2 cores");
  CHECK(note_of(load_topology(FF_SOURCE_DIR "/topologies/local-cpu-2.json")) ==
        "kernels of device model \"cpu\" were measured 1 at once, for which this process has processors; 2 ranks on "
        "this machine take turns and are slower than predicted, on a machine with processors for 2 they are not");
  unsetenv("SLURM_CPUS_PER_TASK");
}
