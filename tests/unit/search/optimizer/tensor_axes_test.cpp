#include "search/optimizer/tensor_axes.h"

#include <catch2/catch.hpp>

using namespace ff;

TEST_CASE("the axis that a dimension splits follows from the block functions") {
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/moe-tiny.json");
  const auto definition = [&](const std::string& name) -> const OperatorDefinition& {
    for (const Operator& op : graph.operators)
      if (op.name == name) return *op.definition;
    throw std::runtime_error(name);
  };
  const OperatorDefinition& attention = definition("layer1.attention");  // sample, length, head
  CHECK(axis_of_output(attention, 0, 0) == 0);
  CHECK(axis_of_output(attention, 0, 1) == 1);
  CHECK(axis_of_output(attention, 0, 2) == 2);
  CHECK(axis_of_input(attention, 0, 2) == -1);
  CHECK(axis_of_parameter(attention, 0, 1) == -1);
  CHECK(axis_of_parameter(attention, 0, 2) == 1);
  const OperatorDefinition& contract = definition("layer1.contract");  // sample, length, channel, in_channel
  CHECK(axis_of_output(contract, 0, 3) == -1);
  CHECK(axis_of_input(contract, 0, 3) == 2);
  CHECK(axis_of_input(contract, 0, 2) == -1);
  CHECK(axis_of_parameter(contract, 0, 0) == -1);
  const OperatorDefinition& experts = definition("layer2.expand");  // sample, expert, channel
  CHECK(axis_of_output(experts, 0, 0) == 1);
  CHECK(axis_of_output(experts, 0, 1) == 0);
  CHECK(axis_of_parameter(experts, 0, 1) == 0);
  CHECK(axis_of_output(definition("layer2.dispatch"), 0, 0) == 1);
  CHECK(axis_of_input(definition("layer2.dispatch"), 1, 1) == -1);
}
