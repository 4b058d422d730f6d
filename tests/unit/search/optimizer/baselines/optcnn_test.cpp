// OptCNN against plain enumeration: of any tables, and of its own cost model.
#include "search/optimizer/baselines/optcnn.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <set>

#include "search/optimizer/operator_groups.h"
#include "tests/support/random_network.h"
#include "tests/support/search_problem.h"

using namespace ff;

namespace {

CostTables random_tables(RandomSource& random, bool dense) {
  CostTables tables;
  const int nodes = static_cast<int>(random.between(1, 7));
  for (int node = 0; node < nodes; ++node) {
    tables.node_costs.emplace_back(random.between(1, 4));
    for (Nanoseconds& cost : tables.node_costs.back()) cost = random.between(0, 50);
  }
  for (int b = 1; b < nodes; ++b)
    for (int a = 0; a < b; ++a)
      for (int times = dense ? 1 : static_cast<int>(random.between(-2, 2)); times > 0; --times) {
        CostTables::Edge edge{a, b, {}};
        if (random.between(0, 1)) std::swap(edge.a, edge.b);
        for (size_t i = 0; i < tables.node_costs[edge.a].size() * tables.node_costs[edge.b].size(); ++i)
          edge.costs.push_back(random.between(0, 50));
        tables.edges.push_back(std::move(edge));
      }
  return tables;
}

Vector<int> sizes_of(const CostTables& tables) {
  Vector<int> sizes;
  for (const auto& costs : tables.node_costs) sizes.push_back(static_cast<int>(costs.size()));
  return sizes;
}

Nanoseconds enumerated_minimum(const CostTables& tables) {
  Nanoseconds least = std::numeric_limits<Nanoseconds>::max();
  for_each_choice(sizes_of(tables), [&](const Vector<int>& choice) { least = std::min(least, tables.cost(choice)); });
  return least;
}

}  // namespace

TEST_CASE("elimination finds the minimum of any tables") {
  RandomSource random(2);
  for (int round = 0; round < 400; ++round) {
    const CostTables tables = random_tables(random, round % 4 == 0);
    const TableMinimum minimum = minimize(tables);
    REQUIRE(minimum.exact());
    REQUIRE(minimum.cost == tables.cost(minimum.choice));
    REQUIRE(minimum.cost == enumerated_minimum(tables));
  }
}

TEST_CASE("elimination says when it could not finish") {
  RandomSource random(3);
  int unfinished = 0, equal = 0;
  for (int round = 0; round < 200; ++round) {
    const CostTables tables = random_tables(random, true);
    const TableMinimum minimum = minimize(tables, 20);
    REQUIRE(minimum.cost == tables.cost(minimum.choice));
    const Nanoseconds least = enumerated_minimum(tables);
    REQUIRE(minimum.cost >= least);
    if (minimum.exact()) REQUIRE(minimum.cost == least);
    unfinished += !minimum.exact();
    equal += minimum.cost == least;
  }
  CHECK(unfinished > 50);
  CHECK(equal > 180);
}

TEST_CASE("optcnn equals enumeration of its own cost model on random networks") {
  RandomSource random(4);
  int enumerated = 0, shared = 0;
  for (int round = 0; round < 2000 && enumerated < 40; ++round) {
    const Json network = random_network(random);
    const Graph graph = parse_graph(parse_json(network.dump(), "network"));
    const Topology topology =
        load_topology(FF_SOURCE_DIR "/topologies/" + std::string(round % 2 ? "p100-1x4" : "local-cpu-2") + ".json");
    KernelCosts kernels(topology, CostMode::analytic, {});
    Evaluator evaluator({graph, topology, kernels});
    const SearchSpace space(graph, topology);
    LayerwiseCosts layerwise(evaluator, space);
    double combinations = 1;
    for (const auto& layer : layerwise.layers()) combinations *= static_cast<double>(layer.degrees.size());
    if (combinations > 100000) continue;
    ++enumerated;
    shared += layerwise.layers().size() < graph.operators.size();
    const CostTables tables = layerwise.tables();
    const auto found = optcnn(evaluator, space, 1e12);
    REQUIRE(found);
    REQUIRE(found->not_eliminated == 0);
    REQUIRE(found->objective == enumerated_minimum(tables));
    // The tables against a sum over operators and tensors, for some choices.
    for (int sample = 0; sample < 5; ++sample) {
      Vector<int> choice;
      for (const auto& layer : layerwise.layers())
        choice.push_back(static_cast<int>(random.between(0, static_cast<int64_t>(layer.degrees.size()) - 1)));
      const Strategy strategy = layerwise.strategy(choice);
      Nanoseconds sum = 0;
      for (size_t layer = 0; layer < choice.size(); ++layer)
        sum += layerwise.synchronization_ns(static_cast<int>(layer), layerwise.layers()[layer].degrees[choice[layer]]);
      for (OperatorId op : strategy.indices()) sum += layerwise.compute_ns(op, strategy[op].degrees);
      for (const Edge& edge : evaluator.builder().edges()) {
        sum += layerwise.exchange_ns(
            blocks_of(graph, edge, strategy[edge.producer].degrees, strategy[edge.consumer].degrees),
            graph.input_has_gradient(edge.consumer, edge.input) && graph.operators[edge.consumer].has_backward);
      }
      REQUIRE(tables.cost(choice) == sum);
    }
  }
  CHECK(enumerated == 40);
  CHECK(shared > 0);
}

TEST_CASE("the layer-wise cost of a chain is the simulated time where nothing can overlap") {
  // One device: no transfers, no collectives, operators one after the other; updates come at the end of all.
  SearchProblem lenet("lenet", "local-cpu-1");
  LayerwiseCosts layerwise(lenet.evaluator, lenet.space);
  const CostTables tables = layerwise.tables();
  const Vector<int> choice(layerwise.layers().size(), 0);
  CHECK(tables.cost(choice) == lenet.evaluator.evaluate(layerwise.strategy(choice)).makespan);
}

namespace {

// Of the edge between the first two operators, the time of its tasks: in each direction the longest, or what the
// busiest device or link is occupied for by all of them, and the longest copies of the tasks at both ends. These copy
// for nothing else.
Nanoseconds simulated_exchange(Evaluator& evaluator, const Strategy& strategy, std::set<TaskKind>& kinds) {
  const Evaluator::Details details = evaluator.details(strategy);
  Nanoseconds sum = 0;
  for (const Direction direction : directions) {
    Vector<Nanoseconds> occupied(details.costs.resource_count, 0);
    Nanoseconds most = 0, copies[2] = {0, 0};
    for (const int t : details.tasks.tasks.indices()) {
      const Task& task = details.tasks.tasks[t];
      if (task.kind == compute_kind(direction) && task.op < 2)
        copies[task.op] = std::max(copies[task.op], evaluator.cost_model().copy_ns(task.copy_bytes, 0));
      if (task.kind != transfer_kind(direction) && task.kind != collective_kind(direction)) continue;
      if (subject_of(task.key) != 0) continue;
      kinds.insert(task.kind);
      most = std::max(most, details.costs.duration[t]);
      for (const ResourceUse& use : details.costs.uses_of(t))
        most = std::max(most, occupied[use.resource] += use.occupancy);
    }
    sum += most + copies[0] + copies[1];
  }
  return sum;
}

}  // namespace

// Two layers on four devices: all-gather and reduce-scatter, all-to-all, all-reduce, partial sums, transfers. The
// parts of the loss lie with those of the second layer and copy nothing.
TEST_CASE("what optcnn counts for an edge is what the tasks of the edge take") {
  const Graph graph = parse_graph(parse_json(R"({"format":"ffgraph/1","name":"two","batch_size":32,
    "inputs":[{"name":"x","shape":["batch",64],"dtype":"f32"},{"name":"label","shape":["batch"],"dtype":"i32"}],
    "operators":[
      {"name":"a","type":"linear","inputs":["x"],"attributes":{"out_features":64}},
      {"name":"b","type":"linear","inputs":["a"],"attributes":{"out_features":64}},
      {"name":"loss","type":"softmax_cross_entropy","inputs":["b","label"]}]})",
                                             "graph"));
  const Topology topology = load_topology(FF_SOURCE_DIR "/topologies/p100-1x4.json");
  KernelCosts kernels(topology, CostMode::analytic, {});
  Evaluator evaluator({graph, topology, kernels});
  LayerwiseCosts layerwise(evaluator, SearchSpace(graph, topology));
  const Edge edge = evaluator.builder().edges()[0];
  std::set<TaskKind> kinds;
  const Degrees splits[] = {{1, 1, 1}, {2, 1, 1}, {4, 1, 1}, {1, 2, 1}, {1, 4, 1}, {2, 2, 1}, {1, 1, 2}, {1, 1, 4}};
  const auto configuration = [](const Degrees& degrees) {
    Configuration result{degrees, {}};
    for (int part = 0; part < parts_of(degrees); ++part) result.devices.push_back(part);
    return result;
  };
  for (const Degrees& first : splits)
    for (const Degrees& second : splits) {
      if (second[2] > 1) continue;
      CAPTURE(first, second);
      CHECK(layerwise.exchange_ns(blocks_of(graph, edge, first, second), true) ==
            simulated_exchange(evaluator,
                               {configuration(first), configuration(second), configuration({second[0], second[1]})},
                               kinds));
    }
  CHECK(kinds == std::set<TaskKind>{TaskKind::activation, TaskKind::gradient, TaskKind::activation_collective,
                                    TaskKind::gradient_collective});
}

TEST_CASE("optcnn gives unrolled steps of a layer one configuration and all networks of the paper reduce") {
  for (const char* name : {"alexnet", "resnet101", "inception_v3", "rnntc", "rnnlm", "nmt"}) {
    SearchProblem network(name, "p100-1x4");
    const AlgorithmResult result = network.run("optcnn");
    CAPTURE(name);
    CHECK(result.details["optcnn"]["proven"] == true);
    for (const Vector<OperatorId>& layer : parameter_sharing_layers(network.graph))
      for (OperatorId op : layer) REQUIRE(result.strategy[op] == result.strategy[layer[0]]);
  }
}

TEST_CASE("optcnn gives up where its tables would be too large") {
  SearchProblem lenet("lenet", "p100-1x4");
  CHECK_FALSE(optcnn(lenet.evaluator, lenet.space, 10));
}
