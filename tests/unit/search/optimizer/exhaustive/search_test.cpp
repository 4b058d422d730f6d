// Exhaustive search against plain enumeration by full simulation, on random graphs and topologies; and its bounds
// against what random completions take. EXHAUSTIVE_CASES in the environment asks for more cases than the default.
#include "search/optimizer/exhaustive/search.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>

#include "search/optimizer/exhaustive/partial.h"
#include "tests/support/random_network.h"
#include "tests/support/random_topology.h"

using namespace ff;
using namespace ff::exhaustive;

namespace {

int64_t between(RandomSource& random, int64_t least, int64_t most) {
  return std::uniform_int_distribution<int64_t>(least, most)(random);
}

int cases(int otherwise) {
  const char* given = std::getenv("EXHAUSTIVE_CASES");
  return given ? std::atoi(given) : otherwise;
}

// Two or three operators and a loss at the end: linear layers (now and then with shared parameters), batch
// normalization, elementwise operators, a second branch.
Graph small_network(RandomSource& random, int operators) {
  Json json = {{"format", "ffgraph/1"}, {"name", "small"}, {"batch_size", between(random, 2, 7)}};
  const int64_t width = between(random, 2, 6);
  json["inputs"] = {{{"name", "x"}, {"shape", {"batch", width}}, {"dtype", "f32"}},
                    {{"name", "label"}, {"shape", {"batch"}}, {"dtype", "i32"}}};
  Vector<std::string> same{"x"};  // tensors of `width` channels
  std::string last = "x";
  bool trained = false;
  for (int i = 0; i + 1 < operators; ++i) {
    const std::string name = "op" + std::to_string(i);
    const std::string input =
        between(random, 0, 3) ? last : same[between(random, 0, static_cast<int64_t>(same.size()) - 1)];
    Json op = {{"name", name}, {"inputs", {input}}};
    const int64_t kind = trained ? between(random, 0, 5) : between(random, 0, 1);
    trained = true;
    if (kind <= 1 || (kind == 5 && same.size() < 2)) {
      op["type"] = "linear";
      op["attributes"] = {{"out_features", width}, {"bias", between(random, 0, 1) == 0}};
      if (op["attributes"]["bias"] == false && between(random, 0, 1)) op["parameters"] = "shared";
    } else if (kind == 2) {
      op["type"] = "batch_norm";
    } else if (kind == 5) {
      op["type"] = "add";
      op["inputs"] = {same[same.size() - 1], same[same.size() - 2]};
    } else {
      op["type"] = kind == 3 ? "relu" : "softmax";
    }
    json["operators"].push_back(op);
    same.push_back(name);
    last = name;
  }
  json["operators"].push_back({{"name", "loss"}, {"type", "softmax_cross_entropy"}, {"inputs", {last, "label"}}});
  return parse_graph(parse_json(json.dump(), "graph"));
}

struct Case {
  Graph graph;
  Topology topology;
};

// Random cases of at most `most` strategies.
Case random_case(RandomSource& random, double most) {
  while (true) {
    const int devices = static_cast<int>(between(random, 2, 3));
    Case result{between(random, 0, 4) == 0 ? random_graph(random)
                                           : small_network(random, static_cast<int>(between(random, 2, 4))),
                random_topology(random, devices, between(random, 0, 1) == 0)};
    if (between(random, 0, 5) == 0)
      for (DeviceModel& model : result.topology.models) model.memory_bytes = between(random, 200, 2000);
    const SearchSpace space(result.graph, result.topology);
    double size = 1;
    for (OperatorId op : result.graph.operator_ids()) {
      double choices = 0;
      for (const Degrees& degrees : space.degrees(op)) {
        int parts = 1;
        for (int degree : degrees) parts *= degree;
        choices += std::pow(devices, parts);
      }
      size *= choices;
    }
    if (size <= most) return result;
  }
}

Vector<Configuration> all_configurations(const SearchSpace& space, OperatorId op, int devices,
                                         Assignments assignments) {
  Vector<Configuration> result;
  for (const Degrees& degrees : space.degrees(op)) {
    int parts = 1, count = 1;
    for (int degree : degrees) parts *= degree;
    for (int part = 0; part < parts; ++part) count *= devices;
    if (assignments == Assignments::consecutive) count = devices;
    for (int number = 0; number < count; ++number) {
      Configuration configuration{degrees, {}};
      int rest = number;
      for (int part = 0; part < parts; ++part) {
        configuration.devices.push_back(assignments == Assignments::consecutive ? (number + part) % devices
                                                                                : rest % devices);
        rest /= devices;
      }
      result.push_back(configuration);
    }
  }
  return result;
}

// The least cost of all, by full simulation of each.
double enumerate(const Case& c, Evaluator& evaluator, Assignments assignments) {
  const SearchSpace space(c.graph, c.topology);
  Vector<Vector<Configuration>> configurations;
  for (OperatorId op : c.graph.operator_ids())
    configurations.push_back(all_configurations(space, op, c.topology.devices.count(), assignments));
  Vector<size_t> at(configurations.size(), 0);
  Strategy strategy;
  for (const auto& choices : configurations) strategy.push_back(choices[0]);
  double least = std::numeric_limits<double>::infinity();
  while (true) {
    least = std::min(least, evaluator.evaluate(strategy).cost);
    size_t op = 0;
    while (op < at.size() && ++at[op] == configurations[op].size()) at[op++] = 0;
    if (op == at.size()) return least;
    for (size_t i = 0; i <= op; ++i) strategy[i] = configurations[i][at[i]];
  }
}

}  // namespace

TEST_CASE("exhaustive search finds the least cost of all strategies and proves it", "[slow]") {
  const std::atomic<bool> stop{false};
  int with_symmetry = 0, beyond_first = 0;
  for (int number = 0; number < cases(120); ++number) {
    INFO("case " << number);
    RandomSource random(static_cast<uint32_t>(number));
    const Case c = random_case(random, number % 10 == 0 ? 30000 : 3000);
    KernelCosts kernels(c.topology, CostMode::analytic, {});
    Evaluator evaluator({c.graph, c.topology, kernels});
    for (Assignments assignments : {Assignments::all, Assignments::consecutive}) {
      // Few proposals, so that the search itself has to find the optimum.
      const Settings settings{.seed = static_cast<uint64_t>(number), .proposals = 16, .assignments = assignments};
      const Result result = search({c.graph, c.topology, kernels}, settings, {stop});
      REQUIRE(result.proven);
      REQUIRE(result.best_prediction.cost == evaluator.evaluate(result.best).cost);
      REQUIRE(static_cast<double>(result.lower_bound) >= result.best_prediction.cost);
      const double least = enumerate(c, evaluator, assignments);
      REQUIRE(result.best_prediction.cost == least);
      with_symmetry += result.symmetries > 1;
      beyond_first += result.best_prediction.makespan < result.first_cost;
    }
  }
  CHECK(with_symmetry > 0);
  CHECK(beyond_first > 0);
}

TEST_CASE("no completion of a partial strategy costs less than its bound", "[slow]") {
  for (int number = 0; number < cases(150); ++number) {
    INFO("case " << number);
    RandomSource random(static_cast<uint32_t>(1000000 + number));
    const int devices = static_cast<int>(between(random, 1, 4));
    const Graph graph = random_graph(random);
    const Topology topology = random_topology(random, devices, between(random, 0, 1) == 0);
    KernelCosts kernels(topology, CostMode::analytic, {});
    Evaluator evaluator({graph, topology, kernels});
    const SearchSpace search_space(graph, topology);
    // Consecutive assignments keep the tables small; what a partial strategy looks like does not depend on them.
    const Assignments assignments = devices > 2 ? Assignments::consecutive : Assignments::all;
    Space space(evaluator, search_space, assignments);
    REQUIRE(space.enumerable());
    Bounds bounds(space);
    REQUIRE(bounds.reduce(std::numeric_limits<Nanoseconds>::max() / 4, [] { return false; }));
    PartialBounds partial(bounds);
    for (int completion = 0; completion < 10; ++completion) {
      Strategy strategy;
      Vector<const Choice*> choices;
      Vector<OperatorId> order;
      for (OperatorId op : graph.operator_ids()) {
        const Vector<Choice>& all = space.choices(op).choices;
        choices.push_back(&all[between(random, 0, all.count() - 1)]);
        strategy.push_back(space.configuration(op, *choices.back()));
        order.push_back(op);
      }
      std::shuffle(order.begin(), order.end(), random);
      const Nanoseconds makespan = evaluator.evaluate(strategy).makespan;
      partial.evaluate(INT64_MAX);
      for (OperatorId op : order) {
        INFO("completion " << completion << ", operator " << graph.operators[op].name);
        const Choice& choice = *choices[op];
        REQUIRE(bounds.bound(op, choice.orbit) <= makespan);
        const Nanoseconds glance = partial.glance(op, choice);
        REQUIRE(glance <= makespan);
        partial.push(op, choice);
        REQUIRE(partial.evaluate(INT64_MAX) <= makespan);
      }
      for (size_t op = 0; op < order.size(); ++op) partial.pop();
    }
    // A limit strikes out nothing that a strategy below it contains.
    Strategy best;
    Nanoseconds least = INT64_MAX;
    for (int sample = 0; sample < 40; ++sample) {
      Strategy strategy;
      for (OperatorId op : graph.operator_ids()) {
        const Vector<Choice>& all = space.choices(op).choices;
        strategy.push_back(space.configuration(op, all[between(random, 0, all.count() - 1)]));
      }
      const Nanoseconds makespan = evaluator.evaluate(strategy).makespan;
      if (makespan < least) best = strategy, least = makespan;
    }
    REQUIRE(bounds.reduce(least + 1, [] { return false; }));
    for (OperatorId op : graph.operator_ids()) {
      const Choice& choice = space.choices(op).choices[space.find(op, best[op])];
      REQUIRE(bounds.alive(op, choice.orbit));
      partial.push(op, choice);
      REQUIRE(partial.evaluate(INT64_MAX) <= least);
    }
  }
}

TEST_CASE("a search that is ended early reports a lower bound that holds") {
  const std::atomic<bool> stop{false};
  for (int number = 0; number < 20; ++number) {
    INFO("case " << number);
    RandomSource random(static_cast<uint32_t>(2000000 + number));
    const Case c = random_case(random, 3000);
    KernelCosts kernels(c.topology, CostMode::analytic, {});
    const Result whole = search({c.graph, c.topology, kernels}, {.proposals = 16}, {stop});
    for (int64_t nodes : {1, 5, 25}) {
      const Result part = search({c.graph, c.topology, kernels}, {.nodes = nodes, .proposals = 16}, {stop});
      CHECK(static_cast<double>(part.lower_bound) <= whole.best_prediction.cost);
      CHECK(part.best_prediction.cost >= whole.best_prediction.cost);
      CHECK(part.nodes <= nodes);
      CHECK(part.proven == (static_cast<double>(part.lower_bound) >= part.best_prediction.cost));
    }
  }
}

TEST_CASE("the optimum of LeNet on four P100 is proven", "[slow]") {
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/lenet.json");
  const Topology topology = load_topology(FF_SOURCE_DIR "/topologies/p100-1x4.json");
  KernelCosts kernels(topology, CostMode::analytic, {});
  const std::atomic<bool> stop{false};
  const Result result = search({graph, topology, kernels}, {.proposals = 1000}, {stop});
  CHECK(result.proven);
  CHECK(result.symmetries == 24);
  CHECK(result.log10_size == Approx(41.92).margin(0.01));
  CHECK(result.best_prediction.makespan == 155796);
}

TEST_CASE("a space that is too large is said to be so") {
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/lenet.json");
  const Topology topology = load_topology(FF_SOURCE_DIR "/topologies/p100-4x4.json");
  KernelCosts kernels(topology, CostMode::analytic, {});
  const std::atomic<bool> stop{false};
  const Result result = search({graph, topology, kernels}, {.proposals = 50}, {stop});
  CHECK(result.too_large);
  CHECK_FALSE(result.proven);
  CHECK(result.lower_bound > 0);
}
