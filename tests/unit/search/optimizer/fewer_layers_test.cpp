#include "search/optimizer/fewer_layers.h"

#include <catch2/catch.hpp>

#include "search/optimizer/parallelism.h"
#include "tests/support/graph_of_config.h"

namespace ff {
namespace {

const Graph& gpt() {
  static const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/gpt2-small.json", 16);
  return graph;
}

// The operator of this name is changed.
template <typename Change>
Graph changed(const Graph& graph, const std::string& name, const Change& change) {
  auto source = std::make_shared<Json>(*graph.source);
  for (Json& op : (*source)["operators"])
    if (op["name"] == name) change(op);
  return parse_graph(JsonPlace(std::move(source), "graph"), graph.batch_size);
}

}  // namespace

TEST_CASE("a transformer with fewer layers is the same network without the last ones") {
  const Graph fewer = *with_fewer_layers(gpt(), 4), one_more = *with_fewer_layers(gpt(), 5);
  CHECK(transformer_layers(fewer).count() == 4);
  const int64_t of_layer = one_more.parameter_count() - fewer.parameter_count();
  CHECK(gpt().parameter_count() == fewer.parameter_count() + 8 * of_layer);
  CHECK(gpt().operators.count() - fewer.operators.count() ==
        8 * (one_more.operators.count() - fewer.operators.count()));
  CHECK(fewer.batch_size == 16);
  // What is behind the last layer reads the new last one.
  const Operator& norm = fewer.operators[transformer_layers(fewer)[3] + 11];
  CHECK(norm.name == "norm");
  CHECK(fewer.tensors[norm.inputs[0]].name == "layer4.add2");
}

TEST_CASE("with experts, and in another type, a transformer has fewer layers, too") {
  const Graph graph = with_activation_type(load_graph(FF_SOURCE_DIR "/graphs/mixtral-8x22b.json", 8), DataType::bf16);
  const Graph fewer = *with_fewer_layers(graph, 3);
  CHECK(fewer.losses.count() == 4);  // the network's own, and one of each layer
  CHECK(fewer.activation_type == DataType::bf16);
}

TEST_CASE("layers that are not alike are not left out") {
  CHECK_FALSE(with_fewer_layers(gpt(), 12));  // not fewer
  CHECK_FALSE(with_fewer_layers(gpt(), 1));
  CHECK_FALSE(with_fewer_layers(load_graph(FF_SOURCE_DIR "/graphs/lenet.json"), 2));
  const auto wider = [](Json& op) { op["attributes"]["heads"] = 6; };
  for (const char* const layer : {"layer1", "layer2", "layer7", "layer12"})
    CHECK_FALSE(with_fewer_layers(changed(gpt(), std::string(layer) + ".attention", wider), 4));
  CHECK_FALSE(
      with_fewer_layers(changed(gpt(), "layer9.expand", [](Json& op) { op["parameters"] = "layer8.expand"; }), 4));
  // A layer that reads one far before it, and a loss that reads more than the last layer.
  CHECK_FALSE(with_fewer_layers(changed(gpt(), "layer9.add1", [](Json& op) { op["inputs"][0] = "layer5.add2"; }), 4));
  CHECK_FALSE(with_fewer_layers(changed(gpt(), "norm", [](Json& op) { op["inputs"][0] = "layer11.add2"; }), 4));
}

}  // namespace ff
