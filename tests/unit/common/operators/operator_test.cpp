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

namespace {

// "name kind size, ..." of the dimensions of an operator of this type on inputs of these shapes.
std::string dimensions_of(const std::string& type, const std::string& attributes, const Vector<TensorSpec>& inputs) {
  const Json op = {{"type", type}, {"attributes", parse_json(attributes, "test").value()}};
  const JsonPlace place(std::make_shared<const Json>(op), "test");
  const std::unique_ptr<OperatorDefinition> definition = make_operator({type, inputs, place, place.find("attributes")});
  std::string text;
  for (const ParallelDimension& dimension : definition->dimensions())
    text += (text.empty() ? "" : ", ") + dimension.name + " " + std::string(to_string(dimension.kind)) + " " +
            std::to_string(dimension.size);
  return text;
}

}  // namespace

TEST_CASE("what is summed over is the last dimension, unless an activation needs the whole sum") {
  CHECK(dimensions_of("linear", R"({"out_features":5})", {{"", {4, 6}}}) ==
        "sample sample 4, channel parameter 5, in_channel reduction 6");
  CHECK(dimensions_of("linear", R"({"out_features":5,"activation":"relu"})", {{"", {4, 6}}}) ==
        "sample sample 4, channel parameter 5");
  CHECK(dimensions_of("conv2d", R"({"out_channels":6,"kernel":3})", {{"", {4, 2, 9, 8}}}) ==
        "sample sample 4, channel parameter 6, height attribute 7, width attribute 6, in_channel reduction 2");
  CHECK(dimensions_of("conv2d", R"({"out_channels":6,"kernel":3,"groups":2})", {{"", {4, 2, 9, 8}}}) ==
        "sample sample 4, channel parameter 6, height attribute 7, width attribute 6");
  CHECK(dimensions_of("conv2d", R"({"out_channels":6,"kernel":3,"activation":"relu"})", {{"", {4, 2, 9, 8}}}) ==
        "sample sample 4, channel parameter 6, height attribute 7, width attribute 6");
  CHECK(dimensions_of("conv1d", R"({"out_channels":6,"kernel":3})", {{"", {4, 9, 2}}}) ==
        "sample sample 4, length attribute 7, channel parameter 6, in_channel reduction 2");
  CHECK(dimensions_of("matmul", R"({"transpose":true})", {{"", {4, 5, 6}}, {"", {4, 7, 6}}}) ==
        "sample sample 4, length attribute 5, channel attribute 7, inner reduction 6");
  CHECK(dimensions_of("embedding", R"({"vocabulary":9,"channels":3})", {{"", {4, 5}, DataType::i32}}) ==
        "sample sample 4, length attribute 5, channel parameter 3, vocabulary reduction 9");
}

TEST_CASE("parts that share a sum write the same block, and each parameter is in one of them") {
  int shared = 0;
  for (uint32_t number = 0; number < 100; ++number) {
    RandomSource random(number);
    const Graph graph = random_graph(random);
    for (const Operator& op : graph.operators) {
      const OperatorDefinition& definition = *op.definition;
      Degrees degrees(definition.dimensions().size(), 1);
      if (definition.is_loss() || definition.dimensions().back().kind != DimensionKind::reduction) continue;
      degrees.back() = static_cast<int>(std::min<int64_t>(definition.dimensions().back().size, 3));
      const int parts = parts_of(degrees);
      REQUIRE(definition.partial_results(degrees) == parts);
      INFO("case " << number << ", operator " << op.name);
      for (int part = 0; part < parts; ++part)
        REQUIRE(definition.output_block(0, definition.part(degrees, part)) == Block(definition.outputs()[0].shape));
      for (int p = 0; p < static_cast<int>(definition.parameters().size()); ++p) {
        int64_t held = 0;
        for (int part = 0; part < parts; ++part)
          held += definition.parameter_block(p, definition.part(degrees, part)).volume();
        REQUIRE(held == volume(definition.parameters()[p].shape));
      }
      if (parts > 1) ++shared;
    }
  }
  CHECK(shared > 100);
}
