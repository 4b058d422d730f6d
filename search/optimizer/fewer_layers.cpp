#include "search/optimizer/fewer_layers.h"

#include <algorithm>
#include <set>
#include <utility>

#include "search/optimizer/parallelism.h"

namespace ff {
namespace {

class AlikeLayers {
 public:
  explicit AlikeLayers(const Graph& graph) : graph_(graph), layer_of_(layer_or_none_of_operators(graph)) {
    for (const OperatorId op : graph.operator_ids()) {
      const int layer = layer_of_[op];
      if (layer != no_layer && layer >= operators_.count()) operators_.resize(layer + 1);
      place_.push_back(layer == no_layer ? 0 : operators_[layer].count());
      if (layer != no_layer) operators_[layer].push_back(op);
    }
  }

  int count() const { return operators_.count(); }

  bool alike() const {
    for (const int layer : operators_.indices()) {
      if (operators_[layer].size() != operators_[0].size()) return false;
      for (const int place : operators_[layer].indices())
        if (!alike(layer, operators_[layer][place], operators_[1][place])) return false;
    }
    for (const OperatorId op : graph_.operator_ids())
      if (layer_of_[op] == no_layer)
        for (const TensorId input : graph_.operators[op].inputs)
          if (const int layer = layer_of_producer(input); layer != no_layer && layer != count() - 1) return false;
    return true;
  }

  // In the file: which operators stay, and in whose place of the last layer one of the new last layer comes.
  std::set<std::string> kept(int layers) const {
    std::set<std::string> names;
    for (const OperatorId op : graph_.operator_ids())
      if (layer_of_[op] < layers) names.insert(graph_.operators[op].name);
    return names;
  }
  std::map<std::string, std::string> in_place_of_last(int layers) const {
    std::map<std::string, std::string> names;
    for (const int place : operators_[0].indices())
      names.emplace(graph_.operators[operators_[count() - 1][place]].name,
                    graph_.operators[operators_[layers - 1][place]].name);
    return names;
  }

 private:
  int layer_of_producer(TensorId tensor) const {
    const OperatorId producer = graph_.tensors[tensor].producer;
    return producer < 0 ? no_layer : layer_of_[producer];
  }

  // Is it as the operator in its place in the second layer? The first layer reads what is in front of all where the
  // others read the layer before them.
  bool alike(int layer, OperatorId id, OperatorId of_second) const {
    const Operator &op = graph_.operators[id], &second = graph_.operators[of_second];
    if (op.function != second.function || op.inputs.size() != second.inputs.size()) return false;
    for (const int input : op.inputs.indices())
      if (!alike_inputs(layer, op.inputs[input], second.inputs[input])) return false;
    return std::all_of(op.parameters.begin(), op.parameters.end(), [&](ParameterId parameter) {
      const auto& uses = graph_.parameters[parameter].uses;
      return std::all_of(uses.begin(), uses.end(), [&](const auto& use) { return layer_of_[use.first] == layer; });
    });
  }

  bool alike_inputs(int layer, TensorId input, TensorId of_second) const {
    const int from = layer_of_producer(input), from_second = layer_of_producer(of_second);
    if (from_second == no_layer) return input == of_second;
    if (layer == 0 && from_second == 0) return from == no_layer;
    if (from == no_layer || from - layer != from_second - 1) return false;
    const Tensor &a = graph_.tensors[input], &b = graph_.tensors[of_second];
    return a.output == b.output && place_[a.producer] == place_[b.producer];
  }

  const Graph& graph_;
  const Vector<int> layer_of_;
  Vector<Vector<OperatorId>> operators_;  // [layer]
  Vector<int> place_;                     // [operator]: in its layer
};

}  // namespace

std::optional<Graph> with_fewer_layers(const Graph& graph, int layers) {
  const AlikeLayers alike(graph);
  if (layers < 2 || layers >= alike.count() || !alike.alike()) return std::nullopt;
  const std::set<std::string> kept = alike.kept(layers);
  const std::map<std::string, std::string> in_place = alike.in_place_of_last(layers);
  auto source = std::make_shared<Json>(*graph.source);
  Json operators = Json::array();
  for (Json& op : (*source)["operators"]) {
    if (!kept.contains(op["name"].get<std::string>())) continue;
    for (Json& input : op["inputs"]) {
      const std::string name = input.get<std::string>();
      const size_t end = std::min(name.find(':'), name.size());
      const auto other = in_place.find(name.substr(0, end));
      if (other != in_place.end()) input = other->second + name.substr(end);
    }
    operators.push_back(std::move(op));
  }
  (*source)["operators"] = std::move(operators);
  return parse_graph(JsonPlace(std::move(source), "graph"), graph.batch_size, graph.activation_type);
}

const Graph* FewerLayers::with(int layers) {
  const auto [found, is_new] = known_.try_emplace(layers);
  if (is_new) found->second = with_fewer_layers(graph_, layers);
  return found->second ? &*found->second : nullptr;
}

}  // namespace ff
