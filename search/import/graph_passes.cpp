#include "search/import/graph_passes.h"

#include <algorithm>

namespace ff::importing {
namespace {

using Operator = Builder::Operator;

// Who reads each tensor, and how often; who writes it.
struct Uses {
  std::map<std::string, int> count, producer;
  explicit Uses(const Builder& builder) {
    const Vector<Operator>& operators = builder.operators();
    for (const int i : operators.indices()) {
      for (const std::string& input : operators[i].inputs) ++count[input];
      for (const std::string& output : operators[i].outputs) producer[output] = i;
    }
    for (const std::string& output : builder.outputs) ++count[output];
  }
};

// A relu after a layer is part of it.
void fuse_relu(Builder& builder) {
  Vector<Operator>& operators = builder.operators();
  const Uses uses(builder);
  std::map<std::string, std::string> renamed;
  Vector<Operator> kept;
  Vector<int> place(operators.size(), -1);
  for (const int i : operators.indices()) {
    Operator op = operators[i];
    for (std::string& input : op.inputs)
      if (const auto it = renamed.find(input); it != renamed.end()) input = it->second;
    if (op.type == "relu") {
      const auto producer = uses.producer.find(operators[i].inputs[0]);
      static const std::set<std::string> layers = {"conv2d", "conv1d", "linear", "batch_norm"};
      if (producer != uses.producer.end() && layers.count(operators[producer->second].type) &&
          uses.count.at(operators[i].inputs[0]) == 1 && place[producer->second] >= 0) {
        kept[place[producer->second]].attributes["activation"] = "relu";
        renamed[op.outputs[0]] = op.inputs[0];
        continue;
      }
    }
    place[i] = kept.count();
    kept.push_back(std::move(op));
  }
  operators = std::move(kept);
  for (std::string& output : builder.outputs)
    if (const auto it = renamed.find(output); it != renamed.end()) output = it->second;
}

// What nothing reads, but losses; where there are no losses, but the outputs.
void remove_dead(Builder& builder) {
  Vector<Operator>& operators = builder.operators();
  const bool losses = std::any_of(operators.begin(), operators.end(), [](const Operator& op) { return op.is_loss(); });
  std::set<std::string> needed;
  if (!losses) needed.insert(builder.outputs.begin(), builder.outputs.end());
  Vector<Operator> kept;
  for (int i = operators.count() - 1; i >= 0; --i) {
    Operator& op = operators[i];
    const bool used = op.is_loss() || std::any_of(op.outputs.begin(), op.outputs.end(),
                                                  [&](const std::string& output) { return needed.count(output) > 0; });
    if (!used) continue;
    needed.insert(op.inputs.begin(), op.inputs.end());
    kept.push_back(std::move(op));
  }
  std::reverse(kept.begin(), kept.end());
  operators = std::move(kept);
  std::set<std::string> parameters;
  for (const Operator& op : operators)
    for (const ParameterSpec& spec : op.parameters)
      parameters.insert((spec.trained ? op.group : op.name) + "." + spec.name);
  std::erase_if(builder.parameters(), [&](const auto& entry) { return !parameters.count(entry.first); });
}

}  // namespace

const Vector<GraphPass>& graph_passes() {
  static const Vector<GraphPass> list = {{"attention", fuse_attention},
                                         {"relu after a layer", fuse_relu},
                                         {"dead operators", remove_dead},
                                         {"freed names", [](Builder& builder) { builder.take_freed_names(); }}};
  return list;
}

void run_graph_passes(Builder& builder) {
  for (const GraphPass& pass : graph_passes()) pass.run(builder);
}

}  // namespace ff::importing
