// Metamorphic relations on random networks, topologies and strategies: two predictions that must agree, whatever they
// are. scripts/metamorphic.py has those of the programs, on the networks in graphs/.
#include <catch2/catch.hpp>

#include "common/task_graph/issue_order.h"
#include "search/explain/decisions.h"
#include "search/optimizer/lower_bound.h"
#include "tests/support/random_network.h"
#include "tests/support/random_topology.h"
#include "tests/support/search_problem.h"

using namespace ff;

namespace {

Graph graph_of(const Json& json) { return parse_graph(parse_json(json.dump(), "graph")); }
Topology topology_of(const Json& json) { return parse_topology(parse_json(json.dump(), "topology")); }

// The same for every seed.
struct Case {
  explicit Case(uint32_t seed)
      : random(seed), network(random_network(random)),
        problem(graph_of(network), random_topology(random, 1 + static_cast<int>(random.between(0, 4)))),
        strategy(random_strategy(problem.graph, problem.topology.devices.count(), random)) {}

  RandomSource random;
  Json network;
  SearchProblem problem;
  Strategy strategy;
  const Json& machine() const { return problem.topology.file; }
  Evaluator::Details details() { return problem.evaluator.details(strategy); }
};

bool equal_costs(const TaskCosts& a, const TaskCosts& b) {
  return a.duration == b.duration && a.beside_ranges == b.beside_ranges;
}

void rename_ends(Json& machine, const std::function<std::string(const std::string&)>& name) {
  for (Json& device : machine["devices"]) device["name"] = name(device["name"]);
  if (machine.contains("switches"))
    for (Json& one : machine["switches"]) one = name(one);
  for (Json& link : machine["links"])
    for (Json& end : link["between"]) end = name(end);
}

// Operators and what they read; inputs of the graph keep their names.
Json with_renamed_operators(const Json& network, const std::function<std::string(const std::string&)>& name) {
  Json result = network;
  std::set<std::string> inputs;
  for (const Json& input : network["inputs"]) inputs.insert(input["name"]);
  for (Json& op : result["operators"]) {
    op["name"] = name(op["name"]);
    for (Json& read : op["inputs"]) {
      const std::string tensor = read;
      const size_t colon = tensor.find(':');
      if (!inputs.contains(tensor.substr(0, colon)))
        read = name(tensor.substr(0, colon)) + tensor.substr(std::min(colon, tensor.size()));
    }
  }
  return result;
}

}  // namespace

TEST_CASE("metamorphic: a strategy file is predicted as what was found, in every order of tasks") {
  int busy = 0, own_order = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    Case one(seed);
    Problem problem = one.problem.problem;
    problem.settings.synchronization = synchronization_of(seed);
    Evaluator evaluator(problem);
    for (const TaskOrder order :
         {TaskOrder::fifo, TaskOrder::critical_path, TaskOrder::latest_start, TaskOrder::best}) {
      CAPTURE(static_cast<int>(order));
      Evaluator::Details found = evaluator.details(one.strategy, order);
      const bool by_readiness = found.fifo_order;
      Evaluator::follow_order(found);
      busy += by_readiness && !found.fifo_order;
      own_order += !found.fifo_order;
      const TaskGraphBuilder& builder = evaluator.builder();
      const StrategyFile file{problem.graph,
                              problem.topology,
                              one.strategy,
                              found.fifo_order
                                  ? issue_order_to_save(builder, found.tasks, found.order, found.transfer_buffers)
                                  : issue_order_names(builder, found.tasks, found.order),
                              Json::object(),
                              false,
                              {},
                              found.transfer_buffers,
                              problem.settings};
      const Evaluator::Details again =
          evaluator.details_of_file(parse_strategy(parse_json(strategy_to_json(file).dump(), "strategy")));
      CHECK(again.timeline.makespan == found.timeline.makespan);
      CHECK(again.timeline.start == found.timeline.start);
      CHECK(again.fifo_order == found.fifo_order);
      CHECK(again.makespan_fifo == found.makespan_fifo);
      CHECK(again.memory_bytes == found.memory_bytes);
    }
  }
  CHECK(busy > 0);
  CHECK(own_order > busy);
}

TEST_CASE("metamorphic: what a decision costs is what a fresh simulation says") {
  for (uint32_t seed = 100; seed < 130; ++seed) {
    CAPTURE(seed);
    Case one(seed);
    const Strategy plain = data_parallel(one.problem.graph, one.problem.topology);
    for (const Effect& effect : effects(one.problem.evaluator, one.strategy, plain, false)) {
      const Strategy changed = with_decision(one.strategy, effect.decision);
      CHECK(effect.predicted == Evaluator(one.problem.problem).evaluate(changed).makespan);
    }
  }
}

TEST_CASE("metamorphic: names of operators, devices and switches do not matter") {
  for (uint32_t seed = 200; seed < 260; ++seed) {
    CAPTURE(seed);
    Case one(seed);
    std::map<std::string, std::string> names;
    const auto other = [&](const std::string& name) {
      const auto [it, added] = names.try_emplace(name);
      if (added)
        it->second = "n" + std::to_string(one.random.between(0, 1'000'000)) + "_" + std::to_string(names.size());
      return it->second;
    };
    Json machine = one.machine();
    rename_ends(machine, other);
    SearchProblem renamed(graph_of(with_renamed_operators(one.network, other)), topology_of(machine));
    const Evaluator::Details before = one.details(), after = renamed.evaluator.details(one.strategy);
    CHECK(equal_costs(before.costs, after.costs));
    CHECK(before.timeline.start == after.timeline.start);
    CHECK(before.memory_bytes == after.memory_bytes);
  }
}

TEST_CASE("metamorphic: at twice all rates and half of all fixed times an iteration takes half as long") {
  int exact = 0;
  for (uint32_t seed = 300; seed < 400; ++seed) {
    CAPTURE(seed);
    Case one(seed);
    Json machine = one.machine();
    const auto scale = [](Json& object, std::initializer_list<const char*> keys, double by) {
      for (const char* key : keys)
        if (object.contains(key)) object[key] = by * object[key].get<double>();
    };
    for (auto& [name, model] : machine["device_models"].items()) {
      scale(model, {"peak_tflops", "memory_gb_per_s"}, 2);
      scale(model, {"launch_us"}, 0.5);
    }
    for (Json& link : machine["links"]) {
      scale(link, {"bandwidth_gb_per_s", "all_reduce_gb_per_s"}, 2);
      scale(link, {"latency_us", "cpu_overhead_us", "all_reduce_latency_us"}, 0.5);
    }
    SearchProblem faster(one.problem.graph, topology_of(machine));
    const Evaluator::Details before = one.details(), after = faster.evaluator.details(one.strategy);
    bool halved = true;  // all of them, to the nanosecond
    const auto half = [&](Nanoseconds time, Nanoseconds then) {
      halved = halved && time == 2 * then;
      // What a task is made of (a kernel, copies) is rounded, and takes 1 ns at least.
      CHECK(std::abs(time - 2 * then) <= 8);
    };
    for (const int task : before.tasks.tasks.indices()) half(before.costs.duration[task], after.costs.duration[task]);
    for (const int task : before.tasks.tasks.indices()) {
      const auto uses = before.costs.uses_of(task), then = after.costs.uses_of(task);
      REQUIRE(uses.size() == then.size());
      for (size_t u = 0; u < uses.size(); ++u) half(uses[u].occupancy, then[u].occupancy);
      const auto works = before.costs.beside_of(task), works_then = after.costs.beside_of(task);
      REQUIRE(works.size() == works_then.size());
      for (size_t w = 0; w < works.size(); ++w) half(works[w].work, works_then[w].work);
    }
    if (!halved) continue;
    ++exact;
    CHECK(before.timeline.makespan == 2 * after.timeline.makespan);
  }
  CHECK(exact > 10);
}

TEST_CASE("metamorphic: a device without tasks changes neither times nor memory of the others") {
  for (uint32_t seed = 400; seed < 460; ++seed) {
    CAPTURE(seed);
    Case one(seed);
    Json machine = one.machine();
    const Json link = {{"bandwidth_gb_per_s", 1e3}, {"latency_us", 0}};
    const Json devices = machine["devices"];
    machine["devices"].push_back({{"name", "unused"}, {"kind", "gpu"}, {"model", "m"}});
    if (machine.contains("switches")) {
      machine["links"].push_back(link);
      machine["links"].back()["between"] = {"unused", "s0"};
    } else {
      for (const Json& device : devices) {
        machine["links"].push_back(link);
        machine["links"].back()["between"] = {"unused", device["name"]};
      }
    }
    SearchProblem larger(one.problem.graph, topology_of(machine));
    const Evaluator::Details before = one.details(), after = larger.evaluator.details(one.strategy);
    CHECK(before.costs.duration == after.costs.duration);
    CHECK(before.timeline.start == after.timeline.start);
    Vector<int64_t> memory = before.memory_bytes;
    memory.push_back(0);
    CHECK(after.memory_bytes == memory);
  }
}

// The simulated time itself may rise: with other ready times a device takes its tasks in another order (Graham 1969,
// "Bounds on multiprocessing timing anomalies"). No task takes longer, so no path through the task graph does.
TEST_CASE("metamorphic: with a faster link no transfer or collective takes longer") {
  int faster = 0, looked_at = 0;
  for (uint32_t seed = 500; seed < 600; ++seed) {
    CAPTURE(seed);
    Case one(seed);
    Json machine = one.machine();
    if (!machine.contains("switches")) continue;  // else routes may change, and with them what they are best for
    Json& link = machine["links"][static_cast<size_t>(one.random.between(0, std::ssize(machine["links"]) - 1))];
    for (const char* key : {"bandwidth_gb_per_s", "all_reduce_gb_per_s"})
      if (link.contains(key)) link[key] = 2 * link[key].get<double>();
    SearchProblem other(one.problem.graph, topology_of(machine));
    const Evaluator::Details before = one.details(), after = other.evaluator.details(one.strategy);
    ++looked_at;
    bool any = false;
    for (const int task : before.tasks.tasks.indices()) {
      CHECK(after.costs.duration[task] <= before.costs.duration[task]);
      any = any || after.costs.duration[task] < before.costs.duration[task];
    }
    faster += any;
  }
  CHECK(looked_at > 20);
  CHECK(faster > 10);
}

TEST_CASE("metamorphic: no strategy of the search space is below the lower bound") {
  for (uint32_t seed = 600; seed < 630; ++seed) {
    CAPTURE(seed);
    Case one(seed);
    const SearchProblem& problem = one.problem;
    const Nanoseconds bound = lower_bound(problem.problem, problem.space, one.problem.evaluator.cost_model());
    RandomStream random(seed, 0);
    for (int round = 0; round < 10; ++round)
      CHECK(one.problem.evaluator.evaluate(problem.space.random_strategy(random)).makespan >= bound);
  }
}

namespace {

// The same devices and links, with other numbers.
Topology renumbered(const Topology& topology, RandomSource& random) {
  Vector<DeviceId> order(topology.devices.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  return topology.with_devices(order);
}

}  // namespace

TEST_CASE("metamorphic: what is placed by rule does not depend on the numbers of devices") {
  const Vector<std::tuple<const char*, const char*, Vector<std::string>>> cases = {
      {"alexnet", "p100-4x4", {"data-parallel", "single-device", "expert", "model-parallel", "optcnn"}},
      {"alexnet", "tpu-v3-128", {"data-parallel", "expert"}},
      {"rnnlm-2step", "k80-2x4", {"data-parallel", "expert", "model-parallel", "pipeline"}},
      {"llama-tiny", "dgx-a100-2", {"data-parallel", "megatron"}},
      {"moe-tiny", "p100-1x4", {"data-parallel", "gshard"}}};
  RandomSource random(7);
  for (const auto& [network, machine, algorithms] : cases) {
    SearchProblem problem(network, machine);
    const Topology other = renumbered(problem.topology, random);
    SearchProblem same(problem.graph, other);
    for (const std::string& algorithm : algorithms) {
      CAPTURE(network, machine, algorithm);
      const Strategy strategy = problem.run(algorithm).strategy, placed = same.run(algorithm).strategy;
      for (const OperatorId op : problem.graph.operator_ids()) {
        REQUIRE(strategy[op].degrees == placed[op].degrees);
        for (const int part : strategy[op].devices.indices())
          REQUIRE(problem.topology.devices[strategy[op].devices[part]].name ==
                  other.devices[placed[op].devices[part]].name);
      }
      CHECK(same.evaluator.evaluate(placed).makespan == problem.evaluator.evaluate(strategy).makespan);
    }
  }
}
