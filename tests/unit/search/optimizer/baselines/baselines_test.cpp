// The algorithms without a search, each against what it promises: plain enumeration where that is possible.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "search/optimizer/algorithms.h"
#include "search/optimizer/baselines/expert.h"
#include "search/optimizer/baselines/model_parallel.h"
#include "search/optimizer/baselines/optcnn.h"
#include "tests/support/random_network.h"

using namespace ff;

namespace {

int64_t between(RandomSource& random, int64_t least, int64_t most) {
  return std::uniform_int_distribution<int64_t>(least, most)(random);
}

// Calls visit for every combination of choices below `sizes`.
void for_each_choice(const Vector<int>& sizes, const std::function<void(const Vector<int>&)>& visit) {
  Vector<int> choice(sizes.size(), 0);
  size_t digit = 0;
  while (digit < sizes.size()) {
    visit(choice);
    for (digit = 0; digit < sizes.size(); ++digit) {
      if (++choice[digit] < sizes[digit]) break;
      choice[digit] = 0;
    }
  }
}

Nanoseconds slowest_stage(const Vector<Vector<Nanoseconds>>& times, const Vector<int>& stage_of) {
  Vector<Nanoseconds> sums(times.size(), 0);
  for (size_t item = 0; item < stage_of.size(); ++item) sums[stage_of[item]] += times[stage_of[item]][item];
  return *std::max_element(sums.begin(), sums.end());
}

struct Fixture {
  Fixture(const std::string& graph_name, const std::string& topology_name)
      : graph(load_graph(FF_SOURCE_DIR "/graphs/" + graph_name + ".json")),
        topology(load_topology(FF_SOURCE_DIR "/topologies/" + topology_name + ".json")) {}
  Graph graph;
  Topology topology;
  KernelCosts kernels{topology, CostMode::analytic, {}};
  SearchSpace space{graph, topology};
  Evaluator evaluator{graph, topology, kernels};
  std::atomic<bool> stop{false};

  AlgorithmResult run(const std::string& algorithm, const McmcSettings& settings = {.proposals = 300},
                      const Vector<std::string>& init = {}) {
    return run_algorithm(algorithm, {graph, topology, kernels, space, evaluator, settings, init, false,
                                     Assignments::all, true, stop, nullptr});
  }
};

CostTables random_tables(RandomSource& random, bool dense) {
  CostTables tables;
  const int nodes = static_cast<int>(between(random, 1, 7));
  for (int node = 0; node < nodes; ++node) {
    tables.node_costs.emplace_back(static_cast<size_t>(between(random, 1, 4)));
    for (Nanoseconds& cost : tables.node_costs.back()) cost = between(random, 0, 50);
  }
  for (int b = 1; b < nodes; ++b)
    for (int a = 0; a < b; ++a)
      for (int times = dense ? 1 : static_cast<int>(between(random, -2, 2)); times > 0; --times) {
        CostTables::Edge edge{a, b, {}};
        if (between(random, 0, 1)) std::swap(edge.a, edge.b);
        for (size_t i = 0; i < tables.node_costs[edge.a].size() * tables.node_costs[edge.b].size(); ++i)
          edge.costs.push_back(between(random, 0, 50));
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

TEST_CASE("stages are balanced as well as by trying every cut") {
  RandomSource random(1);
  for (int round = 0; round < 300; ++round) {
    const size_t stages = static_cast<size_t>(between(random, 1, 4)),
                 items = static_cast<size_t>(between(random, 1, 8));
    Vector<Vector<Nanoseconds>> times(stages, Vector<Nanoseconds>(items));
    for (auto& row : times)
      for (Nanoseconds& time : row) time = between(random, 0, 9);
    if (between(random, 0, 1)) std::fill(times.begin() + 1, times.end(), times[0]);  // equal devices
    const Vector<int> found = balanced_stages(times);
    REQUIRE(std::is_sorted(found.begin(), found.end()));
    Nanoseconds least = std::numeric_limits<Nanoseconds>::max();
    for_each_choice(Vector<int>(items, static_cast<int>(stages)), [&](const Vector<int>& stage_of) {
      if (std::is_sorted(stage_of.begin(), stage_of.end())) least = std::min(least, slowest_stage(times, stage_of));
    });
    REQUIRE(slowest_stage(times, found) == least);
  }
}

TEST_CASE("model parallelism: whole operators, devices in order") {
  Fixture nmt("nmt", "p100-4x4");
  const Strategy strategy = nmt.run("model-parallel").strategy;
  for (size_t op = 0; op < strategy.size(); ++op) {
    REQUIRE(strategy[op].parts() == 1);
    REQUIRE(strategy[op].devices[0] >= (op > 0 ? strategy[op - 1].devices[0] : 0));
  }
  CHECK(strategy.back().devices[0] == 15);
}

TEST_CASE("expert: dense layers of a convolutional network are split by channel") {
  Fixture alexnet("alexnet", "p100-1x4");
  const AlgorithmResult result = alexnet.run("expert");
  CHECK(result.note == "convolutional network: data parallelism, dense layers split by channel (Krizhevsky 2014)");
  int dense = 0;
  for (size_t op = 0; op < result.strategy.size(); ++op) {
    const std::string& type = alexnet.graph.operators[op].definition->type();
    if (type == "linear" || type == "dropout") {
      CHECK(result.strategy[op].degrees == Vector<int>{1, 4});
      ++dense;
    } else {
      CHECK(result.strategy[op].degrees[0] == 4);
      CHECK(result.strategy[op].parts() == 4);
    }
  }
  CHECK(dense == 5);
}

TEST_CASE("expert: a recurrent network has a replica on each node and equal depths on one device") {
  Fixture nmt("nmt", "p100-4x4");
  const AlgorithmResult result = nmt.run("expert");
  CHECK(result.note.find("Wu et al. 2016") != std::string::npos);
  std::map<std::string, int> place_of_layer;
  std::set<int> places;
  for (size_t op = 0; op < result.strategy.size(); ++op) {
    const Configuration& configuration = result.strategy[op];
    REQUIRE(configuration.degrees[0] == 4);
    REQUIRE(configuration.parts() == 4);
    const int place = configuration.devices[0];
    places.insert(place);
    for (int node = 0; node < 4; ++node) REQUIRE(configuration.devices[node] == 4 * node + place);
    const std::string& name = nmt.graph.operators[op].name;
    const auto [it, added] = place_of_layer.emplace(name.substr(0, name.find('.')), place);
    REQUIRE(it->second == place);
  }
  CHECK(places.size() == 4);
  CHECK(place_of_layer.at("encoder2") == place_of_layer.at("decoder1"));  // both behind two layers
}

TEST_CASE("expert: other networks are data parallel, and the note says so") {
  Fixture dlrm("dlrm", "p100-1x4");
  const AlgorithmResult result = dlrm.run("expert");
  CHECK(result.strategy == data_parallel(dlrm.graph, dlrm.topology));
  CHECK(result.note.find("no expert strategy is known here") != std::string::npos);
}

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
    Evaluator evaluator(graph, topology, kernels);
    const SearchSpace space(graph, topology);
    LayerwiseCosts layerwise(graph, topology, space, evaluator.builder(), evaluator.cost_model());
    double combinations = 1;
    for (const auto& layer : layerwise.layers()) combinations *= static_cast<double>(layer.degrees.size());
    if (combinations > 100000) continue;
    ++enumerated;
    shared += layerwise.layers().size() < graph.operators.size();
    const CostTables tables = layerwise.tables();
    const auto found = optcnn(graph, topology, space, evaluator.builder(), evaluator.cost_model(), 1e12);
    REQUIRE(found);
    REQUIRE(found->not_eliminated == 0);
    REQUIRE(found->objective == enumerated_minimum(tables));
    // The tables against a sum over operators and tensors, for some choices.
    for (int sample = 0; sample < 5; ++sample) {
      Vector<int> choice;
      for (const auto& layer : layerwise.layers())
        choice.push_back(static_cast<int>(between(random, 0, static_cast<int64_t>(layer.degrees.size()) - 1)));
      const Strategy strategy = layerwise.strategy(choice);
      Nanoseconds sum = 0;
      for (size_t layer = 0; layer < choice.size(); ++layer)
        sum += layerwise.synchronization_ns(static_cast<int>(layer), layerwise.layers()[layer].degrees[choice[layer]]);
      for (OperatorId op = 0; op < static_cast<OperatorId>(strategy.size()); ++op)
        sum += layerwise.compute_ns(op, strategy[op].degrees);
      for (const Edge& edge : evaluator.builder().edges()) {
        const OperatorDefinition& producer = *graph.operators[edge.producer].definition;
        const OperatorDefinition& consumer = *graph.operators[edge.consumer].definition;
        Vector<Block> written, read;
        for (int part = 0; part < strategy[edge.producer].parts(); ++part)
          written.push_back(producer.output_block(graph.tensors[edge.tensor].output,
                                                  producer.part(strategy[edge.producer].degrees, part)));
        for (int part = 0; part < strategy[edge.consumer].parts(); ++part)
          read.push_back(consumer.input_block(edge.input, consumer.part(strategy[edge.consumer].degrees, part)));
        sum += layerwise.transfer_ns(
            written, read,
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
  Fixture lenet("lenet", "local-cpu-1");
  LayerwiseCosts layerwise(lenet.graph, lenet.topology, lenet.space, lenet.evaluator.builder(),
                           lenet.evaluator.cost_model());
  const CostTables tables = layerwise.tables();
  const Vector<int> choice(layerwise.layers().size(), 0);
  CHECK(tables.cost(choice) == lenet.evaluator.evaluate(layerwise.strategy(choice)).makespan);
}

TEST_CASE("optcnn gives unrolled steps of a layer one configuration and all networks of the paper reduce") {
  for (const char* name : {"alexnet", "resnet101", "inception_v3", "rnntc", "rnnlm", "nmt"}) {
    Fixture network(name, "p100-1x4");
    const AlgorithmResult result = network.run("optcnn");
    CAPTURE(name);
    CHECK(result.details["optcnn"]["proven"] == true);
    for (const Vector<OperatorId>& layer : parameter_sharing_layers(network.graph))
      for (OperatorId op : layer) REQUIRE(result.strategy[op] == result.strategy[layer[0]]);
  }
}

TEST_CASE("optcnn gives up where its tables would be too large") {
  Fixture lenet("lenet", "p100-1x4");
  CHECK_FALSE(
      optcnn(lenet.graph, lenet.topology, lenet.space, lenet.evaluator.builder(), lenet.evaluator.cost_model(), 10));
}

TEST_CASE("a search with the default candidates is never slower than any baseline") {
  for (const auto& [graph, topology] : {std::pair("lenet", "p100-1x4"),
                                        {"alexnet", "k80-1x4"},
                                        {"rnnlm-2step", "p100-1x4"},
                                        {"lenet", "local-cpu-2"}}) {
    Fixture network(graph, topology);
    const AlgorithmResult result = network.run("mcmc");
    CHECK(result.baselines.size() == cheap_algorithm_names().size());
    const Prediction found = network.evaluator.evaluate(result.strategy);
    for (const std::string& name : cheap_algorithm_names()) {
      const Prediction prediction = network.evaluator.evaluate(network.run(name).strategy);
      CHECK(found.cost <= prediction.cost);
      const auto baseline = std::find_if(result.baselines.begin(), result.baselines.end(),
                                         [&](const Baseline& b) { return b.algorithm == name; });
      REQUIRE(baseline != result.baselines.end());
      CHECK(baseline->predicted == prediction.makespan);
    }
  }
}

TEST_CASE("a candidate that exceeds a device's memory is not preferred to one that fits") {
  Fixture roomy("lenet", "p100-1x4");
  const Vector<int64_t> alone = roomy.evaluator.memory_bound(single_device(roomy.graph));
  const Vector<int64_t> split = roomy.evaluator.memory_bound(data_parallel(roomy.graph, roomy.topology));
  REQUIRE(alone[0] > split[0]);
  REQUIRE(roomy.evaluator.evaluate(single_device(roomy.graph)).makespan <
          roomy.evaluator.evaluate(data_parallel(roomy.graph, roomy.topology)).makespan);
  Topology tight = roomy.topology;
  for (DeviceModel& model : tight.models) model.memory_bytes = (alone[0] + split[0]) / 2;
  Evaluator evaluator(roomy.graph, tight, roomy.kernels);
  const AlgorithmResult result = run_algorithm("mcmc", {roomy.graph,
                                                        tight,
                                                        roomy.kernels,
                                                        roomy.space,
                                                        evaluator,
                                                        {.proposals = 20},
                                                        {},
                                                        false,
                                                        Assignments::all,
                                                        true,
                                                        roomy.stop,
                                                        nullptr});
  CHECK(evaluator.evaluate(result.strategy).feasible);
  const auto single = std::find_if(result.baselines.begin(), result.baselines.end(),
                                   [](const Baseline& b) { return b.algorithm == "single-device"; });
  REQUIRE(single != result.baselines.end());
  CHECK_FALSE(single->feasible);
}

TEST_CASE("an explicit init is all that is looked at") {
  Fixture lenet("lenet", "p100-1x4");
  AlgorithmResult result = lenet.run("mcmc", {.proposals = 100, .chains = 1}, {"data-parallel"});
  REQUIRE(result.baselines.size() == 1);
  CHECK(result.baselines[0].algorithm == "data-parallel");
  CHECK(result.chains->best_from == "data-parallel");
  const McmcResult same = search_mcmc(lenet.graph, lenet.topology, lenet.kernels,
                                      {{"data-parallel", data_parallel(lenet.graph, lenet.topology)}},
                                      {.proposals = 100, .chains = 1}, lenet.stop, nullptr);
  CHECK(same.chain_hash == result.chains->chain_hash);
  result = lenet.run("mcmc", {.proposals = 100, .chains = 2}, {"expert", "optcnn"});
  CHECK(result.baselines.size() == 2);
  result = lenet.run("mcmc", {.proposals = 100, .chains = 1}, {"best"});
  CHECK(result.baselines.size() == cheap_algorithm_names().size());
}

TEST_CASE("placement splits no operator") {
  Fixture rnnlm("rnnlm-2step", "p100-1x4");
  const AlgorithmResult result = rnnlm.run("placement", {.proposals = 2000});
  for (const Configuration& configuration : result.strategy) CHECK(configuration.parts() == 1);
  const Nanoseconds found = rnnlm.evaluator.evaluate(result.strategy).makespan;
  CHECK(found <= rnnlm.evaluator.evaluate(single_device(rnnlm.graph)).makespan);
  CHECK(found <= rnnlm.evaluator.evaluate(rnnlm.run("model-parallel").strategy).makespan);
  CHECK_THROWS_WITH(rnnlm.run("placement", {.proposals = 10}, {"data-parallel"}),
                    "--init: \"data-parallel\" splits operators, which placement does not");
}
