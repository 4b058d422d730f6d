#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "tests/support/search_problem.h"

using namespace ff;

TEST_CASE("expert: dense layers of a convolutional network are split by channel") {
  SearchProblem alexnet("alexnet", "p100-1x4");
  const AlgorithmResult result = alexnet.run("expert");
  CHECK(result.note == "convolutional network: data parallelism, dense layers split by channel (Krizhevsky 2014)");
  int dense = 0;
  for (size_t op = 0; op < result.strategy.size(); ++op) {
    const std::string& type = alexnet.graph.operators[op].definition->type();
    if (type == "linear" || type == "dropout") {
      CHECK(result.strategy[op].degrees[1] == 4);
      CHECK(result.strategy[op].parts() == 4);
      ++dense;
    } else {
      CHECK(result.strategy[op].degrees[0] == 4);
      CHECK(result.strategy[op].parts() == 4);
    }
  }
  CHECK(dense == 5);
}

TEST_CASE("expert: a recurrent network has a replica on each node and equal depths on one device") {
  SearchProblem nmt("nmt", "p100-4x4");
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
  CHECK(place_of_layer.at("encoder2") == place_of_layer.at("decoder1"));  // both after two layers
}

TEST_CASE("expert: other networks are data parallel, and the note says so") {
  SearchProblem dlrm("dlrm", "p100-1x4");
  const AlgorithmResult result = dlrm.run("expert");
  CHECK(result.strategy == data_parallel(dlrm.graph, dlrm.topology));
  CHECK(result.note.find("no expert strategy is known here") != std::string::npos);
}
