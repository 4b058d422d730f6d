#include "common/operators/operator.h"

#include <catch2/catch.hpp>
#include <map>

#include "common/graph.h"
#include "tests/support/committed_files.h"
#include "tests/support/random_network.h"

using namespace ff;

TEST_CASE("docs/operators.md and the schema know every operator type") {
  const std::string text = committed_text("docs/operators.md");
  for (const std::string& type : operator_types()) {
    INFO(type << " has no entry in docs/operators.md");
    CHECK(text.find("\n## `" + type + "`\n") != std::string::npos);
  }
  const JsonPlace schema = read_json_file(FF_SOURCE_DIR "/docs/schema/ffgraph.json");
  Vector<std::string> types;
  for (const JsonPlace& type : schema.at("$defs").at("operator_type").at("enum").items())
    types.push_back(type.as_string());
  CHECK(types == operator_types());
}

TEST_CASE("parts of one kind have one signature") {
  int64_t compared = 0;
  for (uint32_t number = 0; number < 300; ++number) {
    RandomSource random(number);
    const Graph graph = random_graph(random);
    const Strategy strategy = random_strategy(graph, 6, random);
    for (OperatorId op = 0; op < static_cast<OperatorId>(graph.operators.size()); ++op) {
      const OperatorDefinition& definition = *graph.operators[op].definition;
      const Vector<int> kinds = definition.kinds_of_parts(strategy[op].degrees);
      REQUIRE(static_cast<int64_t>(kinds.size()) == strategy[op].parts());
      std::map<int, std::string> signatures;
      for (size_t part = 0; part < kinds.size(); ++part) {
        const std::string signature =
            definition.signature(definition.part(strategy[op].degrees, static_cast<int64_t>(part)));
        const auto [known, added] = signatures.try_emplace(kinds[part], signature);
        INFO("case " << number << ", operator " << graph.operators[op].name << ", part " << part);
        REQUIRE(known->second == signature);
        if (!added) ++compared;
      }
    }
  }
  CHECK(compared > 1000);
}
